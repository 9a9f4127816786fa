"""Where ``run()`` is left: pauses, cancels and ends of its own, what people ask for, and what happens after it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import RunError, StepFailed, Unstorable, Workflow, step
from stepwell.execution.suspension import LeaseLost
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from tests.unit.execution.memory import MemoryRun
from tests.unit.execution.procedures import driven, replayed

HOUR = timedelta(hours=1)
FOREVER = timedelta(days=1000)


def actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [getattr(record, "action", "") for record in caplog.records]


# -- verbs of run() -------------------------------------------------------------------------------------------------


def test_a_pause_is_passed_once_it_was_resumed() -> None:
    """Each has its number; a replay passes those that are behind the run."""
    reached: list[str] = []

    class Pauses(Workflow[None]):
        def run(self) -> str:
            self.work()
            self.pause("one")
            reached.append("between")
            self.pause("two")
            self.work()
            return "done"

        @step
        def work(self) -> None: ...

    run = replayed(MemoryRun(Pauses)).drive()
    assert run.is_over_as(RunState.PAUSED, "one")
    assert (run.current_step, reached) == ("pause", [])
    run.resume()
    run.drive()
    assert run.is_over_as(RunState.PAUSED, "two")
    run.resume()
    run.drive()
    assert (run.state, run.result) == (RunState.COMPLETED, '"done"')
    pauses = [(row.name, row.key, row.outcome) for row in run.journal if row.kind is Kind.PAUSE]
    assert pauses == [("pause", None, Outcome.PAUSED), ("pause", "#2", Outcome.PAUSED)]
    assert run.story == ["work success"] * 2


def test_cancel_ends_the_run() -> None:
    """With its reason; nothing after it is done."""

    class Cancels(Workflow[None]):
        def run(self) -> None:
            self.context["seen"] = True
            self.cancel("refused")

    run = driven(Cancels)
    assert run.is_over_as(RunState.CANCELED, "refused")
    assert run.identity_is_free
    assert run.memory == {"seen": True}


def test_finish_ends_the_run_with_a_result() -> None:
    """From deep inside; nothing after it is done, and nothing is called an orphan."""

    class Finishes(Workflow[None]):
        def run(self) -> str:
            self.work()
            self.deep()
            return "late"

        def deep(self) -> None:
            self.finish(["early"])

        @step
        def work(self) -> None: ...

    run = driven(Finishes)
    assert (run.state, run.result, run.details) == (RunState.COMPLETED, '["early"]', None)
    assert run.current_step is None


def test_finish_with_what_cannot_be_stored_is_an_error_of_the_body() -> None:
    """Where it is said."""

    class Finishes(Workflow[None]):
        def run(self) -> None:
            self.finish(object())

    run = driven(Finishes)
    assert run.state is RunState.FAILED
    assert "result of finish()" in (run.error_message or "")


@pytest.mark.parametrize(
    "verb", [lambda self: self.skip(), lambda self: self.retry(), lambda self: self.suspend()]
)
def test_verbs_of_steps_are_refused_in_the_body(verb: Callable[[Any], None]) -> None:
    """``run()`` is no step: it can catch that, and learns what to do."""

    class Asks(Workflow[None]):
        def run(self) -> str:
            try:
                verb(self)
            except RunError as error:
                return str(error)
            return "went on"

    assert "inside a step only" in driven(Asks).result


@pytest.mark.parametrize(
    "verb",
    [
        lambda self: self.sleep(HOUR),
        lambda self: self.sleep_until(lambda: None),
        lambda self: self.wait_until(lambda: True),
        lambda self: self.continue_if(lambda: True),
        lambda self: self.wait_for_signal("go"),
        lambda self: self.step("one", print),
        lambda self: self.now,
        lambda self: self.random,
        lambda self: self.uuid4(),
    ],
)
def test_verbs_of_run_are_refused_in_steps(verb: Callable[[Any], Any]) -> None:
    """A step is durable as a whole."""

    class Nested(Workflow[None]):
        def run(self) -> str:
            try:
                self.work()
            except StepFailed as failure:
                return failure.message
            return "went on"

        @step
        def work(self) -> None:
            verb(self)

    run = driven(Nested)
    assert "body of run(), not inside step 'work'" in run.result
    assert run.story == ["work failed"]


@pytest.mark.parametrize(
    "look",
    [
        lambda self: self.session,
        lambda self: self.hero,
        lambda self: self.idempotency_key,
        lambda self: self.cursor,
    ],
)
def test_what_is_not_journaled_is_refused_in_the_body(look: Callable[[Any], Any]) -> None:
    """Its answers would be others on replay."""

    class Looks(Workflow[None]):
        def run(self) -> str:
            try:
                look(self)
            except RunError as error:
                return str(error)
            return "looked"

    assert driven(Looks).result != '"looked"'


SAID: dict[str, Callable[[Any], Any]] = {
    "pause": lambda self: self.pause("why"),
    "pause done": lambda self: self.pause("why", done=True),
    "skip": lambda self: self.skip(),
    "finish": lambda self: self.finish("finished"),
    "cancel": lambda self: self.cancel("why"),
}


def test_verbs_of_a_step_are_for_the_run() -> None:
    """``pause`` has the step run again, ``pause(done=True)`` does not; ``finish`` and ``cancel`` end the run."""
    bodies: list[str] = []

    class Says(Workflow[None]):
        def run(self, verb: str) -> str:
            self.work(verb)
            return "returned"

        @step
        def work(self, verb: str) -> None:
            bodies.append(verb)
            self.session.append(verb)
            if bodies.count(verb) > 1:
                return
            SAID[verb](self)

    ends = {}
    for verb in SAID:
        run = driven(Says, verb=verb)
        if verb.startswith("pause"):
            assert run.is_over_as(RunState.PAUSED, "why")
            run.resume()
            run.drive()
        ends[verb] = (run.state, run.result, bodies.count(verb), run.ledger)
    assert ends == {
        "pause": (RunState.COMPLETED, '"returned"', 2, ["pause"]),
        "pause done": (RunState.COMPLETED, '"returned"', 1, ["pause done"]),
        "skip": (RunState.COMPLETED, '"returned"', 1, ["skip"]),
        "finish": (RunState.COMPLETED, '"finished"', 1, ["finish"]),
        "cancel": (RunState.CANCELED, None, 1, ["cancel"]),
    }


# -- a stopped activation is closed ---------------------------------------------------------------------------------


VERBS: dict[str, Callable[[Any], Any]] = {
    "sleep": lambda self: self.sleep(FOREVER),
    "sleep_until": lambda self: self.sleep_until(self.later),
    "wait_until": lambda self: self.wait_until(self.never),
    "continue_if": lambda self: self.continue_if(self.never),
    "wait_for_signal": lambda self: self.wait_for_signal("go"),
    "pause": lambda self: self.pause(),
    "cancel": lambda self: self.cancel(),
    "finish": lambda self: self.finish("end"),
    "retried": lambda self: self.retried(),
    "paused": lambda self: self.paused(),
    "canceled": lambda self: self.canceled(),
    "finished": lambda self: self.finished(),
    "moved": lambda self: self.moved(),
}


class Closing(Workflow[None]):
    """Comes to an end of an activation in ``run()``, and does not let it go."""

    bodies: list[str] = []

    def never(self) -> bool:
        return False

    def later(self) -> Any:
        return self._runtime._recorder.now() + FOREVER

    @step
    def retried(self) -> None:
        self.retry(FOREVER)

    @step
    def paused(self) -> None:
        self.pause()

    @step
    def canceled(self) -> None:
        self.cancel()

    @step
    def finished(self) -> None:
        self.finish("end")

    @step(queue="other")
    def moved(self) -> None: ...

    @step
    def release(self) -> None:
        self.bodies.append("release")

    def everything(self) -> None:
        """Each durable call there is; every one raises what the first raised."""
        for verb in [*VERBS.values(), lambda self: self.release(), lambda self: self.step("x", print)]:
            try:
                verb(self)
            except Exception as error:
                self.bodies.append(repr(error))
            except BaseException:
                continue
            self.bodies.append("went on")


class Finally(Closing):
    def run(self, verb: str) -> str:
        try:
            VERBS[verb](self)
        finally:
            self.release()
        return "end"


class Bare(Closing):
    def run(self, verb: str) -> str:
        try:
            VERBS[verb](self)
        except:  # noqa: E722  the very thing that is tried
            self.everything()
        return "went on"


class Raising(Closing):
    def run(self, verb: str) -> str:
        try:
            VERBS[verb](self)
        except BaseException:
            self.everything()
            raise KeyError("another error") from None
        return "went on"


class Grouped(Closing):
    def run(self, verb: str) -> str:
        try:
            VERBS[verb](self)
        except BaseException as error:
            raise BaseExceptionGroup("many", [error]) from None
        return "went on"


@pytest.mark.parametrize("style", [Finally, Bare, Raising, Grouped])
@pytest.mark.parametrize("verb", VERBS)
def test_a_stopped_activation_is_closed(
    style: type[Closing], verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing more runs and nothing more is journaled, whatever ``run()`` makes of the exception; it is warned of."""
    Closing.bodies.clear()
    plain = type("Plain", (Closing,), {"run": lambda self, verb: VERBS[verb](self), "__module__": __name__})
    expected, run = MemoryRun(plain, args={"verb": verb}), MemoryRun(style, args={"verb": verb})
    expected.activate()
    with caplog.at_level(logging.WARNING):
        run.activate()
    assert Closing.bodies == []
    assert (run.state, run.reason, run.result, run.writes) == (
        expected.state,
        expected.reason,
        expected.result,
        expected.writes,
    )
    assert [row.name for row in run.journal] == [row.name for row in expected.journal]
    # What passes on as it came was not swallowed.
    assert actions(caplog) == ([] if style is Finally else ["run.swallowed"])


@pytest.mark.parametrize("moment", ["step", "pause", "cancel", "finish", "sleep"])
def test_a_lost_lease_closes_too(moment: str) -> None:
    """A zombie that catches everything runs no further body."""
    bodies: list[str] = []

    class Zombie(Workflow[None]):
        def run(self) -> str:
            try:
                match moment:
                    case "step":
                        self.work("first")
                    case "sleep":
                        self.sleep(HOUR)
                    case _:
                        getattr(self, moment)()
            except BaseException:
                pass
            try:
                self.work("second")
            except BaseException:
                pass
            return "done"

        @step
        def work(self, what: str) -> None:
            bodies.append(what)

    run = MemoryRun(Zombie)
    lost = [True]

    def at_boundary(when: str) -> None:
        if when == "before" and lost:
            # Somebody else has it: the guard refuses this very write, and no earlier check could tell.
            lost.clear()
            raise LeaseLost

    run.at_boundary = at_boundary
    run.activate()
    assert run.state is RunState.RUNNING
    assert "second" not in bodies
    assert run.rows == {}


@pytest.mark.parametrize("moment", ["step", "pause", "cancel", "finish", "sleep"])
def test_trouble_with_the_journal_is_no_error_of_the_authors(moment: str) -> None:
    """A database that is gone ends the activation: ``except Exception`` must not take it for a failed step."""
    bodies: list[str] = []

    class Compensating(Workflow[None]):
        def run(self) -> str:
            try:
                match moment:
                    case "step":
                        self.work("first")
                    case "sleep":
                        self.sleep(HOUR)
                    case _:
                        getattr(self, moment)()
            except Exception:
                self.work("compensation")
            return "done"

        @step
        def work(self, what: str) -> None:
            bodies.append(what)

    run = MemoryRun(Compensating)
    gone = [True]

    def at_boundary(when: str) -> None:
        if when == "before" and gone:
            gone.clear()
            raise ConnectionResetError("the database is gone")

    run.at_boundary = at_boundary
    with pytest.raises(ConnectionResetError):
        run.activate()
    assert "compensation" not in bodies
    run.lose_worker()
    run.drive()
    assert "compensation" not in bodies


def test_an_unstorable_argument_is_caught_where_it_is_given() -> None:
    """That is the author's own error."""

    class Catching(Workflow[None]):
        def run(self) -> str:
            try:
                self.work(object())
            except Unstorable:
                return "caught"
            return "went on"

        @step
        def work(self, what: Any) -> None: ...

    assert driven(Catching).result == '"caught"'


# -- what people ask for --------------------------------------------------------------------------------------------


class Asked(Workflow[None]):
    """Three steps, in the middle of which somebody asks for something."""

    ask: Callable[[str], None]
    bodies: list[str] = []

    def run(self) -> list[Any]:
        return [self.work(item) for item in "ABC"]

    @step(key_by="item")
    def work(self, item: str) -> str:
        self.bodies.append(item)
        type(self).ask(item)
        return item.lower()


def asked(ask: Callable[[MemoryRun, str], None]) -> MemoryRun:
    Asked.bodies.clear()
    run = MemoryRun(Asked)
    Asked.ask = lambda item: ask(run, item)  # type: ignore[method-assign, misc]
    return run


def test_a_pause_is_honoured_at_the_next_boundary() -> None:
    """After what was under way is journaled; resumed, the run goes on with the next call."""
    run = asked(lambda run, item: run.pause("wait") if item == "B" else None).drive()
    assert run.is_over_as(RunState.PAUSED, "wait")
    assert Asked.bodies == ["A", "B"]
    run.resume()
    run.drive()
    assert (run.result, Asked.bodies) == ('["a","b","c"]', ["A", "B", "C"])


def test_a_run_that_is_paused_between_two_calls_stands_at_the_next_one() -> None:
    """What a person leaves out then is that one, and not the one that is done."""

    class Two(Workflow[None]):
        def run(self) -> list[Any]:
            return [self.first(), self.second(), self.second()]

        @step
        def first(self) -> str:
            run.pause()
            return "first"

        @step
        def second(self) -> str:
            return "second"

    run = MemoryRun(Two)
    run.drive()
    assert (run.state, run.current_step) == (RunState.PAUSED, "second")
    run.skip()
    run.drive()
    assert run.result == '["first",null,"second"]'


def test_a_run_that_is_paused_behind_its_last_call_stands_at_none() -> None:
    """There is nothing to be left out."""
    run = asked(lambda run, item: run.pause() if item == "C" else None).drive()
    assert (run.state, run.current_step) == (RunState.PAUSED, None)


def test_a_cancel_is_honoured_at_the_next_boundary() -> None:
    """What was under way is journaled."""
    run = asked(lambda run, item: run.cancel("no") if item == "B" else None).drive()
    assert run.is_over_as(RunState.CANCELED, "no")
    assert run.story == ["work success"] * 2


def test_a_request_is_honoured_at_the_very_end_too() -> None:
    """It came while the last step was under way: the run stops before it is over, as a declared one does."""
    run = asked(lambda run, item: run.pause() if item == "C" else None).drive()
    assert run.state is RunState.PAUSED
    run.resume()
    run.drive()
    assert (run.result, Asked.bodies) == ('["a","b","c"]', ["A", "B", "C"])
    run = asked(lambda run, item: run.cancel("no") if item == "C" else None).drive()
    assert run.is_over_as(RunState.CANCELED, "no")


def test_a_skip_of_a_waiting_call_leaves_it_out() -> None:
    """It answers None, now and on replay."""

    class Sleeps(Workflow[None]):
        def run(self) -> list[Any]:
            first = self.wait_for_signal("go")
            second = self.wait_for_signal("go")
            self.pause()
            return [first, second]

    run = MemoryRun(Sleeps)
    run.drive()
    assert (run.state, run.current_step) == (RunState.AWAITING, "go")
    run.skip()
    run.drive()
    assert run.state is RunState.AWAITING
    run.signal("go", 2)
    run.drive()
    run.resume()
    run.drive()
    assert run.result == "[null,2]"
    assert [(row.key, row.state) for row in run.journal if row.kind is Kind.SIGNAL] == [
        (None, ExecutionState.SKIPPED),
        ("#2", ExecutionState.COMPLETED),
    ]


def test_a_skip_of_a_step_that_waits_for_its_retry() -> None:
    """The announced attempt is left out; the next call is not meant."""
    bodies: list[str] = []

    class Retries(Workflow[None]):
        def run(self) -> list[Any]:
            return [self.work("A"), self.work("B")]

        @step(key_by="item")
        def work(self, item: str) -> str:
            bodies.append(item)
            if item == "A":
                self.retry(HOUR)
            return item.lower()

    run = MemoryRun(Retries)
    run.activate()
    run.skip()
    run.drive()
    assert (run.result, bodies) == ('[null,"b"]', ["A", "B"])


def test_a_skip_means_the_call_that_was_under_way() -> None:
    """It is void once that call has finished: another call of the same step is none of its business."""

    def ask(run: MemoryRun, item: str) -> None:
        if item == "A":
            # As a heartbeat shows it.
            run.current_step = "work"
            run.skip()

    run = asked(ask).drive()
    assert (run.result, Asked.bodies) == ('["a","b","c"]', ["A", "B", "C"])


def test_requests_that_meet_a_pause_of_run() -> None:
    """A cancel is stronger than the pause that ``run()`` itself says, another pause is the same."""
    for verb, state in (("cancel", RunState.CANCELED), ("pause", RunState.PAUSED)):

        class Pauses(Workflow[None]):
            def run(self) -> None:
                self.work()
                self.pause("own")

            @step
            def work(self) -> None: ...

        run = MemoryRun(Pauses)

        def at_boundary(moment: str, run: MemoryRun = run, verb: str = verb) -> None:
            if moment == "with" and len(run.rows) == 1 and run.state is RunState.RUNNING:
                getattr(run, verb)("asked")

        run.at_boundary = at_boundary
        run.drive()
        assert run.state is state
        if state is RunState.PAUSED:
            run.resume()
            run.drive()
            if run.state is RunState.PAUSED:
                run.resume()
                run.drive()
            assert run.state is RunState.COMPLETED


def test_a_draining_worker_gives_the_run_back() -> None:
    """At the next boundary, without a body that would run on."""
    run = asked(lambda run, item: setattr(run, "is_draining", item == "A"))
    run.activate()
    assert (run.state, Asked.bodies) == (RunState.READY, ["A"])
    run.is_draining = False
    assert run.drive().result == '["a","b","c"]'


def test_nothing_is_lost_when_a_command_meets_a_mismatch() -> None:
    """A skip of the step whose arguments do not fit leaves it out."""
    items = ["A"]

    class Ship(Workflow[None]):
        def run(self) -> Any:
            found = self.ship(items[-1])
            self.sleep(HOUR)
            return found

        @step
        def ship(self, item: str) -> str:
            return item

    run = MemoryRun(Ship)
    run.activate()
    items.append("B")
    run.wake()
    run.activate()
    assert run.is_over_as(RunState.FAILED, Reason.HISTORY_MISMATCH)
    assert run.current_step == "ship"
    run.skip()
    run.drive()
    assert run.state is RunState.COMPLETED, run.error_message
    assert json.loads(run.result) is None


def test_what_is_overridden_is_no_step_in_the_body_of_run() -> None:
    """It would not be recorded, and done again by each replay."""

    class Parent(Workflow[None]):
        workflow_name = "replay_stops.Parent"

        @step
        def work(self) -> str:
            return "parent"

    class Child(Parent):
        workflow_name = "replay_stops.Child"

        def run(self) -> list[str]:
            try:
                super().work()
            except RunError as error:
                return [str(error), self.work()]
            return []

        @step
        def work(self) -> str:
            return f"child of {super().work()}"

    told, answer = json.loads(driven(Child).result)
    assert "super().work() in run() is no step of this class" in told
    assert answer == "child of parent"


def test_progress_in_the_body_of_run_is_refused() -> None:
    """It would be the progress of nothing."""

    class Telling(Workflow[None]):
        workflow_name = "replay_stops.Telling"

        def run(self) -> None:
            self.progress(1, 2)

    assert "progress() works inside a step only" in (driven(Telling).error_message or "")


@pytest.mark.parametrize("is_dealt_with", [True, False])
def test_an_error_from_none_is_the_body_s_own(is_dealt_with: bool) -> None:
    """The failure that it hides was dealt with, and is not tried again when somebody resumes the run."""
    done: list[str] = []

    class Order(Workflow[None]):
        def run(self) -> str:
            try:
                self.charge()
            except StepFailed:
                if len(done) == 1:
                    done.append("raise")
                    if is_dealt_with:
                        raise KeyError("own") from None
                    raise KeyError("declined")  # noqa: B904  # what is told apart here
            return "unpaid"

        @step
        def charge(self) -> None:
            done.append("charge")
            raise ValueError("declined")

    run = driven(Order)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    run.resume()
    run.drive()
    assert run.result == '"unpaid"'
    assert done == ["charge", "raise"] + ([] if is_dealt_with else ["charge"])
