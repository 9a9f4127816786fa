"""``run.skip()`` of a run that a failed step has stopped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import Workflow, step
from stepwell.states import RunState
from stepwell.testing import Workbench


class Delivery(Workflow):
    """Its first step always fails."""

    workflow_name = "skipping_in_run.Delivery"
    tries = 0

    def run(self) -> list[Any]:
        return [self.announce(), self.deliver()]

    @step
    def announce(self) -> str:
        type(self).tries += 1
        raise ConnectionError("no answer")

    @step
    def deliver(self) -> str:
        return "delivered"


@pytest.fixture
def bench() -> Any:
    """One that does not raise what its runs raise."""
    with Workbench(raise_errors=False) as bench:
        yield bench


def test_the_step_whose_error_has_left_run_is_left_out(bench: Workbench) -> None:
    """It is no longer raised at its call, which answers None."""
    run = Delivery.start()
    bench.drain()
    assert run.state is RunState.FAILED
    assert "at step 'announce'" in run.explain()
    run.skip(reason="told by phone")
    tries = Delivery.tries
    bench.drain()
    assert run.result(timeout=timedelta()) == [None, "delivered"]
    assert Delivery.tries == tries


def test_a_step_of_the_class_is_called_as_it_is() -> None:
    """``self.step("name", self.deliver)`` would be a step in a step."""

    class Doubled(Workflow):
        workflow_name = "skipping_in_run.Doubled"

        def run(self) -> None:
            self.step("deliver_it", self.deliver)

        @step
        def deliver(self) -> None: ...

    with Workbench() as bench:
        Doubled.start()
        with pytest.raises(TypeError, match="'deliver' is a step already"):
            bench.drain()
