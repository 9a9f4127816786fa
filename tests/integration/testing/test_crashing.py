"""Workers die where the test says, and leave behind what a killed process leaves behind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import Observer, RunState, Stepwell, Workflow, resumable_step
from stepwell.states import Kind, Outcome
from stepwell.testing import CrashPoint, Workbench
from tests.integration.testing.examples import Charge, Import, Month, lines, open_ledger

AT_CHECKPOINTS = {CrashPoint.BEFORE_CHECKPOINT, CrashPoint.AFTER_CHECKPOINT}
AT_STEPS = [point for point in CrashPoint if point not in AT_CHECKPOINTS]
PLACES = [
    (point, step)
    for point in AT_STEPS
    for step in ("prepare", "pay", "thank")
    # The run is given back where it waits, and at its end.
    if "settle" not in point or step == "thank"
]


@pytest.fixture
def charge(bench: Workbench) -> type[Charge]:
    """A workflow that writes through its session and calls a service that is well."""
    open_ledger(bench)
    Charge.calls = []
    Charge.charge = lambda name: None
    return Charge


@pytest.mark.parametrize(("point", "step"), PLACES)
def test_wherever_a_worker_dies_the_run_comes_to_the_same_end(
    charge: Any, bench: Workbench, point: CrashPoint, step: str
) -> None:
    """Another worker goes on from what is recorded: each step succeeds once, each line is written once."""
    run = charge.start(name="Ada")
    with bench.crash_at(point, step=step):
        bench.run_to_end(run)
    assert bench.run_to_end(run) is RunState.COMPLETED
    bench.assert_steps(run, "prepare", "pay", "thank")
    assert lines(bench) == ["prepared Ada", "paid Ada", "thanked Ada"]


@pytest.mark.parametrize(
    ("point", "calls"), [("before_step", 1), ("after_body", 2), ("before_commit", 2), ("after_commit", 1)]
)
def test_the_outside_sees_a_step_again_exactly_if_it_was_not_recorded(
    charge: Any, bench: Workbench, point: str, calls: int
) -> None:
    """A worker that dies between a call and its record leaves a call that is made again, with the same key."""
    run = charge.start(name="Ada")
    with bench.crash_at(point, step="pay"):
        bench.run_to_end(run)
    bench.run_to_end(run)
    assert charge.calls == [f"{run.id}:pay"] * calls


def test_a_dead_worker_leaves_its_lease_behind(bench: Workbench) -> None:
    """The run is taken over when the lease has run out, and not before; the loss is in its journal."""
    run = Month.start()
    with bench.crash_at("before_step"):
        bench.drain()
    bench.assert_state(run, "running")
    assert bench.drain() == 0
    bench.travel(bench.engine.lease - timedelta(microseconds=1))
    assert bench.drain() == 0
    bench.travel(timedelta(microseconds=1))
    bench.drain()
    bench.assert_state(run, "waiting", reason="recovering")
    assert [(row.kind, row.outcome) for row in run.steps] == [(Kind.RECOVERY, Outcome.LOST)]
    bench.travel(timedelta(seconds=1))
    bench.drain()
    bench.assert_steps(run, "one")


def test_the_block_ends_where_the_worker_dies(stepwell: Workbench) -> None:
    """What stands behind the call that the worker died in is not done."""
    Month.start()
    after = []
    with stepwell.crash_at("after_commit"):
        stepwell.drain()
        after.append("drained")
    assert after == []


@pytest.mark.parametrize("point", AT_STEPS)
def test_only_the_run_in_hand_is_lost(stepwell: Workbench, point: CrashPoint) -> None:
    """A worker dies at one run: others are free at once."""
    first, second = Month.start(), Month.start()
    with stepwell.crash_at(point):
        stepwell.drain()
    assert stepwell.drain() == 1
    stepwell.assert_steps(second, "one")
    assert first.state in (RunState.RUNNING, RunState.WAITING)


def test_a_place_that_no_worker_comes_to_is_an_error(stepwell: Workbench) -> None:
    """A test that believes to have crashed a worker, and has not, fails."""
    run = Month.start()
    with pytest.raises(AssertionError, match="no worker has died at after_body of step 'eleven'; visits: 0"):
        with stepwell.crash_at("after_body", step="eleven"):
            stepwell.run_to_end(run)
    stepwell.assert_state(run, "completed")


def test_a_trap_is_gone_after_its_block(stepwell: Workbench) -> None:
    """Whether it has sprung or the block raised: what follows is driven by a healthy worker."""
    run = Month.start()
    with pytest.raises(ZeroDivisionError):
        with stepwell.crash_at("before_step"):
            1 / 0
    stepwell.drain()
    stepwell.assert_steps(run, "one")


def test_traps_are_named_and_single(stepwell: Workbench) -> None:
    """An unknown place, the zeroth time, and a trap within a trap are refused."""
    with pytest.raises(ValueError, match="during_lunch"):
        with stepwell.crash_at("during_lunch"):
            pass
    with pytest.raises(ValueError, match="counts from 1"):
        with stepwell.crash_at("before_step", nth=0):
            pass
    Month.start()
    with stepwell.crash_at("before_step"):
        with pytest.raises(RuntimeError, match="a worker dies once"):
            with stepwell.crash_at("after_body"):
                pass
        stepwell.drain()


@pytest.mark.parametrize("point", sorted(AT_CHECKPOINTS))
def test_a_resumable_step_goes_on_from_its_last_checkpoint(bench: Workbench, point: str) -> None:
    """A worker that dies around the third checkpoint costs at most the item that was in hand; no line is doubled."""
    open_ledger(bench)
    run = Import.start(count=5)
    with bench.crash_at(point, nth=3):
        bench.run_to_end(run)
    written = 2 if point == "before_checkpoint" else 3
    assert lines(bench) == [f"row {number}" for number in range(written)]
    bench.assert_cursor(run, written)
    assert bench.run_to_end(run) is RunState.COMPLETED
    assert lines(bench) == [f"row {number}" for number in range(5)]


def test_a_body_that_catches_everything_is_dead_all_the_same(stepwell: Workbench) -> None:
    """What an author's ``except BaseException`` makes of it: a dead worker writes nothing more."""

    class Clinging(Workflow):
        @resumable_step
        def items(self) -> None:
            for number in range(3):
                try:
                    self.cursor.set(number)
                except BaseException:
                    continue

    run = Clinging.start()
    with stepwell.crash_at("after_checkpoint"):
        stepwell.drain()
    stepwell.assert_state(run, "running")
    stepwell.assert_cursor(run, 0)


def test_observers_hear_of_nothing_that_a_dead_worker_did_not_write(sqlite_url: str) -> None:
    """Before the commit nobody has heard of the step; after it, everybody has."""

    class Heard(Observer):
        def __init__(self) -> None:
            self.steps: list[str | None] = []

        def observe(self, event: Any) -> None:
            if event.kind == "step":
                self.steps.append(event.step)

    heard = Heard()
    well = Stepwell(sqlite_url, observers=[heard], default=False)
    with Workbench(well) as bench:
        Month.start()
        with bench.crash_at("before_commit"):
            bench.drain()
        assert heard.steps == []
        Month.start()
        with bench.crash_at("after_commit"):
            bench.drain()
        assert heard.steps == ["one"]
    well.close()
