"""A test hears of a run() that goes on although its activation has ended."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stepwell import Workflow
from stepwell.testing import Workbench


class Swallowing(Workflow):
    def run(self) -> str:
        try:
            self.sleep(timedelta(hours=1))
        except BaseException:
            return "went on"
        return "slept"


def test_a_run_that_swallows_its_end_fails_the_test(stepwell: Workbench) -> None:
    """In production it is a warning; on the bench it is an error that names the line."""
    Swallowing.start()
    with pytest.raises(AssertionError, match=r"test_swallowing\.py"):
        stepwell.drain()


def test_its_end_stands_all_the_same(stepwell: Workbench) -> None:
    """What was decided is durable; what ``run()`` makes of it counts for nothing."""
    stepwell.raise_errors = False
    run = Swallowing.start()
    stepwell.drain()
    stepwell.assert_state(run, "waiting", reason="timer")
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == "slept"
