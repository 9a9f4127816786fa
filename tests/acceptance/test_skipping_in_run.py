"""``run.skip()`` of a run that a failed step has stopped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import ResumeRefused, StepFailed, Workflow, step
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


class Trip(Workflow):
    """Books two things, and undoes the first if the second fails."""

    workflow_name = "skipping_in_run.Trip"
    is_full = True

    def run(self) -> str:
        try:
            self.book("hotel")
            self.book("flight")
        except StepFailed:
            self.undo("hotel")
            raise
        return "booked"

    @step(key_by="what")
    def book(self, what: str) -> str:
        if what == "flight" and type(self).is_full:
            raise LookupError("no seat")
        return what

    @step(key_by="what")
    def undo(self, what: str) -> None: ...


def test_a_failure_after_which_run_has_gone_on_is_not_taken_back_alone(bench: Workbench) -> None:
    """The hotel is given back: a trip that is resumed at the flight would end as booked, without it."""
    run = Trip.start()
    bench.drain()
    assert run.current_step == "book"
    for command in (run.resume, run.skip):
        with pytest.raises(ResumeRefused, match=r"after 'book' had failed, run\(\) called undo") as refused:
            command()
        assert (refused.value.step, refused.value.later) == ("book", ("undo",))
    assert "; run.resume(from_step='book') makes that call and all that came after it anew." in run.explain()
    assert bench.engine.runs(Trip).resume() == 0
    assert run.state is RunState.FAILED

    Trip.is_full = False
    run.resume(from_step="book")
    bench.drain()
    assert run.result(timeout=timedelta()) == "booked"
    done = [(row.name, row.key) for row in run.steps if row.kind == "step" and not row.superseded_at]
    assert done == [("book", '"hotel"'), ("book", '"flight"')]


class Broken(Workflow):
    """Fails by itself, behind its step."""

    workflow_name = "skipping_in_run.Broken"

    def run(self) -> None:
        self.prepare()
        raise KeyError("bug")

    @step
    def prepare(self) -> None: ...


def test_a_run_that_fails_by_itself_stands_at_no_step(bench: Workbench) -> None:
    """There is nothing to be left out."""
    run = Broken.start()
    bench.drain()
    assert (run.state, run.current_step) == (RunState.FAILED, None)
    assert "; run.resume() tries again." in run.explain()
    assert run.skip() == "unchanged"
    assert bench.drain() == 0


class Mended(Workflow):
    """Has a bug in what it does about a failure, behind a call."""

    workflow_name = "skipping_in_run.Mended"
    has_bug = True
    done: list[str] = []

    def run(self) -> str:
        try:
            self.charge()
        except StepFailed:
            self.give_back()
            if type(self).has_bug:
                raise KeyError("a bug")  # noqa: B904 - as a bug does it
        return "unpaid"

    @step
    def charge(self) -> None:
        type(self).done.append("charge")
        raise ValueError("declined")

    @step
    def give_back(self) -> None:
        type(self).done.append("give_back")


def test_a_bug_in_a_handler_is_the_bodys_own(bench: Workbench) -> None:
    """run() has dealt with the failure: mended, it goes on behind what it has called since."""
    run = Mended.start()
    bench.drain()
    assert (run.state, run.info().error_class) == (RunState.FAILED, "KeyError")
    Mended.has_bug = False
    run.resume()
    bench.drain()
    assert run.result(timeout=timedelta()) == "unpaid"
    assert Mended.done == ["charge", "give_back"]
