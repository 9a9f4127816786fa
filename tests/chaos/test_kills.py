"""A worker process that is killed, at every point of an activation."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.errands import CalledErrand, Errand
from tests.chaos.faults import Fault
from tests.chaos.scene import Scene

STEPS = ("collect", "pay", "note", "deliver")
WRITING = ("collect", "pay", "deliver")

# At which passage of the point (in the middle of the run where there are several), and which body then runs again.
KILLS: dict[str, tuple[int, str | None]] = {
    "claim.before": (1, None),
    "claim.in_transaction": (1, None),
    "claim.committed": (1, None),
    "claimed": (1, None),
    "body.due": (2, None),
    "body.before": (2, None),
    "body.inside": (2, "pay"),
    "body.in_session": (2, "pay"),
    "body.after": (2, "pay"),
    "step.flushed": (2, "pay"),
    "step.guarded": (2, "pay"),
    "step.committed": (2, None),
    "journal.before": (1, "note"),
    "journal.after": (1, None),
    "settle.before": (1, None),
    "settle.after": (1, None),
}


# What differs with run(): what a replay finds after each write.
REPLAYED = (
    "body.in_session",
    "step.guarded",
    "step.committed",
    "journal.before",
    "journal.after",
    "settle.after",
)


@pytest.mark.slow
@pytest.mark.parametrize(("errand", "points"), [(Errand, tuple(KILLS)), (CalledErrand, REPLAYED)])
def test_each_step_is_in_the_ledger_once_wherever_its_worker_was_killed(
    scene: Scene, errand: type[Errand], points: tuple[str, ...]
) -> None:
    """Whatever a worker was doing when it was killed, another one finishes its runs; every step is committed once,
    and no body runs again whose step was committed.
    """
    runs = {point: scene.start(errand, queue=point) for point in points}
    victims = [
        scene.worker(queues=[point], threads=1, fault=Fault(point, "SIGKILL", KILLS[point][0]), name=point)
        for point in points
    ]
    for victim in victims:
        victim.wait_until_killed(within=60)
    scene.worker(queues=list(points), threads=16, name="heir")
    scene.wait_until_completed(runs.values(), within=40)

    accounts = {f"account-{number}": point for number, point in enumerate(points, start=1)}
    repeated = Counter(
        {(account, KILLS[point][1]): 1 for account, point in accounts.items() if KILLS[point][1]}
    )
    assert scene.ledger() == Counter((account, step) for account in accounts for step in WRITING)
    assert {account: scene.balance(account) for account in accounts} == dict.fromkeys(accounts, 3)
    assert scene.bodies() == Counter((account, step) for account in accounts for step in STEPS) + repeated
    assert {point: scene.done(run) for point, run in runs.items()} == {point: list(STEPS) for point in points}
