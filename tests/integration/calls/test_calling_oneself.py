"""Runs that call a run of their own identity: they are told so, and nothing waits for itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import RunError, StepFailed, Workflow, step
from stepwell.states import Reason, RunState
from stepwell.testing import Workbench

HOUR = timedelta(hours=1)
AT_ONCE = timedelta()
MODES: list[Any] = ["skip", "replace"]


class Again(Workflow):
    """Calls the run of its own order, which is itself."""

    workflow_name = "oneself.Again"
    unique_by = "order"

    def run(self, order: str, mode: str) -> Any:
        return self.call(Again.with_options(on_conflict=mode), order, mode)  # type: ignore[arg-type]  # a parameter


class Careful(Workflow):
    """The same, and makes something of the error."""

    workflow_name = "oneself.Careful"
    unique_by = "order"

    def run(self, order: str, mode: str) -> Any:
        try:
            self.call(Careful.with_options(on_conflict=mode), order, mode)  # type: ignore[arg-type]  # a parameter
        except StepFailed as error:
            told = [error.error_class, error.message]
        self.note()
        self.sleep(HOUR)
        return told

    @step
    def note(self) -> None: ...


class Other(Workflow):
    """Calls a run of its class with other arguments, down to the last."""

    workflow_name = "oneself.Other"
    unique_by = "number"

    def run(self, number: int) -> int:
        return 0 if number == 0 else 1 + int(self.call(Other.with_options(on_conflict="replace"), number - 1))


@pytest.mark.parametrize("mode", MODES)
def test_a_call_of_oneself_fails_the_run_and_says_so(mode: str, bench: Workbench) -> None:
    """It would wait for ever, or be replaced by what it has called: neither happens."""
    run = Again.start("7", mode)
    bench.drain()
    row = run.info()
    assert (row.state, row.stop_request) == (RunState.FAILED, None)
    assert row.error_message is not None
    assert row.error_message.endswith(
        f"run {run.id} is called by itself, directly or through others, and would wait for ever: "
        "call it with other arguments, or begin anew with self.start_over(...)."
    )
    assert bench.engine.runs().count() == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_call_of_oneself_is_caught_like_any_that_fails(mode: str, bench: Workbench) -> None:
    """``run()`` goes on behind it, on each replay alike."""
    run = Careful.start("7", mode)
    bench.drain()
    assert run.state is RunState.WAITING
    bench.travel(HOUR)
    bench.drain()
    assert run.result(AT_ONCE) == [
        "stepwell.errors.RunError",
        f"run {run.id} is called by itself, directly or through others, and would wait for ever: call it with other "
        "arguments, or begin anew with self.start_over(...).",
    ]
    assert bench.engine.runs().count() == 1


def test_a_call_of_oneself_that_is_rejected_is_one_of_a_run_that_exists(bench: Workbench) -> None:
    """As of any other run that is there."""
    run = Careful.start("7", "reject")
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    told, message = run.result(AT_ONCE)
    assert told == "stepwell.errors.RunAlreadyExists"
    assert str(run.id) in message
    assert bench.engine.runs().count() == 1


def test_a_call_of_oneself_is_made_again_by_resume(bench: Workbench) -> None:
    """And fails again, as long as the code is what it is."""
    run = Again.start("7", "replace")
    bench.drain()
    run.resume()
    bench.drain()
    assert (run.state, run.reason) == (RunState.FAILED, Reason.STEP_FAILED)
    assert "is called by itself" in (run.info().error_message or "")
    assert bench.engine.runs().count() == 1


def test_a_run_of_the_same_class_may_be_called(bench: Workbench) -> None:
    """With other arguments it is another run."""
    run = Other.start(3)
    bench.drain()
    assert run.result(AT_ONCE) == 3
    assert bench.engine.runs().count() == 4


def test_outside_of_a_run_its_identity_is_taken_as_before(bench: Workbench) -> None:
    """Only a run that calls itself is told so."""

    class Waits(Workflow):
        workflow_name = "oneself.Waits"
        unique_by = "order"

        def run(self, order: str) -> Any:
            return self.wait_for_signal("go")

    run = Waits.start("7")
    bench.drain()
    assert Waits.with_options(on_conflict="skip").start("7") == run
    other = Waits.with_options(on_conflict="replace").start("7")
    assert other != run
    assert run.state is RunState.CANCELED


def test_the_error_is_one_of_the_run(bench: Workbench) -> None:
    """And no error of the store, which would be tried again."""
    run = Again.start("7", "skip")
    bench.drain()
    with pytest.raises(RunError, match="is called by itself"):
        run.result(AT_ONCE)


class There(Workflow):
    """Calls the one that calls it back."""

    workflow_name = "oneself.There"
    unique_by = "order"

    def run(self, order: str, mode: str) -> Any:
        return self.call(Back.with_options(on_conflict=mode), order, mode)  # type: ignore[arg-type]  # a parameter


class Back(Workflow):
    """Calls the one that has called it."""

    workflow_name = "oneself.Back"
    unique_by = "order"

    def run(self, order: str, mode: str) -> Any:
        return self.call(There.with_options(on_conflict=mode), order, mode)  # type: ignore[arg-type]  # a parameter


@pytest.mark.parametrize("mode", MODES)
def test_nor_does_a_run_wait_for_itself_through_others(mode: str, bench: Workbench) -> None:
    """The second call is the one that is told."""
    run = There.start("7", mode)
    bench.drain()
    assert run.state is RunState.FAILED
    (other,) = bench.engine.runs(Back).all()
    assert other.state is RunState.FAILED
    assert f"run {run.id} is called by itself" in (other.info().error_message or "")
    assert bench.engine.runs().count() == 2
