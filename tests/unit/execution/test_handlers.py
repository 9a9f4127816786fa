"""``@handles``: the author's own function decides about an error, with the verbs of the workflow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, Skip, Workflow, handles, resumable_step, step
from stepwell.states import Reason, RunState
from tests.unit.execution.memory import START, Hero, MemoryRun

HOUR = timedelta(hours=1)


class Limited(Exception):
    """A service says: not now."""

    retry_after = HOUR


def handled(say: Callable[[Any, Exception], Any], **options: Any) -> tuple[MemoryRun, list[str]]:
    """A run whose first step fails once, in a class that has a handler."""
    bodies: list[str] = []

    class Order(Workflow[None]):
        @handles(Limited)
        def slow_down(self, error: Exception) -> None:
            say(self, error)

        @step(**options)
        def pack(self) -> None:
            bodies.append("pack")
            self.context["packed"] = True
            self.session.append("packed")
            if len(bodies) == 1:
                raise Limited("slow down")

        @step
        def ship(self) -> None: ...

    return MemoryRun(Order), bodies


def test_a_handler_can_retry() -> None:
    """The step runs again, after the wait that the handler says."""
    run, bodies = handled(lambda self, error: self.retry(error.retry_after))
    run.activate()

    assert (run.state, run.reason, run.wake_at) == (RunState.WAITING, Reason.RETRY, START + HOUR)
    assert run.row("pack").attempt == 2
    assert run.journal[0].error_class is not None
    assert run.drive().is_over_as(RunState.COMPLETED)
    assert len(bodies) == 2


VERBS: dict[str, tuple[Callable[[Any, Exception], Any], str, RunState]] = {
    "skip": (lambda self, error: self.skip(), "pack skipped", RunState.COMPLETED),
    "cancel": (lambda self, error: self.cancel("why"), "pack canceled", RunState.CANCELED),
    "pause": (lambda self, error: self.pause("why"), "pack paused", RunState.PAUSED),
    "pause done": (lambda self, error: self.pause("why", done=True), "pack paused", RunState.PAUSED),
    "retry": (lambda self, error: self.retry(), "pack retried", RunState.COMPLETED),
    "finish": (lambda self, error: self.finish("early"), "pack success", RunState.COMPLETED),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_works_in_a_handler(verb: str) -> None:
    """It does what it does in a body; the body failed, so what it wrote is undone whatever the verb."""
    say, story, state = VERBS[verb]
    run, bodies = handled(say)
    run.drive()

    assert (run.story[0], run.state) == (story, state)
    again = verb == "retry"
    assert run.ledger == (["packed"] if again else [])
    assert run.memory == ({"packed": True} if again else {})
    assert len(bodies) == 1 + again


@pytest.mark.parametrize("leave", ["suspend", "skip_to", "advance while somebody asks for a pause"])
def test_a_handler_of_a_long_step_may_leave_it(leave: str) -> None:
    """The step goes on later, from where the cursor then stands: also past the item that raised."""

    class Rows(Workflow[None]):
        @handles(Limited)
        def leave(self, error: Exception) -> None:
            match leave:
                case "suspend":
                    self.suspend(HOUR)
                case "skip_to":
                    self.cursor.skip_to(2, wait=HOUR)
                case _:
                    run.pause()
                    self.cursor.advance()

        @resumable_step
        def walk(self) -> None:
            for row in self.cursor.iterate(range(4)):
                self.session.append(row)
                if row == 1 and not self.cursor.resumed:
                    raise Limited

    run = MemoryRun(Rows)
    run.drive()
    if leave.startswith("advance"):
        assert run.state is RunState.PAUSED
        run.resume()
        run.drive()

    assert run.state is RunState.COMPLETED
    assert run.ledger == ([0, 1, 2, 3] if leave == "suspend" else [0, 2, 3])
    assert run.story == ["walk retried", "walk success"]


@pytest.mark.parametrize("verb", ["skip", "cancel", "pause", "retry"])
def test_the_error_is_recorded_with_the_attempt(verb: str) -> None:
    """What the handler answered does not hide what happened."""
    run, _ = handled(VERBS[verb][0])
    run.drive()

    assert run.journal[0].error_message == "slow down"


def test_the_result_of_a_handler_that_finishes() -> None:
    """``finish`` in a handler ends the run with its value."""
    run, _ = handled(VERBS["finish"][0])
    assert run.drive().result == '"early"'


def test_a_handler_that_says_nothing_leaves_the_error_to_the_others() -> None:
    """It has looked; the policies after it decide, and a blanket one comes last."""
    seen: list[Exception] = []
    run, _ = handled(lambda self, error: seen.append(error), on_exception=Retry(OSError))
    run.drive()
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert len(seen) == 1

    class Order(Workflow[None]):
        policies = [Skip()]

        @handles(Limited)
        def first(self, error: Exception) -> None:
            seen.append(error)

        @handles
        def second(self, error: Exception) -> None:
            seen.append(error)

        @step
        def pack(self) -> None:
            raise Limited

    seen.clear()
    run = MemoryRun(Order).drive()
    assert run.story == ["pack skipped"]
    assert len(seen) == 2


def test_the_steps_own_policies_come_before_the_handler() -> None:
    """A handler is a policy of the class: a step that answers for itself does not ask it."""
    asked: list[Exception] = []
    run, _ = handled(lambda self, error: asked.append(error), on_exception=Skip(Limited))
    run.drive()

    assert asked == []
    assert run.story[0] == "pack skipped"


def test_an_error_in_a_handler_fails_the_run() -> None:
    """It is the handler's error that is recorded, with the first one as its context."""

    def broken(self: Any, error: Exception) -> None:
        raise KeyError("handler")

    run, _ = handled(broken)
    run.drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == "KeyError"
    assert "slow down" in str(run.journal[0].traceback)


@pytest.mark.parametrize("wait", [None, HOUR])
def test_a_handler_that_always_retries_comes_to_an_end(wait: timedelta | None) -> None:
    """A hundred times in a row is too often, for a handler as for a step; the error stays visible."""

    class Order(Workflow[None]):
        @handles(Limited)
        def slow_down(self, error: Exception) -> None:
            self.retry(wait)

        @step
        def pack(self) -> None:
            raise Limited("slow down")

    run = MemoryRun(Order).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert "100 times in a row" in str(run.error_message)
    assert "slow down" in str(run.row("pack").traceback)
    assert len(run.journal) == 100


def test_a_swallowed_verb_stands_in_a_handler_too() -> None:
    """What a handler decided is decided."""

    def swallowing(self: Any, error: Exception) -> None:
        try:
            self.cancel("decided")
        except BaseException:
            pass

    run, _ = handled(swallowing)
    assert run.drive().is_over_as(RunState.CANCELED, "decided")


def test_what_a_handler_writes_is_not_kept() -> None:
    """A handler decides; the attempt that it decides about has failed and leaves nothing."""

    def writing(self: Any, error: Exception) -> None:
        self.context["noted"] = True
        self.session.append("noted")
        self.skip()

    run, _ = handled(writing)
    run.drive()

    assert run.story == ["pack skipped", "ship success"]
    assert (run.memory, run.ledger) == ({}, [])


def test_a_handler_sees_nothing_of_what_was_undone() -> None:
    """It runs outside the transaction of the body: context and session are as before the attempt."""
    seen: list[Any] = []

    def looking(self: Any, error: Exception) -> None:
        seen.append((dict(self.context), list(self.session), self.run_id))

    run, _ = handled(looking)
    run.drive()

    assert seen == [({}, [], run.id)]


def test_a_handler_may_look_at_the_hero() -> None:
    """The record is there, loaded afresh."""

    class Onboarding(Workflow[Hero]):
        @handles(Limited)
        def slow_down(self, error: Exception) -> None:
            self.cancel(f"{self.hero.name} can wait")

        @step
        def welcome(self) -> None:
            self.hero.name = "changed"
            raise Limited

    run = MemoryRun(Onboarding, hero=Hero("Ada")).drive()
    assert run.is_over_as(RunState.CANCELED, "Ada can wait")


def test_a_verb_of_the_body_is_no_error() -> None:
    """Handlers are for errors: control flow passes them by."""
    asked: list[Exception] = []

    class Order(Workflow[None]):
        @handles(BaseException)
        def everything(self, error: Exception) -> None:
            asked.append(error)

        @step
        def pack(self) -> None:
            self.skip()

    run = MemoryRun(Order).drive()

    assert run.story == ["pack skipped"]
    assert asked == []


def test_a_decision_whose_writes_were_refused_is_forgotten() -> None:
    """The body said ``skip``, and the database refused what it wrote: a handler is asked afresh."""

    class Order(Workflow[None]):
        @handles(Limited)
        def look(self, error: Exception) -> None: ...

        @step
        def pack(self) -> None:
            self.session.append(Limited("refused"))
            self.skip()

    run = MemoryRun(Order).drive()

    assert run.story == ["pack failed"]
    assert run.error_message == "refused"


@pytest.mark.parametrize(
    ("report", "verb", "count"),
    [
        ("always", "retry", 1),
        ("never", "retry", 0),
        ("never", "skip", 0),
        ("terminal_only", "retry", 0),
        ("terminal_only", "skip", 1),
    ],
)
def test_a_handlers_error_is_reported_as_it_says(report: Any, verb: str, count: int) -> None:
    """As a policy's: by what the handler decides it is seen whether the step will be tried again."""

    class Order(Workflow[None]):
        @handles(Limited, report=report)
        def decide(self, error: Exception) -> None:
            getattr(self, verb)()

        @step
        def pack(self) -> None:
            if not run.journal:
                raise Limited

    run = MemoryRun(Order)
    run.drive()

    assert run.state is RunState.COMPLETED
    assert len(run.reported) == count
