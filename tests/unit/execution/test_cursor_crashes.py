"""Wherever the worker dies, each item of a resumable step is written once, and the run reaches its end.

Like ``test_crashes.py``, for what that one has no word for: bodies that commit in their middle, waits for signals and
conditions, and what people do meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from stepwell import Poll, Retry, Signal, Workflow, resumable_step, step
from stepwell.states import TERMINAL, Kind, Outcome, RunState
from tests.unit.execution.memory import Crash, MemoryRun, Table

HOUR = timedelta(hours=1)
COMMANDS = ["pause", "resume", "nothing"]


@dataclass(frozen=True)
class Walk:
    """A resumable step: its size, its options, how its body goes, and at which items it fails or stops."""

    size: int
    style: str
    every: int
    iterations: int | None
    fails_at: frozenset[int]
    stops_at: frozenset[int]
    conflicts_at: frozenset[int]
    waits_for: str


WALKS = st.builds(
    Walk,
    size=st.integers(0, 9),
    style=st.sampled_from(["iterate", "table", "batches", "set", "generator", "skip_to"]),
    every=st.integers(1, 4),
    iterations=st.sampled_from([None, 1, 2, 3]),
    fails_at=st.frozensets(st.integers(0, 8), max_size=2),
    stops_at=st.frozensets(st.integers(0, 8), max_size=2),
    conflicts_at=st.frozensets(st.integers(0, 8), max_size=2),
    waits_for=st.sampled_from(["nothing", "signal", "poll", "gate", "time"]),
)
CRASHES = st.frozensets(
    st.tuples(st.integers(0, 30), st.sampled_from(["before", "with", "after"])), min_size=1, max_size=5
)
COMMANDED = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(COMMANDS)), max_size=3)


class Journey:
    """A run of a walk, with its fate."""

    def __init__(self, walk: Walk, crashes: Any = frozenset(), commands: Any = ()) -> None:
        self.walk = walk
        self.crashes = crashes
        self.commands = sorted(commands)
        self.boundaries: Counter[str] = Counter()
        self.died = 0
        self.happened: set[tuple[str, int]] = set()
        self.table = Table(range(1, walk.size + 1))
        self.run = MemoryRun(self.workflow())
        self.run.at_boundary = self.at_boundary

    def workflow(self) -> type[Workflow[None]]:
        walk, go_through = self.walk, getattr(self, f"by_{self.walk.style}")

        def plainly(workflow: Any) -> None:
            for _ in go_through(workflow):
                raise AssertionError("only generators yield")

        def yielding(workflow: Any) -> Iterator[Any]:
            yield from go_through(workflow)

        options: dict[str, Any] = {
            "max_iterations": walk.iterations,
            "checkpoint_every": walk.every,
            "name": "walk",
            **self.wait(),
        }

        class Steps(Workflow[None]):
            policies = [Retry(ConnectionError, attempts=99, wait=HOUR)]
            walk = resumable_step(**options)(yielding if self.walk.style == "generator" else plainly)

            @step(awaits=Signal("end", timeout=HOUR, default="nobody"))
            def end(self, who: str) -> None:
                self.finish([who, self.context.get("count", 0)])

        return Steps

    def wait(self) -> dict[str, Any]:
        began = self.walk.size  # anything that is the same each time
        ready = lambda workflow: self.run.clock.now() >= self.run.begins_at + HOUR  # noqa: E731
        return {
            "nothing": {},
            "signal": {"awaits": "go"},
            "poll": {"wait_until": Poll(ready, every=HOUR / (began + 1))},
            "gate": {"gate": ready},
            "time": {"wait": HOUR},
        }[self.walk.waits_for]

    # -- bodies ------------------------------------------------------------------------------------------

    def by_iterate(self, workflow: Any) -> Iterator[Any]:
        for item in workflow.cursor.iterate(range(1, self.walk.size + 1)):
            self.do(workflow, item)
        yield from ()

    def by_table(self, workflow: Any) -> Iterator[Any]:
        for item in workflow.cursor.iterate(self.table, page=3):
            self.do(workflow, item)
        yield from ()

    def by_batches(self, workflow: Any) -> Iterator[Any]:
        for batch in workflow.cursor.batches(self.table, size=2):
            for item in batch:
                self.do(workflow, item)
        yield from ()

    def by_set(self, workflow: Any) -> Iterator[Any]:
        for item in range((workflow.cursor.value or 0) + 1, self.walk.size + 1):
            self.do(workflow, item)
            workflow.cursor.set(item)
        yield from ()

    def by_generator(self, workflow: Any) -> Iterator[Any]:
        for item in range((workflow.cursor.value or 0) + 1, self.walk.size + 1):
            self.do(workflow, item)
            try:
                yield item
            except GeneratorExit:
                workflow.session.append("on the way out")
                raise

    def by_skip_to(self, workflow: Any) -> Iterator[Any]:
        item = (workflow.cursor.value or 0) + 1
        if item <= self.walk.size:
            self.do(workflow, item)
            workflow.cursor.skip_to(item, wait=HOUR if item % 2 else None)
        yield from ()

    def do(self, workflow: Any, item: int) -> None:
        workflow.session.append(item)
        workflow.context["count"] = workflow.context.get("count", 0) + 1
        if item in self.walk.conflicts_at and self.is_first("conflict", item):
            self.run.conflicts = 1
        if item in self.walk.fails_at and self.is_first("fail", item):
            raise ConnectionError
        if (
            item in self.walk.stops_at
            and self.walk.style in ("iterate", "table")
            and self.is_first("stop", item)
        ):
            self.run.pause("stop")

    def is_first(self, what: str, item: int) -> bool:
        """Whether it has not happened yet: a body that is run again after a crash meets it no more."""
        if (what, item) in self.happened:
            return False
        self.happened.add((what, item))
        return True

    # -- fate --------------------------------------------------------------------------------------------

    def at_boundary(self, moment: str) -> None:
        number = self.boundaries[moment]
        self.boundaries[moment] += 1
        while self.commands and sum(self.boundaries.values()) >= self.commands[0][0] * 3:
            getattr(self, self.commands.pop(0)[1])()
        if (number, moment) in self.crashes:
            self.died += 1
            raise Crash

    def pause(self) -> None:
        self.run.pause("somebody")

    def resume(self) -> None:
        self.run.resume()

    def nothing(self) -> None: ...

    def go(self) -> Journey:
        """To the end: a person resumes what is paused, the world does what the run waits for."""
        for _ in range(60):
            self.run.drive()
            if self.run.state in TERMINAL:
                return self
            if self.run.state is RunState.AWAITING:
                self.release()
            else:
                assert self.run.state is RunState.PAUSED, (self.run.state, self.run.error_message)
                self.run.resume()
        raise AssertionError(f"does not come to an end: {self.run.state}")

    def release(self) -> None:
        if self.run.current_step == "end":
            self.run.wake()
        elif self.walk.waits_for == "signal":
            self.run.signal("go")
        else:
            self.run.clock.travel(HOUR)
            self.run.nudge()


@settings(max_examples=400)
@given(walk=WALKS, crashes=CRASHES, commands=COMMANDED)
def test_each_item_is_written_once(walk: Walk, crashes: Any, commands: Any) -> None:
    """In its order, none twice and none missing; the context agrees, and the run ends as it should."""
    journey = Journey(walk, crashes, commands).go()
    run = journey.run
    event(f"{journey.died} crashes")

    assert run.state is RunState.COMPLETED
    assert run.ledger == list(range(1, walk.size + 1))
    assert run.codec.loads(run.result, what="result") == ["nobody", walk.size]


@settings(max_examples=200)
@given(walk=WALKS, crashes=CRASHES, commands=COMMANDED)
def test_the_journal_reads_like_a_chain(walk: Walk, crashes: Any, commands: Any) -> None:
    """Each execution that took over a cursor names the one whose it was, with the cursor that this one left."""
    run = Journey(walk, crashes, commands).go().run
    rows = {row.position: row for row in run.journal}
    executions = [row for row in run.journal if row.name == "walk" and row.kind is Kind.STEP]

    assert sum(row.outcome is Outcome.SUCCESS for row in executions) == 1
    assert executions[-1].outcome is Outcome.SUCCESS
    assert not any(row.outcome is None for row in run.journal)
    for before, row in zip([None, *executions], executions, strict=False):
        if row.continues_from is not None:
            assert before is not None
            assert rows[row.continues_from] is before
            assert before.cursor is not None
    assert sorted(rows) == list(range(1, len(rows) + 1))
