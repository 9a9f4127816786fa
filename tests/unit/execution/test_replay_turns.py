"""When a run with ``run()`` lets others have the thread."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stepwell import Workflow, step
from stepwell.clock import ManualClock
from tests.unit.execution.memory import START, MemoryRun


class Long(Workflow):
    """Ten steps of one second; the way back to one takes as long as the test says."""

    workflow_name = "replay_turns.Long"
    clock = ManualClock(START)
    replay_takes = timedelta()

    def run(self) -> None:
        self.clock.travel(self.replay_takes)
        for number in range(10):
            self.work(number)

    @step
    def work(self, number: int) -> None:
        self.clock.travel(timedelta(seconds=1))


@pytest.mark.parametrize(("replay_takes", "activations"), [(0.0, 10), (0.3, 4), (60.0, 1)])
def test_a_replay_is_worth_some_steps(replay_takes: float, activations: int) -> None:
    """Others wait all the time; ten times as long as the replay took, the run goes on all the same."""
    Long.clock, Long.replay_takes = ManualClock(START), timedelta(seconds=replay_takes)
    run = MemoryRun(Long, clock=Long.clock)
    run.should_yield = lambda: True
    run.drive()
    assert run.state == "completed"
    assert run.activations == activations


def test_a_worker_that_drains_waits_for_no_replay_to_pay() -> None:
    """It gives the run back at the next boundary."""
    Long.clock, Long.replay_takes = ManualClock(START), timedelta(hours=1)
    run = MemoryRun(Long, clock=Long.clock)
    run.at_boundary = lambda moment: setattr(run, "is_draining", run.writes == 3)
    run.drive()
    assert run.activations > 1
