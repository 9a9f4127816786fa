"""Ten thousand races of a run that parks against what it parks for: nothing that comes is ever missed.

A run looks at its mailbox and its requests, finds nothing, and parks; at that very moment somebody sends a
signal, wakes it, or cancels it. Either the park is refused and the run looks again, or the sender finds it
parked and makes it ready. A run that stays parked beside an unread signal would sleep for ever.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from uuid import UUID

import pytest
from sqlalchemy import Connection

from stepwell.entries import Settlement
from stepwell.states import RunState
from stepwell.store.commands import Answer
from stepwell.store.mailbox import Message, insert_signal, unread, wake
from tests.integration.store.rig import Held, Rig

RACES = {"sqlite": 3400, "postgresql": 3300, "mariadb": 3300}
Sender = Callable[[Rig, UUID], object]
PAIRS = 4
"""So many races are under way at a time."""


def look(rig: Rig, run_id: UUID, sender: Sender) -> tuple[int, bool]:
    """The counter, and whether what was sent is there to be seen: the counter is read first."""
    with rig.database.read() as connection:
        standing = rig.claims.standing(connection, run_id)
    if sender is signal:
        with rig.database.read() as connection:
            return standing.wakeups, unread(connection, run_id, "paid") is not None
    if sender is cancel:
        return standing.wakeups, standing.stop_request is not None
    # A bare wake says "look again", and that is what is being done.
    return standing.wakeups, standing.wakeups > 0


def park(rig: Rig, held: Held, sender: Sender) -> str:
    """Look and park, as an activation does, until it is parked or has seen what came."""
    for attempt in range(1, 4):
        wakeups, has_come = look(rig, held.id, sender)
        if has_come:
            return f"seen at look {attempt}"
        if rig.write(held, settlement=Settlement(RunState.AWAITING, seen_wakeups=wakeups)).accepted:
            return "parked"
    raise AssertionError("the park was refused, and there was nothing to see")


def signal(rig: Rig, run_id: UUID) -> object:
    def send(connection: Connection) -> None:
        wake(connection, [run_id], rig.now)
        insert_signal(connection, rig.dialect, Message(run_id, "paid"), rig.now)

    return rig.database.retrying(send)


def bare_wake(rig: Rig, run_id: UUID) -> object:
    return rig.database.retrying(lambda connection: wake(connection, [run_id], rig.now))


def cancel(rig: Rig, run_id: UUID) -> object:
    return rig.database.retrying(
        lambda connection: rig.commands.cancel(connection, run_id, rig.now, None, None).answer
    )


SENDERS: list[Sender] = [signal, bare_wake, cancel]


@pytest.mark.slow
def test_ten_thousand_races_lose_nothing(rig: Rig) -> None:
    """Whoever comes first, the other one notices: no run stays parked beside what it was to be woken for."""
    races = RACES[next(name for name in RACES if name.startswith(rig.dialect.name))]
    held = rig.hold_many(races)
    outcomes: Counter[str] = Counter()
    lost: list[str] = []
    threads = [
        threading.Thread(target=run_races, args=(rig, held[number::PAIRS], number, outcomes, lost))
        for number in range(PAIRS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert lost == []
    assert sum(outcomes.values()) == races
    # Each side came first, and the look came too early, often enough for the law to have been at stake.
    assert min(outcomes[each] for each in ("parked", "seen at look 1", "seen at look 2")) > 10, outcomes


def run_races(rig: Rig, runs: list[Held], seed: int, outcomes: Counter[str], lost: list[str]) -> None:
    """Races one after the other; this thread parks and a second one sends."""
    chance = random.Random(seed)
    # Now one side has a head start and now the other, so that each meets every moment of the other.
    delays = [chance.uniform(-0.004, 0.002) for _ in runs]
    meet = threading.Barrier(2)
    answers: dict[UUID, object] = {}

    def send_all() -> None:
        for number, held in enumerate(runs):
            meet.wait(timeout=30)
            time.sleep(max(0.0, -delays[number]))
            answers[held.id] = SENDERS[number % 3](rig, held.id)
            meet.wait(timeout=30)

    sender = threading.Thread(target=send_all)
    sender.start()
    for number, held in enumerate(runs):
        meet.wait(timeout=30)
        time.sleep(max(0.0, delays[number]))
        outcome = park(rig, held, SENDERS[number % 3])
        meet.wait(timeout=30)
        outcomes[outcome] += 1
        problem = what_was_lost(rig, held, outcome, answers[held.id])
        if problem:
            lost.append(problem)
    sender.join()


def what_was_lost(rig: Rig, held: Held, outcome: str, answer: object) -> str | None:
    row = rig.row(held.id)
    if outcome != "parked":
        return None if row.state == RunState.RUNNING else f"{outcome}, but {row.state}"
    if row.state == RunState.AWAITING:
        return f"parked, and never woken ({answer})"
    expected = RunState.CANCELED if answer == Answer.DONE else RunState.READY
    return None if row.state == expected else f"parked and told, but {row.state} ({answer})"
