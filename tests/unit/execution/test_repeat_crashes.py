"""Whatever dies, and however long nobody looks: each tick of a grid is done once, or told of as left out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from stepwell import Retry, Workflow, step
from stepwell.definition.calendars import interval_of
from stepwell.states import ATTENTION, ExecutionState, Kind, Outcome, RunState
from tests.unit.execution.memory import START, Crash, MemoryRun

HOUR = timedelta(hours=1)
MOST = 9


@dataclass(frozen=True)
class Case:
    """How it is repeated, at which bodies a tick raises, and what happens from outside: at which write, and when."""

    every: Any
    timeout: timedelta | None
    fails_at: frozenset[int]
    crashes: tuple[tuple[str, int], ...]
    jumps: tuple[tuple[timedelta, str], ...]
    prunes: bool


CASES = st.builds(
    Case,
    every=st.sampled_from([HOUR, timedelta(minutes=7), "day", "month", "0 */5 * * *", "30 1 * * *"]),
    timeout=st.sampled_from([None, None, HOUR, timedelta(days=3), timedelta(days=400)]),
    fails_at=st.frozensets(st.integers(1, 12), max_size=4),
    crashes=st.lists(
        st.tuples(st.sampled_from(["before", "with", "after"]), st.integers(1, 40)), max_size=6
    ).map(tuple),
    jumps=st.lists(
        st.tuples(
            st.integers(0, 2000).map(lambda tenths: tenths * HOUR / 10),
            st.sampled_from(["nothing", "pause", "skip", "early"]),
        ),
        max_size=12,
    ).map(tuple),
    prunes=st.booleans(),
)


class Repeats(Workflow[None]):
    """Notes each tick through its session; every third tick changes the context, too."""

    every: Any
    limit: timedelta | None
    policies = [Retry(OSError, attempts=2, wait=timedelta(minutes=3))]
    fails_at: frozenset[int] = frozenset()
    bodies = 0

    def run(self) -> Any:
        zone = None if isinstance(self.every, timedelta) else "Europe/Berlin"
        options: Any = {"every": self.every, "timezone": zone, "timeout": self.limit}
        done = self.repeat(self.work, until=self.is_over, **options)
        return [done, self.context.get("done", 0)]

    def is_over(self) -> bool:
        return bool(self.context.get("done", 0) >= MOST)

    @step
    def work(self, at: datetime) -> None:
        cls = type(self)
        cls.bodies += 1
        self.context["done"] = self.context.get("done", 0) + 1
        self.session.append(at.astimezone(UTC))
        if cls.bodies in cls.fails_at:
            raise OSError("down") if cls.bodies % 2 else ValueError("broken")


@settings(max_examples=250, deadline=None)
@given(CASES)
def test_each_tick_of_the_grid_is_done_once_or_told_of_as_left_out(case: Case) -> None:
    """None is done twice, none is lost, and the numbers of the rows have no gap."""
    names = {"every": case.every, "limit": case.timeout, "fails_at": case.fails_at, "bodies": 0}
    run = MemoryRun(type("Repeating", (Repeats,), names))
    crashes = set(case.crashes)
    counts = {"before": 0, "with": 0, "after": 0}

    def at_boundary(moment: str) -> None:
        counts[moment] += 1
        if (moment, counts[moment]) in crashes:
            event(f"crash {moment}")
            raise Crash

    run.at_boundary = at_boundary
    for jump, act in (*case.jumps, *[(timedelta(), "nothing")] * 100):
        go_on(run)
        if run.state is RunState.COMPLETED:
            break
        do(run, act)
        run.clock.travel(jump)
        go_on(run)
        if run.state is RunState.WAITING:
            run.wake()
        if case.prunes:
            run.superseded = {row.position for row in ticks_of(run)[:-3] if row.finished_at is not None}
    assert run.state is RunState.COMPLETED
    check(run, case)


def go_on(run: MemoryRun) -> None:
    """As workers do, until nothing is due."""
    while run.state is RunState.READY:
        try:
            run.activate()
        except Crash:
            if run.state is RunState.RUNNING:
                run.lose_worker()


def do(run: MemoryRun, act: str) -> None:
    match act:
        case "pause":
            run.pause()
            run.clock.travel(HOUR)
            if run.state in ATTENTION:
                run.resume()
        case "skip":
            run.skip()
        case "early":
            # Somebody wakes it ahead of its time.
            run.pause()
            run.resume()


def ticks_of(run: MemoryRun) -> list[Any]:
    return [row for row in run.journal if row.kind is Kind.TICK]


def check(run: MemoryRun, case: Case) -> None:
    interval = interval_of(case.every, None if isinstance(case.every, timedelta) else "Europe/Berlin")
    at = interval.first(START, None)
    number, expected = 1, []
    for row in ticks_of(run):
        kept = json.loads(row.details or "{}")
        if row.state in (ExecutionState.COMPLETED, ExecutionState.CANCELED):
            assert row.key == str(number)
        if row.outcome in (Outcome.RETRIED, Outcome.PAUSED, Outcome.LOST):
            continue
        count = kept.get("expired", 1)
        if count > 1:
            event("expired")
        if row.outcome is Outcome.SUCCESS:
            expected.append(at)
        for _ in range(count):
            at, number = interval.after(at, START), number + 1
    assert run.ledger == expected
    assert len(set(run.ledger)) == len(run.ledger) == MOST
    assert run.result == f"[{MOST},{MOST}]"
    assert all(row.finished_at is not None for row in run.journal)
