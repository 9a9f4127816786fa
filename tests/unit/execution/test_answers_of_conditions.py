"""What conditions answer: what is neither true nor false is an error, and no wait is longer than it must be."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    AsyncWorkflow,
    Cancel,
    Child,
    Pause,
    Poll,
    Retry,
    Signal,
    Skip,
    StepFailed,
    WaitTimedOut,
    Workflow,
    cancel_if,
    step,
)
from stepwell.errors import HeroGone
from stepwell.policies import Policy
from stepwell.states import ExecutionState, Kind, Reason, RunState
from tests.unit.execution.memory import START, Hero, MemoryRun
from tests.unit.execution.procedures import driven, replayed

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


async def coroutine() -> bool:
    return False


def generator() -> Iterator[bool]:
    yield False


async def async_generator() -> Any:
    yield False


class Undecided:
    """Like the comparison of two columns: nobody can say whether it is true."""

    def __bool__(self) -> bool:
        raise TypeError("neither true nor false")


class Counting:
    """A condition that answers as it is told, the last answer for ever, and how often it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, workflow: Any = None) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def awake(run: MemoryRun) -> MemoryRun:
    """Look again: at a gate as somebody says so, else as its instant comes."""
    if run.wake_at is None:
        run.nudge()
    else:
        run.wake()
    return run


@contextmanager
def nothing_warned_of() -> Iterator[None]:
    """No coroutine is dropped before it was awaited or closed, not even where nobody can raise."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [str(each.message) for each in caught] == []


# -- in run() -------------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "wait_until": lambda self, condition: self.wait_until(condition),
    "continue_if": lambda self, condition: self.continue_if(condition),
    "repeat": lambda self, condition: self.repeat(len, every=HOUR, until=condition),
}
BY_CALL = pytest.mark.parametrize("call", CALLS)


class Asking(Workflow[None]):
    """Asks one condition in one of the ways that ``run()`` has."""

    condition: Any
    caught: type[Exception] | tuple[type[Exception], ...] = ()

    def run(self, call: str) -> str:
        try:
            CALLS[call](self, type(self).__dict__["condition"])
        except self.caught as error:
            return f"{type(error).__name__}: {error}"
        return "passed"


class AskingAsync(AsyncWorkflow[None]):
    """The same in a coroutine."""

    condition: Any
    caught: type[Exception] | tuple[type[Exception], ...] = ()

    async def run(self, call: str) -> str:
        try:
            await CALLS[call](self, type(self).__dict__["condition"])
        except self.caught as error:
            return f"{type(error).__name__}: {error}"
        return "passed"


BY_STYLE = pytest.mark.parametrize("style", [Asking, AskingAsync])


def asking(style: Any, condition: Any, *caught: type[Exception]) -> Any:
    facts = {"condition": condition, "caught": caught, "__module__": __name__}
    return type(style.__name__, (style,), {**facts, "workflow_name": "answers.Asks"})


@BY_CALL
@BY_STYLE
@pytest.mark.parametrize("condition", [coroutine, generator, async_generator])
def test_a_condition_that_is_no_plain_function_is_refused_at_the_call(
    call: str, style: Any, condition: Any
) -> None:
    """What it makes would always count as true: a TypeError says so, and nothing is journaled of the call."""
    with nothing_warned_of():
        run = driven(asking(style, condition, TypeError), call=call)
    assert run.state is RunState.COMPLETED, run.error_message
    assert run.result.startswith('"TypeError: ')
    assert "would always count as true" in run.result
    assert run.journal == []


@BY_CALL
@BY_STYLE
@pytest.mark.parametrize("made", [coroutine, generator])
def test_a_plain_function_that_answers_a_coroutine_does_not_pass(call: str, style: Any, made: Any) -> None:
    """It is an error of the call, the same on every replay; the coroutine is closed and nothing warns of it."""
    with nothing_warned_of():
        run = replayed(MemoryRun(asking(style, lambda: made(), StepFailed), args={"call": call})).drive()
    assert run.state is RunState.COMPLETED, run.error_message
    assert run.result.startswith('"StepFailed: ')
    assert f"a condition answered a {made.__name__}" in run.result
    assert not any(row.outcome is None for row in run.journal)


@BY_CALL
@BY_STYLE
def test_an_answer_without_a_truth_is_an_error_of_the_call(call: str, style: Any) -> None:
    """Caught it is an answer like any; not caught it fails the run, which is not taken up again and again."""
    run = driven(asking(style, lambda: Undecided(), StepFailed), call=call)
    assert "neither true nor false" in run.result
    run = driven(asking(style, lambda: Undecided()), call=call)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert (run.error_class, run.activations) == ("TypeError", 1)


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (Skip(TypeError), RunState.COMPLETED),
        (Pause(TypeError), RunState.PAUSED),
        (Cancel(TypeError), RunState.CANCELED),
    ],
)
@pytest.mark.parametrize("verb", ["wait_until", "continue_if"])
def test_policies_decide_about_an_answer_without_a_truth(verb: str, policy: Policy, state: RunState) -> None:
    """As about any other error of the condition."""

    class Waits(Workflow[None]):
        def run(self) -> None:
            getattr(self, verb)(lambda: Undecided(), on_exception=policy)

    assert driven(Waits).state is state


def test_a_retry_asks_again_for_an_answer_that_has_a_truth() -> None:
    """Its attempts are counted as for any other error."""
    condition = Counting(Undecided(), Undecided(), True)

    class Waits(Workflow[None]):
        def run(self) -> Any:
            return self.wait_until(lambda: condition(), on_exception=Retry(TypeError, attempts=3, wait=HOUR))

    run = driven(Waits)
    assert (run.result, condition.asked, run.clock.now()) == ("true", 3, START + 2 * HOUR)


@pytest.mark.parametrize("verb", ["wait_until", "continue_if"])
def test_a_step_is_no_condition(verb: str) -> None:
    """It would happen once and be looked at for ever: a TypeError names it before it has happened."""
    bodies: list[str] = []

    class Waits(Workflow[None]):
        def run(self) -> str:
            try:
                getattr(self, verb)(self.is_paid)
            except TypeError as error:
                return str(error)
            return "passed"

        @step
        def is_paid(self) -> bool:
            bodies.append("is_paid")
            return True

    run = driven(Waits)
    assert f"{verb}() looks at its condition again and again, and 'is_paid' is a step" in run.result
    assert (bodies, run.journal) == ([], [])


def test_an_instant_is_no_condition() -> None:
    """The message names the verb that takes one."""

    class Waits(Workflow[None]):
        def run(self) -> None:
            self.wait_until(datetime.max)  # type: ignore[arg-type]  # what is refused here

    run = driven(Waits)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert "self.sleep_until(" in (run.error_message or "")


# -- declared -------------------------------------------------------------------------------------------------------


def gated(condition: Any, **options: Any) -> Any:
    class Declared(Workflow[None]):
        @step(gate=lambda self: condition(), **options)
        def work(self) -> None:
            raise AssertionError("the condition has passed")

    return Declared


def polling(condition: Any, **options: Any) -> Any:
    class Declared(Workflow[None]):
        @step(wait_until=Poll(lambda self: condition(), every=HOUR), **options)
        def work(self) -> None:
            raise AssertionError("the condition has passed")

    return Declared


def skipping(condition: Any, **options: Any) -> Any:
    class Declared(Workflow[None]):
        @step(skip_if=lambda self: condition(), **options)
        def work(self) -> None:
            raise AssertionError("the condition has passed")

    return Declared


def skipping_a_wait(condition: Any, **options: Any) -> Any:
    class Declared(Workflow[None]):
        @step(skip_if=lambda self: condition(), gate=lambda self: True, **options)
        def work(self) -> None:
            raise AssertionError("the condition has passed")

    return Declared


def canceling(condition: Any, **options: Any) -> Any:
    class Declared(Workflow[None]):
        @cancel_if
        def called_off(self) -> Any:
            return condition()

        @step(**options)
        def work(self) -> None:
            raise AssertionError("the condition has passed")

    return Declared


def canceling_a_wait(condition: Any, **options: Any) -> Any:
    class Declared(Workflow[None]):
        @cancel_if
        def called_off(self) -> Any:
            return condition()

        @step(awaits="go", **options)
        def work(self) -> None:
            raise AssertionError("the condition has passed")

    return Declared


DECLARED = pytest.mark.parametrize(
    "make", [gated, polling, skipping, skipping_a_wait, canceling, canceling_a_wait]
)


@DECLARED
@pytest.mark.parametrize("made", [coroutine, generator])
def test_a_declared_condition_that_answers_a_coroutine_is_an_error_of_its_step(make: Any, made: Any) -> None:
    """The run fails by it: the step neither runs nor is skipped, and the run is not canceled."""
    with nothing_warned_of():
        run = driven(make(lambda: made()))
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert f"a condition answered a {made.__name__}" in (run.error_message or "")
    assert run.story == ["work failed"]


@DECLARED
def test_a_declared_answer_without_a_truth_is_an_error_of_its_step(make: Any) -> None:
    """The run fails by it, and does not stay where it was."""
    run = driven(make(lambda: Undecided()))
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert (run.error_class, run.error_message) == ("TypeError", "neither true nor false")
    assert run.story == ["work failed"]


@DECLARED
@pytest.mark.parametrize(
    ("policy", "state", "outcome"),
    [
        (Skip(TypeError), RunState.COMPLETED, "skipped"),
        (Pause(TypeError), RunState.PAUSED, "paused"),
        (Cancel(TypeError), RunState.CANCELED, "canceled"),
        (Retry(TypeError, attempts=2, wait=HOUR), RunState.FAILED, "failed"),
    ],
)
def test_policies_decide_about_a_declared_answer_without_a_truth(
    make: Any, policy: Policy, state: RunState, outcome: str
) -> None:
    """As about any other error of the step."""
    run = driven(make(lambda: Undecided(), on_exception=policy))
    assert run.state is state
    assert run.story[-1] == f"work {outcome}"


# -- a condition that raises until its deadline ---------------------------------------------------------------------

STUBBORN = Retry(OSError, attempts=100, wait=HOUR)
SHORTER, LONGER = timedelta(minutes=20), 5 * HOUR
EVERY = pytest.mark.parametrize("every", [SHORTER, LONGER])


@EVERY
@pytest.mark.parametrize("default", [{}, {"default": "expired"}])
def test_retries_of_a_condition_end_at_its_deadline(every: timedelta, default: dict[str, Any]) -> None:
    """The last look falls on it, and never later; then the wait has run out, whatever attempts are left."""
    looks: list[datetime] = []

    class Waits(Workflow[None]):
        def run(self) -> Any:
            timeout = timedelta(minutes=150)
            try:
                return self.wait_until(
                    self.ask, timeout=timeout, every=every, on_exception=STUBBORN, **default
                )
            except WaitTimedOut as error:
                return str(error)

        def ask(self) -> bool:
            looks.append(run.clock.now())
            raise OSError("down")

    run = MemoryRun(Waits)
    replayed(run).drive()
    assert run.clock.now() == START + timedelta(minutes=150)
    assert sorted(set(looks)) == [START, START + HOUR, START + 2 * HOUR, START + timedelta(minutes=150)]
    told = '"expired"' if default else "\"step 'ask': its condition did not hold within 2:30:00, and raised"
    assert run.result.startswith(told)


def test_a_wait_whose_condition_never_stops_raising_fails_the_run_as_timed_out() -> None:
    """Where nobody catches it."""

    class Waits(Workflow[None]):
        def run(self) -> None:
            self.wait_until(Counting(OSError()), timeout=90 * HOUR, on_exception=STUBBORN, name="down")

    run = driven(Waits)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert (run.error_class, run.clock.now()) == ("stepwell.errors.WaitTimedOut", START + 90 * HOUR)


def stubborn(error: type[Exception], every: timedelta, *first: Any, **default: Any) -> MemoryRun:
    """A declared step whose condition raises until its deadline, and is retried an hour later each time."""
    poll = Poll(Counting(*first, error("down")), every=every, timeout=timedelta(minutes=150), **default)

    class Waits(Workflow[None]):
        @step(wait_until=poll, on_exception=Retry(error, attempts=100, wait=HOUR))
        def work(self) -> None: ...

    return replayed(MemoryRun(Waits)).drive()


BY_FIRST = pytest.mark.parametrize("first", [[], [False]])


@EVERY
@BY_FIRST
def test_retries_of_a_declared_condition_end_at_its_deadline(every: timedelta, first: list[Any]) -> None:
    """Which counts from the first look, also if that one raised already; then it is an error of the step."""
    run = stubborn(ConnectionError, every, *first)
    assert run.clock.now() == START + timedelta(minutes=150)
    assert not any(row.outcome is None for row in run.journal)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == "stepwell.errors.WaitTimedOut"
    assert "and raised at the last look" in (run.error_message or "")


@EVERY
@BY_FIRST
def test_a_declared_condition_that_raises_until_its_deadline_has_its_default(
    every: timedelta, first: list[Any]
) -> None:
    """The step runs then, whatever attempts are left."""
    run = stubborn(OSError, every, *first, default=None)
    assert run.clock.now() == START + timedelta(minutes=150)
    assert not any(row.outcome is None for row in run.journal)
    assert run.is_over_as(RunState.COMPLETED)
    assert run.story[-1] == "work success"


# -- before it is waited ----------------------------------------------------------------------------------------------


class Other(Workflow[None]):
    """What a step awaits, and what is not to be started for nothing."""

    def run(self) -> None: ...


WAITS: dict[str, Any] = {
    "signal": lambda: {"awaits": Signal("go", timeout=DAY)},
    "gate": lambda: {"gate": lambda self: False},
    "poll": lambda: {"wait_until": Poll(lambda self: False, every=HOUR)},
    "child": lambda: {"awaits": Child(Other)},
}
BY_WAIT = pytest.mark.parametrize("wait", WAITS)


def left_out(wait: Any, condition: Any) -> Any:
    class Declared(Workflow[None]):
        @step(skip_if=condition, **wait)
        def work(self) -> None: ...

        @step
        def rest(self) -> None: ...

    return Declared


def called_off(wait: Any, condition: Any) -> Any:
    class Declared(Workflow[None]):
        @cancel_if
        def off(self) -> Any:
            return condition(self)

        @step(**wait)
        def work(self) -> None: ...

    return Declared


BY_WAY = pytest.mark.parametrize("make", [left_out, called_off])


@BY_WAIT
def test_a_step_that_is_left_out_is_not_waited_for(wait: str) -> None:
    """The run is not parked for it, a signal that is there stays unread, and no other run is started."""
    run = MemoryRun(left_out(WAITS[wait](), lambda self: True))
    run.signal("go")
    run.activate()
    assert run.state is RunState.COMPLETED
    assert run.story == ["work skipped", "rest success"]
    assert {row.kind for row in run.journal} == {Kind.STEP}
    assert (run.read, run.details) == (set(), '{"unread_signals": 1}')


@BY_WAIT
def test_a_run_that_is_called_off_does_not_wait(wait: str) -> None:
    """It is canceled at once, by the condition's name, and a signal that is there stays unread."""
    run = MemoryRun(called_off(WAITS[wait](), lambda self: True))
    run.signal("go")
    run.activate()
    assert run.is_over_as(RunState.CANCELED, "off")
    assert run.story == ["work canceled"]
    assert run.read == set()


@BY_WAY
@pytest.mark.parametrize("wait", ["signal", "gate", "poll"])
def test_what_is_there_already_costs_one_look_at_the_conditions(make: Any, wait: str) -> None:
    """They were looked at just before it, and are not looked at again for the attempt."""
    options = {
        "signal": {"awaits": "go"},
        "gate": {"gate": lambda self: True},
        "poll": {"wait_until": Poll(lambda self: True, every=HOUR)},
    }
    condition = Counting(False)
    run = MemoryRun(make(options[wait], condition))
    run.signal("go")
    run.activate()
    assert run.state is RunState.COMPLETED
    assert run.story[0] == "work success"
    # The step behind it in the one class has no condition of its own.
    assert condition.asked == 1


@BY_WAY
@pytest.mark.parametrize("wait", ["signal", "gate", "poll"])
def test_conditions_are_looked_at_again_when_the_wait_is_over(make: Any, wait: str) -> None:
    """What has become true meanwhile leaves the step out, or ends the run; the wait's row ends with it."""
    condition = Counting(False, True)
    run = MemoryRun(make(WAITS[wait](), condition))
    run.activate()
    assert run.state in (RunState.AWAITING, RunState.WAITING)
    if wait == "signal":
        run.signal("go")
    else:
        awake(run)
    run.drive()
    ended = ExecutionState.SKIPPED if make is left_out else ExecutionState.CANCELED
    assert run.state is (RunState.COMPLETED if make is left_out else RunState.CANCELED)
    assert [row.state for row in run.journal if row.name == "work"] == [ended, ended]
    assert (run.read, condition.asked) == (set(), 2)


def test_an_error_of_a_condition_before_the_wait_is_the_step_s() -> None:
    """Its policies decide, and the wait is not begun."""
    wait = {**WAITS["signal"](), "on_exception": Retry(OSError, attempts=2, wait=HOUR)}
    run = MemoryRun(left_out(wait, Counting(OSError())))
    run.activate()
    assert run.is_over_as(RunState.WAITING, Reason.RETRY)
    assert {row.kind for row in run.journal} == {Kind.STEP}
    run.drive()
    assert (run.state, run.error_class) == (RunState.FAILED, "OSError")
    assert {row.kind for row in run.journal} == {Kind.STEP}


# -- a hero that is gone ----------------------------------------------------------------------------------------------


def hero_gone(*of_step: Policy, of_class: tuple[Policy, ...] = ()) -> MemoryRun:
    """A run whose hero goes as its step begins."""

    class Greets(Workflow[Hero]):
        policies = list(of_class)

        @step(on_exception=list(of_step))
        def greet(self) -> None:
            assert run.hero is not None
            run.hero.is_gone = True
            self.hero.name

        @step
        def rest(self) -> None: ...

    run = MemoryRun(Greets, hero=Hero())
    return run.drive()


@pytest.mark.parametrize("where", ["step", "class"])
@pytest.mark.parametrize(
    ("policy", "state", "story"),
    [
        (Cancel(HeroGone), RunState.CANCELED, ["greet canceled"]),
        (Skip(HeroGone), RunState.COMPLETED, ["greet skipped", "rest success"]),
        (Pause(HeroGone), RunState.PAUSED, ["greet paused"]),
        (Cancel("stepwell.errors.HeroGone"), RunState.CANCELED, ["greet canceled"]),
    ],
)
def test_a_policy_that_names_a_gone_hero_is_followed(
    where: str, policy: Policy, state: RunState, story: list[str]
) -> None:
    """Its class foresees it: what is to be done then is said."""
    run = hero_gone(policy) if where == "step" else hero_gone(of_class=(policy,))
    assert run.state is state, run.error_message
    assert run.story == story


@pytest.mark.parametrize("where", ["step", "class"])
@pytest.mark.parametrize("policy", [Skip(), Retry(), Cancel(), Pause()])
def test_a_policy_for_anything_is_not_for_a_gone_hero(where: str, policy: Policy) -> None:
    """The record does not come back, and nobody has said that the run may go on without it."""
    run = hero_gone(policy) if where == "step" else hero_gone(of_class=(policy,))
    assert run.is_over_as(RunState.FAILED, Reason.HERO_GONE)
    assert run.story == ["greet failed"]
