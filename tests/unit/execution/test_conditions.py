"""Conditions: looked at before each attempt that will really run, and never instead of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Pause, Retry, Skip, Workflow, cancel_if, removed_step, step
from stepwell.states import Reason, RunState
from tests.unit.execution.memory import Hero, MemoryRun

HOUR = timedelta(hours=1)


def skipping(skip_if: Any, **options: Any) -> type[Workflow[None]]:
    """A workflow whose middle step is skipped if ``skip_if`` says so."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            self.context["insured"] = True

        @step(skip_if=skip_if, **options)
        def insure(self) -> None: ...

        @step
        def ship(self) -> None: ...

        def is_insured(self) -> bool:
            insured: bool = self.context["insured"]
            return insured

    return Order


@pytest.mark.parametrize(
    "skip_if", [True, "is_insured", lambda self: self.context["insured"], lambda self: 7]
)
def test_a_true_answer_skips_the_step(skip_if: Any) -> None:
    """A flag, a method's name or a function of the workflow: a true answer leaves the step as skipped."""
    run = MemoryRun(skipping(skip_if)).drive()

    assert run.story == ["pack success", "insure skipped", "ship success"]
    assert run.is_over_as(RunState.COMPLETED)


@pytest.mark.parametrize("skip_if", [False, lambda self: None, lambda self: "", lambda self: []])
def test_a_false_answer_runs_the_step(skip_if: Any) -> None:
    """Whatever Python takes for false."""
    run = MemoryRun(skipping(skip_if)).drive()

    assert run.story == ["pack success", "insure success", "ship success"]


class Cancelable(Workflow[None]):
    """Looks at a list of answers before each attempt, and can fail first."""

    @cancel_if
    def called_off(self) -> bool:
        answers: list[bool] = self.args["answers"].values
        self.args["asked"].values.append(len(answers))
        return answers.pop(0)

    @step(on_exception=Retry(wait=timedelta()))
    def pack(self) -> None:
        if self.args["errors"].values:
            raise self.args["errors"].values.pop()

    @step(wait=HOUR)
    def ship(self) -> None: ...


class Values:
    """A list that arguments hand on as it is."""

    def __deepcopy__(self, memo: object) -> Values:
        return self

    def __init__(self, *values: Any) -> None:
        self.values = list(values)


def cancelable(*answers: bool, errors: tuple[Exception, ...] = ()) -> MemoryRun:
    """A run that is canceled at the first true answer."""
    args = {"answers": Values(*answers), "errors": Values(*errors), "asked": Values()}
    return MemoryRun(Cancelable, args=args)


def test_a_condition_cancels_the_run_before_the_step() -> None:
    """The step that was to come is recorded as canceled, by the condition's name."""
    run = cancelable(False, True).drive()

    assert run.story == ["pack success", "ship canceled"]
    assert run.is_over_as(RunState.CANCELED, "called_off")
    assert run.identity_is_free


def test_conditions_are_looked_at_before_every_attempt() -> None:
    """Before each body, the repeated ones too; not before parking, and not again when everything is done."""
    run = cancelable(False, False, False, errors=(ValueError(),)).drive()

    assert run.story == ["pack retried", "pack success", "ship success"]
    assert run.args["asked"].values == [3, 2, 1]


def test_a_condition_before_a_retry_cancels_the_run() -> None:
    """What became true in between ends the run instead of the next attempt."""
    run = cancelable(False, True, errors=(ValueError(),)).drive()

    assert run.story == ["pack retried", "pack canceled"]
    assert run.is_over_as(RunState.CANCELED, "called_off")


def test_cancel_beats_skip() -> None:
    """A run that is to be canceled is canceled, also where its next step would be skipped."""

    class Order(Workflow[None]):
        @cancel_if
        def called_off(self) -> bool:
            return True

        @step(skip_if=True)
        def pack(self) -> None: ...

    assert MemoryRun(Order).drive().is_over_as(RunState.CANCELED, "called_off")


def test_conditions_of_base_classes_come_first() -> None:
    """All are looked at, the inherited ones first; the first true one gives the reason."""
    seen = []

    class Base(Workflow[None]):
        @cancel_if
        def inherited(self) -> bool:
            seen.append("inherited")
            return False

    class Order(Base):
        @cancel_if
        def own(self) -> bool:
            seen.append("own")
            return True

        @step
        def pack(self) -> None: ...

    assert MemoryRun(Order).drive().is_over_as(RunState.CANCELED, "own")
    assert seen == ["inherited", "own"]


def test_a_gravestone_asks_nobody() -> None:
    """No body will run there, so no condition is looked at."""
    asked = []

    class Order(Workflow[None]):
        @cancel_if
        def called_off(self) -> None:
            asked.append(1)

        removed_step("pack")

    run = MemoryRun(Order)
    run.current_step = "pack"
    run.drive()

    assert run.is_over_as(RunState.COMPLETED)
    assert asked == []


def raising(error: BaseException) -> Callable[[Any], bool]:
    """A condition that raises."""

    def condition(workflow: Any) -> bool:
        raise error

    return condition


@pytest.mark.parametrize(
    ("policy", "story", "state"),
    [
        ((), "insure failed", RunState.FAILED),
        (Skip(OSError), "insure skipped", RunState.COMPLETED),
        (Pause(OSError), "insure paused", RunState.PAUSED),
        (Retry(OSError, attempts=1, then="cancel"), "insure canceled", RunState.CANCELED),
    ],
)
def test_an_error_in_a_condition_is_an_error_of_the_step(policy: Any, story: str, state: RunState) -> None:
    """It goes through the step's policies, as if the body had raised."""
    run = MemoryRun(skipping(raising(OSError("down")), on_exception=policy)).drive()

    assert story in run.story
    assert run.state is state


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_no_error_in_a_condition_strands_a_run(error: BaseException) -> None:
    """Whatever a condition raises is journaled."""
    run = MemoryRun(skipping(raising(error))).drive()
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)


def test_an_error_in_cancel_if_is_an_error_of_the_step_that_was_to_come() -> None:
    """Its row says which step could not begin, and why."""

    class Order(Workflow[None]):
        @cancel_if
        def called_off(self) -> bool:
            raise ValueError("cannot say")

        @step
        def pack(self) -> None: ...

    run = MemoryRun(Order).drive()

    assert run.story == ["pack failed"]
    assert run.error_message == "cannot say"


def test_a_condition_may_say_a_verb() -> None:
    """Control flow works in conditions too: the step is then what was said."""

    class Order(Workflow[None]):
        @cancel_if
        def called_off(self) -> bool:
            self.pause("ask the customer")

        @step
        def pack(self) -> None: ...

    assert MemoryRun(Order).drive().is_over_as(RunState.PAUSED, "ask the customer")


def test_a_condition_that_writes_is_refused() -> None:
    """Conditions are looked at and not journaled, so what they write would be anybody's: the step fails."""

    def writing(workflow: Any) -> bool:
        workflow.session.append("written")
        return False

    run = MemoryRun(skipping(writing)).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert "a condition of step 'insure' changed a record" in str(run.error_message)
    assert run.ledger == []


def test_a_condition_sees_the_hero() -> None:
    """``self.hero`` is the record as it is now."""

    class Onboarding(Workflow[Hero]):
        @cancel_if
        def left(self) -> bool:
            return self.hero.name == "gone"

        @step
        def welcome(self) -> None: ...

    assert MemoryRun(Onboarding, hero=Hero("gone")).drive().is_over_as(RunState.CANCELED, "left")
    assert MemoryRun(Onboarding, hero=Hero()).drive().is_over_as(RunState.COMPLETED)


def test_a_hero_that_is_gone_fails_the_run_with_that_reason() -> None:
    """Found missing by a condition or by a body, no policy absorbs it: the run stands as ``hero_gone``."""

    class Onboarding(Workflow[Hero]):
        @step(on_exception=Retry(attempts=50, wait=timedelta()))
        def welcome(self) -> None:
            self.hero.name

    run = MemoryRun(Onboarding, hero=Hero(is_gone=True)).drive()

    assert run.is_over_as(RunState.FAILED, Reason.HERO_GONE)
    assert run.story == ["welcome failed"]
