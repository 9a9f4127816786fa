"""Errors under ``run()``: of its steps, which it can catch, and of its own body, which the class's policies judge."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Backoff,
    Cancel,
    DeadlineExceeded,
    Fail,
    Pause,
    Retry,
    Skip,
    StepFailed,
    StepTimedOut,
    Workflow,
    handles,
    resumable_step,
    step,
)
from stepwell.states import Kind, Outcome, Reason, RunState
from tests.unit.execution.memory import MemoryRun, crash_at
from tests.unit.execution.procedures import crashed_everywhere, driven, replayed

HOUR = timedelta(hours=1)


class Declined(Exception):
    """A payment was refused."""


class CardDeclined(Declined):
    """By the card's bank."""


# -- failed steps ---------------------------------------------------------------------------------------------------


def paying(seen: list[StepFailed], bodies: list[str]) -> type[Workflow[None]]:
    class Pay(Workflow[None]):
        def run(self) -> str:
            try:
                self.charge("A")
            except StepFailed as failure:
                seen.append(failure)
                self.refund()
                return "refunded"
            return "charged"

        @step(key_by="item")
        def charge(self, item: str) -> None:
            bodies.append("charge")
            self.session.append("charge")
            raise CardDeclined("no money")

        @step
        def refund(self) -> None:
            bodies.append("refund")
            self.session.append("refund")

    return Pay


def test_a_failed_step_is_caught_and_compensated_on_every_pass_alike() -> None:
    """What it wrote is undone; the failure is recorded, and no replay runs it again."""
    seen: list[StepFailed] = []
    bodies: list[str] = []
    run = replayed(MemoryRun(paying(seen, bodies))).drive()
    assert (run.state, run.result) == (RunState.COMPLETED, '"refunded"')
    assert run.story == ["charge failed", "refund success"]
    assert (bodies, run.ledger) == (["charge", "refund"], ["refund"])
    assert len(seen) == 2
    assert len({(str(each), each.step, each.error_class, each.message) for each in seen}) == 1


def test_a_failure_says_what_it_came_from() -> None:
    """The step with its key, the error's class and text; the error itself on the first pass only."""
    seen: list[StepFailed] = []
    run = MemoryRun(paying(seen, []))
    crash_at(run, 1, "before")
    run.drive()
    first, replay = seen
    for failure in seen:
        assert failure.step == 'charge["A"]'
        assert failure.message == "no money"
        assert failure.caused_by(CardDeclined)
        assert failure.caused_by(Declined)
        assert failure.caused_by(failure.error_class)
        assert not failure.caused_by(KeyError)
        assert 'step charge["A"] failed with' in str(failure)
    assert isinstance(first.__cause__, CardDeclined)
    assert replay.__cause__ is None


def test_a_failure_that_nobody_catches_fails_the_run() -> None:
    """It is resumed at exactly that call; what was done before it is not done again."""
    bodies: list[str] = []
    is_broken = [True]

    class Pay(Workflow[None]):
        def run(self) -> str:
            self.first()
            return self.charge()

        @step
        def first(self) -> None:
            bodies.append("first")

        @step
        def charge(self) -> str:
            bodies.append("charge")
            if is_broken:
                raise Declined("no money")
            return "charged"

    run = driven(Pay)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert (run.error_class, run.error_message) == (f"{__name__}.Declined", "no money")
    assert [row.kind for row in run.journal] == [Kind.STEP, Kind.STEP, Kind.BODY]
    is_broken.clear()
    run.resume()
    run.drive()
    assert (run.state, run.result) == (RunState.COMPLETED, '"charged"')
    assert bodies == ["first", "charge", "charge"]


def test_a_recorded_error_is_not_retried_as_the_bodys_own() -> None:
    """It would be raised again: the class's policies are for errors that another pass may not have."""
    passes: list[int] = []

    class Pay(Workflow[None]):
        policies = [Retry(attempts=5, wait=HOUR)]

        def run(self) -> None:
            passes.append(1)
            self.charge()

        @step(on_exception=Fail(Declined))
        def charge(self) -> None:
            raise Declined

    run = driven(Pay)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert (passes, run.story) == ([1], ["charge failed"])


def test_another_error_raised_from_a_recorded_one_is_recorded_too() -> None:
    """``raise OrderLost from failure`` comes again at each pass; ``resume()`` tries the step."""
    is_broken = [True]

    class Pay(Workflow[None]):
        policies = [Retry(attempts=5, wait=HOUR)]

        def run(self) -> str:
            try:
                self.charge()
            except StepFailed as failure:
                raise LookupError("order lost") from failure
            return "charged"

        @step(on_exception=Fail(Declined))
        def charge(self) -> None:
            if is_broken:
                raise Declined

    run = driven(Pay)
    assert run.state is RunState.FAILED
    assert (run.error_class, run.activations) == ("LookupError", 1)
    is_broken.clear()
    run.resume()
    assert run.drive().result == '"charged"'


def test_a_failure_after_a_compensation_is_the_compensations() -> None:
    """What escapes is the last error: that row is tried again, and the first failure stays recorded."""
    is_broken = [True]
    bodies: list[str] = []

    class Pay(Workflow[None]):
        def run(self) -> str:
            try:
                self.charge()
            except StepFailed:
                self.refund()
            return "refunded"

        @step
        def charge(self) -> None:
            bodies.append("charge")
            raise Declined

        @step
        def refund(self) -> None:
            bodies.append("refund")
            if is_broken:
                raise OSError

    run = driven(Pay)
    assert run.state is RunState.FAILED
    is_broken.clear()
    run.resume()
    run.drive()
    assert (run.result, bodies) == ('"refunded"', ["charge", "refund", "refund"])


def test_a_failure_that_was_caught_leaves_nothing_behind() -> None:
    """A run that ends well has no error, and a later failure has no cause of an earlier one."""
    causes: list[Any] = []

    class Twice(Workflow[None]):
        def run(self) -> None:
            for error in ("first", "second"):
                try:
                    self.bad(error)
                except StepFailed as failure:
                    causes.append(failure.__cause__)

        @step
        def bad(self, error: str) -> None:
            raise OSError(error)

    run = MemoryRun(Twice)
    activated = run.activate()
    assert activated is not None
    assert (activated.state, activated.error) == (RunState.COMPLETED, None)
    assert [str(cause) for cause in causes] == ["first", "second"]


# -- policies of steps ----------------------------------------------------------------------------------------------


def failing(
    times: int, policy: Any, error: type[Exception] = OSError
) -> tuple[type[Workflow[None]], list[int]]:
    """A class whose step fails so many times; its attempts, as they are made."""
    bodies: list[int] = []

    class Flaky(Workflow[None]):
        def run(self) -> str:
            self.before()
            try:
                return f"answer {self.flaky()}"
            except StepFailed as failure:
                return failure.error_class

        @step
        def before(self) -> None: ...

        @step(on_exception=policy)
        def flaky(self) -> int:
            bodies.append(1)
            if len(bodies) <= times:
                raise error
            return len(bodies)

    return Flaky, bodies


@pytest.mark.parametrize("wait", [timedelta(), HOUR])
def test_retries_are_counted_across_activations(wait: timedelta) -> None:
    """With a delay the run parks, without one it goes on; the count is the journal's."""
    for times, result in [(2, '"answer 3"'), (3, '"OSError"'), (9, '"OSError"')]:
        workflow, bodies = failing(times, Retry(OSError, attempts=3, wait=wait))
        run = replayed(MemoryRun(workflow)).drive()
        assert (run.result, len(bodies)) == (result, 3)
        assert [row.attempt for row in run.journal if row.kind is Kind.STEP][1:] == [1, 2, 3]


def test_a_retry_waits_for_its_delay() -> None:
    """The run is parked until then, and woken early it waits on."""
    workflow, bodies = failing(1, Retry(OSError, attempts=3, wait=HOUR))
    run = MemoryRun(workflow)
    run.activate()
    assert run.is_over_as(RunState.WAITING, Reason.RETRY)
    assert run.waits == HOUR
    run.pause()
    run.resume()
    run.activate()
    assert run.is_over_as(RunState.WAITING, Reason.RETRY)
    assert (run.waits, len(bodies)) == (HOUR, 1)
    assert run.drive().result == '"answer 2"'


def test_a_resume_gives_all_attempts_again() -> None:
    """After a pause by the policy, as a person wants it."""
    workflow, bodies = failing(4, Retry(OSError, attempts=3, wait=HOUR, then="pause"))
    run = driven(workflow)
    assert (run.state, len(bodies)) == (RunState.PAUSED, 3)
    run.resume()
    run.drive()
    assert (run.result, len(bodies)) == ('"answer 5"', 5)


def test_each_call_has_its_own_count() -> None:
    """What was tried for one item is no attempt for the next."""
    bodies: list[str] = []

    class Each(Workflow[None]):
        def run(self) -> None:
            for item in "AB":
                self.ship(item)

        @step(key_by="item", on_exception=Retry(OSError, attempts=2, wait=timedelta()))
        def ship(self, item: str) -> None:
            bodies.append(item)
            if bodies.count(item) == 1:
                raise OSError

    run = driven(Each)
    assert (run.state, bodies) == (RunState.COMPLETED, ["A", "A", "B", "B"])


def test_a_step_that_asks_for_another_attempt_gets_it() -> None:
    """``self.retry()``, at once or later; the hundredth in a row is one too many."""
    bodies: list[int] = []

    class Again(Workflow[None]):
        def run(self) -> str:
            try:
                self.again()
            except StepFailed as failure:
                return failure.message
            return "done"

        @step
        def again(self) -> None:
            bodies.append(1)
            self.retry(HOUR if len(bodies) % 2 else None)

    run = MemoryRun(Again).drive()
    assert "99 times in a row" in run.result or "100 times in a row" in run.result
    assert len(bodies) == 100


def test_skip_answers_none() -> None:
    """On every pass."""
    workflow, bodies = failing(9, Skip(OSError))
    run = replayed(MemoryRun(workflow)).drive()
    assert (run.result, run.story, len(bodies)) == ('"answer None"', ["before success", "flaky skipped"], 1)


def test_pause_stops_the_run_and_a_resume_runs_the_step_again() -> None:
    """What was done before is not done again."""
    workflow, bodies = failing(1, Pause(OSError))
    run = driven(workflow)
    assert run.state is RunState.PAUSED
    run.resume()
    run.drive()
    assert (run.result, len(bodies)) == ('"answer 2"', 2)
    assert run.story == ["before success", "flaky paused", "flaky success"]


def test_cancel_ends_the_run_though_run_catches_everything() -> None:
    """No ``except`` of ``run()`` brings it back."""

    class Catching(Workflow[None]):
        def run(self) -> str:
            try:
                self.bad()
            except BaseException:
                self.other()
                raise
            return "went on"

        @step(on_exception=Cancel(OSError))
        def bad(self) -> None:
            raise OSError("gone")

        @step
        def other(self) -> None: ...

    run = driven(Catching)
    assert (run.state, run.story) == (RunState.CANCELED, ["bad canceled"])


@pytest.mark.parametrize(
    ("verb", "state", "result"),
    [
        (lambda self: self.skip(), RunState.COMPLETED, '"answer None"'),
        (lambda self: self.retry(), RunState.COMPLETED, '"answer 3"'),
        (lambda self: self.retry(HOUR), RunState.COMPLETED, '"answer 3"'),
        (lambda self: self.cancel("no"), RunState.CANCELED, None),
        (lambda self: self.pause("no"), RunState.PAUSED, None),
        (lambda self: self.finish("early"), RunState.COMPLETED, '"early"'),
        (lambda self: None, RunState.COMPLETED, f'"{__name__}.Declined"'),
    ],
)
def test_handlers_decide(verb: Any, state: RunState, result: str | None) -> None:
    """``@handles``: any verb in it is for the step; without one the error goes on to the other policies."""
    workflow, _ = failing(2, (), Declined)

    class Handled(workflow):  # type: ignore[misc, valid-type]
        @handles(Declined)
        def declined(self, error: Declined) -> None:
            verb(self)

    run = replayed(MemoryRun(Handled)).drive()
    assert (run.state, run.result) == (state, result)


# -- errors of the body ---------------------------------------------------------------------------------------------


def stumbling(times: int, *rules: Any, between: bool = False) -> tuple[type[Workflow[None]], list[int]]:
    """A class whose ``run()`` itself fails so many times."""
    passes: list[int] = []

    class Stumbles(Workflow[None]):
        policies = list(rules)

        def run(self) -> int:
            self.first()
            passes.append(1)
            if between and len(passes) % 2 == 0:
                for _ in range(len(passes) // 2):
                    self.more()
            if len(passes) <= times:
                raise ConnectionError("stumbled")
            self.last()
            return len(passes)

        @step
        def first(self) -> None: ...
        @step
        def more(self) -> None: ...
        @step
        def last(self) -> None: ...

    return Stumbles, passes


def test_an_error_of_the_body_is_retried_with_backoff_and_replays() -> None:
    """The steps before it are passed."""
    backoff = Backoff(timedelta(minutes=1), factor=2, jitter=0)
    workflow, _ = stumbling(2, Retry(ConnectionError, attempts=3, backoff=backoff))
    run = MemoryRun(workflow)
    waits = []
    run.activate()
    while run.state is RunState.WAITING:
        assert run.reason == Reason.RETRY
        waits.append(run.waits)
        run.wake()
        run.activate()
    assert waits == [timedelta(minutes=1), timedelta(minutes=2)]
    assert (run.state, run.result, run.story) == (RunState.COMPLETED, "3", ["first success", "last success"])


@pytest.mark.parametrize("wait", [timedelta(), HOUR])
def test_a_bodys_attempts_run_out(wait: timedelta) -> None:
    """Then the run has failed; a resume gives them all again."""
    workflow, passes = stumbling(5, Retry(ConnectionError, attempts=3, wait=wait))
    run = driven(workflow)
    assert run.is_over_as(RunState.FAILED, "gave up after 3 attempts (retry on ConnectionError)")
    assert (run.error_class, len(passes)) == ("ConnectionError", 3)
    run.resume()
    run.drive()
    assert (run.state, run.result) == (RunState.COMPLETED, "6")


def test_a_bodys_count_starts_anew_after_progress() -> None:
    """Attempts in a row are those without a durable call between them."""
    workflow, passes = stumbling(7, Retry(ConnectionError, attempts=3, wait=HOUR), between=True)
    run = driven(workflow)
    assert (run.state, len(passes)) == (RunState.COMPLETED, 8)


def test_a_caught_failure_is_progress_too() -> None:
    """A loop whose steps fail, each caught, comes further with each of them."""
    passes: list[int] = []

    class Loop(Workflow[None]):
        policies = [Retry(ConnectionError, attempts=2, wait=HOUR)]

        def run(self) -> None:
            for number in range(4):
                try:
                    self.bad(number)
                except StepFailed:
                    passes.append(number)
                if passes.count(number) == 1:
                    raise ConnectionError

        @step(on_exception=Fail())
        def bad(self, number: int) -> None:
            raise OSError

    run = driven(Loop)
    assert run.state is RunState.COMPLETED, run.error_class


def test_no_policy_means_that_the_run_fails() -> None:
    """With the error as it was; resumed, ``run()`` is called again."""
    workflow, _ = stumbling(1)
    run = MemoryRun(workflow)
    activated = run.activate()
    assert activated is not None
    assert isinstance(activated.error, ConnectionError)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert (run.error_class, run.error_message) == ("ConnectionError", "stumbled")
    run.resume()
    assert run.drive().result == "2"


def test_skip_is_no_answer_to_an_error_of_the_body() -> None:
    """There is no step to be left out: a run that is not done must not look as if it were."""
    workflow, _ = stumbling(1, Skip())
    assert driven(workflow).is_over_as(RunState.FAILED, Reason.STEP_FAILED)


@pytest.mark.parametrize(("policy", "state"), [(Pause(), RunState.PAUSED), (Cancel(), RunState.CANCELED)])
def test_pause_and_cancel_are(policy: Any, state: RunState) -> None:
    """Of the run; a paused one goes on from the top."""
    workflow, _ = stumbling(1, policy)
    run = driven(workflow)
    assert run.state is state
    if state is RunState.PAUSED:
        run.resume()
        assert run.drive().result == "2"


def test_a_body_that_waits_for_its_retry_can_be_stopped() -> None:
    """A pause holds it, a skip finds no step to be left out, a cancel ends it and closes its row."""
    workflow, passes = stumbling(1, Retry(ConnectionError, attempts=3, wait=HOUR))
    run = MemoryRun(workflow)
    run.activate()
    run.skip()
    assert (run.state, run.waits, len(passes)) == (RunState.WAITING, HOUR, 1)
    run.pause()
    run.resume()
    run.activate()
    assert (run.state, run.waits, len(passes)) == (RunState.WAITING, HOUR, 1)
    run.wake()
    run.stop_request = json.dumps({"verb": "cancel", "reason": "enough"})
    run.activate()
    assert run.is_over_as(RunState.CANCELED, "enough")
    assert [row.outcome for row in run.journal if row.kind is Kind.BODY] == [
        Outcome.RETRIED,
        Outcome.CANCELED,
    ]


def test_a_skip_that_was_asked_for_while_run_was_called_again_leaves_nothing_out() -> None:
    """There is no step to be left out: the run fails, once."""
    workflow, passes = stumbling(9, Retry(ConnectionError, attempts=2, wait=timedelta()))
    run = MemoryRun(workflow)

    def at_boundary(moment: str) -> None:
        if moment == "with" and run.state is RunState.RUNNING and run.current_step == "run":
            run.skip()

    run.at_boundary = at_boundary
    run.activate()
    assert (run.state, len(passes), run.stop_request) == (RunState.FAILED, 2, None)


def test_crashes_change_no_retry_of_the_body() -> None:
    """At every write: as many attempts, at the same instants."""
    ends = set()
    for place in range(12):
        for moment in ("before", "after"):
            workflow, _ = stumbling(0)
            run = MemoryRun(_by_the_clock(workflow))
            crash_at(run, place, moment)
            run.drive()
            ends.add((run.state, run.clock.now(), tuple(run.story), run.result))
    assert len(ends) == 1


def _by_the_clock(workflow: Any) -> Any:
    class Clocked(workflow):
        policies = [Retry(ConnectionError, attempts=4, wait=HOUR)]

        def run(self) -> str:
            self.first()
            hours = self.hours()
            if hours < 2:
                raise ConnectionError
            self.last()
            return f"after {hours} hours"

        def hours(self) -> int:
            # Chance that depends on the world: here, on what is durable.
            rows = self._runtime._recorder.history
            return sum(row.kind == Kind.BODY and row.outcome == Outcome.RETRIED for row in rows)

    return Clocked


def test_a_handler_is_asked_about_the_body() -> None:
    """As about a step."""
    asked: list[str] = []
    workflow, _ = stumbling(2)

    class Handled(workflow):  # type: ignore[misc, valid-type]
        @handles(ConnectionError)
        def stumbled(self, error: ConnectionError) -> None:
            asked.append(str(error))
            self.retry(HOUR)

    run = driven(Handled)
    assert (run.result, asked) == ("3", ["stumbled", "stumbled"])
    assert run.clock.now() - run.begins_at == 2 * HOUR


def test_a_result_that_cannot_be_stored_fails_the_run() -> None:
    """``run()`` returned it; no policy helps."""

    class Bad(Workflow[None]):
        policies = [Retry()]

        def run(self) -> Any:
            return object()

    run = driven(Bad)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == "stepwell.errors.Unstorable"
    assert "result of run()" in (run.error_message or "")


# -- limits ---------------------------------------------------------------------------------------------------------


def test_a_steps_timeout_is_its_failure() -> None:
    """It can be caught like any."""
    import time

    class Slow(Workflow[None]):
        def run(self) -> bool:
            try:
                self.slow()
            except StepFailed as failure:
                return failure.caused_by(StepTimedOut)
            return False

        @step(timeout=timedelta(milliseconds=30))
        def slow(self) -> None:
            limit = time.monotonic() + 5
            while time.monotonic() < limit:
                pass

    run = replayed(MemoryRun(Slow)).drive()
    assert (run.result, run.story) == ("true", ["slow timed_out"])


def test_a_deadline_of_the_class_is_an_error_of_the_step_that_comes_next() -> None:
    """It is raised before its body, and recorded: caught, the run compensates within what is left to it."""
    bodies: list[str] = []

    class Limited(Workflow[None]):
        deadline = 3 * HOUR

        def run(self) -> bool:
            self.work("in time")
            self.sleep(2 * HOUR)
            self.work("still in time")
            try:
                self.sleep(2 * HOUR)
                self.work("too late")
            except StepFailed as failure:
                return failure.caused_by(DeadlineExceeded)
            return False

        @step
        def work(self, when: str) -> None:
            bodies.append(when)

    run = replayed(MemoryRun(Limited)).drive()
    assert (run.result, bodies) == ("true", ["in time", "still in time"])
    assert run.clock.now() - run.begins_at == 3 * HOUR


# -- long steps and asynchronous ones -------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["checkpoints", "generator", "asynchronous"])
def test_long_steps_go_on_from_their_cursor(style: str) -> None:
    """Called from ``run()`` with arguments, they answer their result; each item is committed once."""

    class Import(Workflow[None]):
        def run(self, count: int) -> list[Any]:
            answer = getattr(self, style)(count)
            return [answer, self.context["seen"]]

        @resumable_step(key_by="count")
        def checkpoints(self, count: int) -> str:
            for number in range(self.cursor.value or 0, count):
                self.item(number)
                self.cursor.set(number + 1)
            return "done"

        @resumable_step
        def generator(self, count: int) -> Any:
            for number in range(self.cursor.value or 0, count):
                self.item(number)
                yield number + 1
            return "done"

        @resumable_step
        async def asynchronous(self, count: int) -> Any:
            for number in range(self.cursor.value or 0, count):
                await self.in_session(lambda session, number=number: self.item(number))
                yield number + 1

        def item(self, number: int) -> None:
            self.session.append(number)
            self.context["seen"] = self.context.get("seen", 0) + 1

    for run in crashed_everywhere(lambda: MemoryRun(Import, args={"count": 4})):
        assert run.state is RunState.COMPLETED, run.error_message
        assert run.ledger == [0, 1, 2, 3]
        assert json.loads(run.result) == ["done" if style != "asynchronous" else None, 4]
        assert run.memory == {"seen": 4}


def test_a_long_step_is_interrupted_between_items() -> None:
    """``max_iterations``: it goes on in an execution of its own, replayed as one call."""

    class Import(Workflow[None]):
        def run(self) -> int:
            return self.load() + self.load()

        @resumable_step(max_iterations=2)
        def load(self) -> Any:
            for number in range(self.cursor.value or 0, 5):
                self.session.append(number)
                yield number + 1
            return 5

    run = replayed(MemoryRun(Import)).drive()
    assert (run.result, run.ledger) == ("10", [*range(5), *range(5)])
    assert {row.key for row in run.journal if row.kind is Kind.STEP} == {None, "#2"}


def test_async_steps_are_called_plainly() -> None:
    """In a ``run()`` that is not: the answer is the result."""

    class Mixed(Workflow[None]):
        def run(self) -> list[Any]:
            return [self.fetch("A"), self.step("other", fetched, "B")]

        @step
        async def fetch(self, item: str) -> str:
            return await fetched(item)

    run = replayed(MemoryRun(Mixed)).drive()
    assert json.loads(run.result) == ["a", "b"]


async def fetched(item: str) -> str:
    return item.lower()
