"""Repetitions on each database: what a tick writes is committed with the announcement of the next one."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update

from stepwell import AsyncWorkflow, Retry, Run, Workflow, step
from stepwell.clock import to_micros
from stepwell.execution.journal import Body
from stepwell.states import ExecutionState, Kind, RunState
from stepwell.store.journal import histories, show_body
from stepwell.store.schema import executions
from stepwell.testing import Workbench
from tests.integration.repeats.conftest import NOON
from tests.integration.store.rig import ledger

AT_ONCE = timedelta()
HOUR = timedelta(hours=1)


class Hourly(Workflow):
    """Writes the number of each tick into the ledger, three times."""

    workflow_name = "repeating.Hourly"

    def run(self, most: int = 3) -> Any:
        done = self.repeat(self.note, every=HOUR, until=self.is_over)
        self.sleep(HOUR)
        return [done, self.context["n"]]

    def is_over(self) -> bool:
        return bool(self.context.get("n", 0) >= self.args.get("most", 3))

    @step(on_exception=Retry(OSError, attempts=2, wait=timedelta(minutes=5)))
    def note(self, at: datetime) -> None:
        self.session.execute(insert(ledger).values(n=(at - NOON) // HOUR))
        self.context["n"] = self.context.get("n", 0) + 1


class Endless(Workflow):
    """Notes when it was called, and never ends; may fail."""

    workflow_name = "repeating.Endless"

    def run(self) -> None:
        self.repeat(self.note, every=HOUR, name="hourly")

    def note(self, at: datetime) -> None:
        self.session.execute(insert(ledger).values(n=(at - NOON) // HOUR))
        self.context["last"] = at.isoformat()


class Failing(Hourly):
    """Each tick fails, and is tried twice."""

    workflow_name = "repeating.Failing"

    @step(on_exception=Retry(OSError, attempts=2, wait=timedelta(minutes=5)))
    def note(self, at: datetime) -> None:
        raise OSError("down")


def noted(bench: Workbench) -> list[int]:
    with bench.engine.database.read() as connection:
        return sorted(connection.execute(select(ledger.c.n)).scalars())


def let_pass(bench: Workbench, hours: int) -> None:
    for _ in range(hours):
        bench.travel(HOUR)
        bench.drain()


def ticks(run: Run) -> list[str]:
    return [f"{row.key} {row.outcome or row.state}" for row in run.steps if row.kind == Kind.TICK]


POINTS = ["before_step", "after_body", "before_commit", "after_commit", "before_settle", "after_settle"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_worker_that_dies_loses_no_tick_and_does_none_twice(bench: Workbench, point: str, nth: int) -> None:
    """What it wrote is there once for each tick, and the run goes on behind the repetition when that is over."""
    run = Hourly.start()
    with bench.crash_at(point, nth=nth):
        bench.run_to_end(run)
    assert bench.run_to_end(run) is RunState.COMPLETED
    assert noted(bench) == [1, 2, 3]
    assert run.result(AT_ONCE) == [3, 3]
    first, second, third = (
        row.scheduled_for for row in run.steps if row.kind == Kind.TICK and row.outcome == "success"
    )
    # If the worker died before the first wait was written, that one was reached by the next.
    assert first is not None
    assert (first >= NOON + HOUR, second, third) == (True, first + HOUR, first + 2 * HOUR)


def test_a_coroutine_repeats_too(bench: Workbench) -> None:
    """Awaited, with steps of both kinds."""

    class Awaiting(AsyncWorkflow):
        workflow_name = "repeating.Awaiting"

        async def run(self) -> Any:
            over = lambda: self.context.get("n", 0) >= 2  # noqa: E731  # as an author would write it
            return [await self.repeat(self.count, every="day", until=over)]

        @step
        async def count(self) -> None:
            self.context["n"] = self.context.get("n", 0) + 1

    run = Awaiting.start()
    assert bench.run_to_end(run) is RunState.COMPLETED
    assert run.result(AT_ONCE) == [2]
    assert bench.now == NOON + timedelta(days=2)


def test_rows_of_earlier_ticks_may_be_deleted(bench: Workbench) -> None:
    """The last one knows how many there were, and what they changed."""
    run = Hourly.start(most=5)
    bench.drain()
    for _ in range(5):
        let_pass(bench, 1)
        with bench.engine.database.begin() as connection:
            connection.execute(
                delete(executions).where(
                    executions.c.kind == Kind.TICK, executions.c.state == ExecutionState.COMPLETED
                )
            )
    assert bench.run_to_end(run) is RunState.COMPLETED
    assert (run.result(AT_ONCE), noted(bench)) == ([5, 5], [1, 2, 3, 4, 5])


def test_a_hundred_thousand_ticks_are_no_burden_to_the_next_one(bench: Workbench) -> None:
    """Finished ticks are not loaded."""
    run = Endless.start()
    bench.drain()
    let_pass(bench, 2)
    with bench.engine.database.begin() as connection:
        mold = dict(connection.execute(select(executions).where(executions.c.position == 1)).mappings().one())
        mold.pop("id", None)
        last = connection.execute(
            select(executions.c.position).order_by(executions.c.position.desc())
        ).first()
        assert last is not None
        connection.execute(
            update(executions).where(executions.c.position == last[0]).values(position=100_001)
        )
        for begin in range(3, 100_001, 5_000):
            end = min(begin + 5_000, 100_001)
            connection.execute(
                insert(executions), [{**mold, "position": at, "key": str(at)} for at in range(begin, end)]
            )
    with bench.engine.database.read() as connection:
        loaded = histories(connection, [run.id], [run.id])[run.id]
    assert [row.position for row in loaded] == [100_001]
    began_at = time.monotonic()
    let_pass(bench, 1)
    assert time.monotonic() - began_at < 2
    assert noted(bench) == [1, 2, 3]


def test_a_run_says_that_it_waits_for_a_tick(bench: Workbench) -> None:
    """And what went wrong with this one; earlier ones are past."""
    run = Failing.start()
    bench.drain()
    let_pass(bench, 1)
    assert "(the delay before a retry)" in run.explain()
    assert "has failed once, with OSError: down" in run.explain()
    bench.travel(timedelta(minutes=5))
    bench.drain()
    assert ticks(run) == ["1 retried", "1 failed", "2 scheduled"]
    assert "has failed" not in run.explain()
    run.cancel()
    run = Hourly.start()
    bench.drain()
    assert (
        "waits at step 'note' until 2026-03-01T14:05:00+00:00 (the next tick of its repetition)"
        in run.explain()
    )
    bench.travel(timedelta(days=2))
    bench.drain()
    assert ticks(run) == ["1 timed_out", "48 success", "49 scheduled"]
    assert run.steps[0].details["expired"] == 47  # type: ignore[index]  # it has some


def test_a_person_moves_one_tick_and_not_the_grid(bench: Workbench) -> None:
    """Ahead and back; the next one is at its own instant."""
    run = Hourly.start()
    bench.drain()
    run.reschedule(NOON + 0.25 * HOUR)
    bench.travel(0.25 * HOUR)
    bench.drain()
    assert (noted(bench), run.info().wake_at) == ([1], NOON + 2 * HOUR)
    run.reschedule(NOON + 4.5 * HOUR)
    bench.travel(4.25 * HOUR)
    bench.drain()
    # It comes although others are due by then; of those one is made up for.
    assert noted(bench) == [1, 2, 4]
    assert bench.run_to_end(run) is RunState.COMPLETED


def test_commands_between_two_ticks(bench: Workbench) -> None:
    """A pause keeps the instant, a skip leaves out one tick, a cancel closes what was announced."""
    run = Endless.start()
    bench.drain()
    run.pause()
    bench.travel(HOUR / 2)
    run.resume()
    bench.drain()
    assert run.info().wake_at == NOON + HOUR
    run.pause()
    bench.travel(HOUR)
    run.resume()
    bench.drain()
    assert (noted(bench), run.info().wake_at) == ([1], NOON + 2 * HOUR)
    run.skip()
    bench.drain()
    let_pass(bench, 2)
    assert noted(bench) == [1, 3]
    run.cancel()
    assert ticks(run) == ["1 success", "2 skipped", "3 success", "4 canceled"]


def test_a_rewind_begins_the_repetition_anew(bench: Workbench) -> None:
    """From its first tick on, one interval from then; what was written stays."""
    run = Hourly.start()
    bench.run_to_end(run)
    run = Hourly.start(most=99)
    bench.drain()
    let_pass(bench, 2)
    run.pause()
    run.resume(from_step="note")
    bench.drain()
    assert run.info().wake_at == bench.now + HOUR
    assert [row.key for row in run.steps if row.superseded_at is None and row.kind == Kind.TICK] == ["1"]


def test_a_long_tick_that_is_lost_is_known_to_whoever_goes_on(bench: Workbench) -> None:
    """What a heartbeat has shown of it, its progress too, hides neither its instant nor what came before."""
    shown: list[Body] = []

    class Long(Endless):
        workflow_name = "repeating.Long"

        def run(self) -> None:
            self.repeat(self.note, every=HOUR)

        def note(self, at: datetime) -> None:
            super().note(at)
            body = self._runtime._recorder.journal._lease.shown  # type: ignore[union-attr]
            shown.append(body.shown())

    run = Long.start()
    bench.drain()
    let_pass(bench, 1)
    bench.travel(HOUR)
    [claimed] = [bench._hands.claim_next()]
    assert claimed is not None
    row = shown[-1]
    with bench.engine.database.read() as connection:
        frontier = histories(connection, [run.id], [run.id])[run.id][-1]
    told = json.dumps({"progress": {"done": 1, "total": 2}})
    seen: Any = row
    values = {name: getattr(seen, name) for name in seen.__slots__}
    values |= {"position": frontier.position, "key": "2", "details": frontier.details}
    long_one = type(seen)(**values)
    with bench.engine.database.begin() as connection:
        show_body(connection, run.id, claimed.lease.token, long_one, "somebody", told)
    bench.engine.leases.remove(claimed.lease)
    bench.travel(HOUR / 30)
    assert run.steps[-1].details == {  # type: ignore[comparison-overlap]  # a dict
        "progress": {"done": 1, "total": 2},
        "tick": {
            "number": 2,
            "at": to_micros(NOON + 2 * HOUR),
            "anchor": to_micros(NOON),
            "since": to_micros(NOON),
            "done": 1,
        },
    }
    bench.drain()
    let_pass(bench, 1)
    assert noted(bench) == [1, 2, 3]
    assert ticks(run) == ["1 success", "2 lost", "2 success", "3 success", "4 scheduled"]
