"""Signals: when a step has one, which one it gets, and what becomes of a wait that ends otherwise."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import Cancel, Fail, Pause, Retry, Signal, Skip, WaitTimedOut, Workflow, handles, step
from stepwell.execution.journal import Letter
from stepwell.serialization import RecordRef
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from tests.unit.execution.memory import START, MemoryRun

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def awaiting(signal: Signal | str = "review", act: Any = lambda self, verdict: None, **options: Any) -> Any:
    """A workflow whose first step awaits a signal."""

    class Review(Workflow[None]):
        @step(awaits=signal, **options)
        def decide(self, verdict: Any) -> Any:
            act(self, verdict)
            return verdict

        @step
        def tell(self) -> None: ...

    return Review


def rows(run: MemoryRun) -> list[tuple[Any, ...]]:
    """What the journal says: kind, name and outcome, or the state of what is still open."""
    return [(str(row.kind), row.name, str(row.outcome or row.state)) for row in run.journal]


# -- coming --------------------------------------------------------------------------------------------------------


def test_a_step_waits_for_its_signal() -> None:
    """The run is parked as one row, without an instant, and names what it waits for."""
    run = MemoryRun(awaiting())
    ended = run.activate()

    assert run.is_over_as(RunState.AWAITING, Reason.SIGNAL)
    assert run.wake_at is None
    assert ended is not None
    row = run.row("decide")
    assert (row.kind, row.key, row.state) == (Kind.SIGNAL, "review", ExecutionState.SCHEDULED)
    assert (row.started_at, row.scheduled_for) == (START, None)


def test_a_signal_lets_the_step_run() -> None:
    """The payload is handed to the step; the row of the wait holds it, and the letter is read."""
    run = MemoryRun(awaiting())
    run.activate()
    run.clock.travel(HOUR)
    run.signal("review", {"by": "Ada"})
    run.drive()

    assert run.state is RunState.COMPLETED
    assert rows(run) == [
        ("signal", "decide", "success"),
        ("step", "decide", "success"),
        ("step", "tell", "success"),
    ]
    wait, body = run.journal[:2]
    assert wait.result == body.result == '{"by":"Ada"}'
    assert (wait.started_at, wait.finished_at) == (START, START + HOUR)
    assert run.read == {1}


def test_an_early_signal_is_kept() -> None:
    """One that was sent before the run came to its wait lets the step run without a park."""
    run = MemoryRun(awaiting())
    run.signal("review", "early")
    run.activate()

    assert (run.state, run.row("decide").result) == (RunState.COMPLETED, '"early"')
    assert run.activations == 1


def test_signals_are_read_in_their_order_one_for_each_wait() -> None:
    """A step takes the oldest one of its name; the next step that awaits this name takes the next."""

    class Twice(Workflow[None]):
        @step(awaits="go")
        def first(self, payload: Any) -> Any:
            return payload

        @step(awaits="go")
        def second(self, payload: Any) -> Any:
            return payload

    run = MemoryRun(Twice)
    run.signal("stop", 0)
    run.signal("go", 1)
    run.signal("go", 2)
    run.signal("go", 3)
    run.drive()

    assert (run.row("first").result, run.row("second").result) == ("1", "2")
    assert run.read == {2, 3}, "the other ones stay unread"


def test_a_signal_of_another_name_lets_nothing_run() -> None:
    """The run looks, and parks again on the same row."""
    run = MemoryRun(awaiting())
    run.activate()
    run.signal("else")
    run.drive()

    assert run.state is RunState.AWAITING
    assert len(run.rows) == 1


def test_a_signal_without_a_payload_is_one() -> None:
    """``None`` is what comes of it."""
    run = MemoryRun(awaiting())
    run.letters["review"] = [Letter(7, None)]
    run.drive()

    assert run.row("decide").result == "null"
    assert run.read == {7}


def test_a_step_may_take_no_payload() -> None:
    """The signal is read all the same."""

    class Go(Workflow[None]):
        @step(awaits="go")
        def begin(self) -> str:
            return "begun"

    run = MemoryRun(Go)
    run.signal("go", "whatever")
    run.drive()

    assert run.row("begin").result == '"begun"'
    assert run.read == {1}


def test_a_record_in_a_payload_is_loaded_for_the_step() -> None:
    """As among the arguments of a start: the step gets the record as it is now."""
    ref = RecordRef("sa", "shop:Customer", (7,))
    run = MemoryRun(awaiting(act=lambda self, verdict: seen.append(verdict)))
    seen: list[Any] = []
    run.records[ref] = "Ada"
    run.codec.register(complex, "unused", str, complex)
    run.letters["review"] = [Letter(1, run.codec.dumps({"who": ref, "all": [ref]}, what="payload"))]
    run.drive()

    assert seen == [{"who": "Ada", "all": ["Ada"]}]


def test_a_record_that_is_gone_is_an_error_of_the_step() -> None:
    """Its policies decide."""
    ref = RecordRef("sa", "shop:Customer", (7,))
    run = MemoryRun(awaiting(on_exception=Skip("stepwell.errors.RecordGone")))
    run.letters["review"] = [Letter(1, run.codec.dumps(ref, what="payload"))]
    run.drive()

    assert run.story == ["decide skipped", "tell success"]


def test_a_payload_that_cannot_be_read_back_fails_the_run() -> None:
    """No policy absorbs it, and the reason says what it is."""
    run = MemoryRun(awaiting(on_exception=Retry(wait=HOUR)))
    run.letters["review"] = [Letter(1, '{"~":"nobody knows"}')]
    run.drive()

    assert run.is_over_as(RunState.FAILED, Reason.UNDECODABLE)
    assert run.error_message is not None
    assert "payload of the signal" in run.error_message


# -- a retry -------------------------------------------------------------------------------------------------------


def test_a_retry_reads_the_same_signal_again() -> None:
    """Another one that came in the meantime is for another wait."""
    seen: list[Any] = []

    def fail_once(self: Any, verdict: Any) -> None:
        seen.append(verdict)
        if len(seen) == 1:
            run.signal("review", "second")
            raise ConnectionError

    run = MemoryRun(awaiting(act=fail_once, on_exception=Retry(wait=HOUR)))
    run.signal("review", "first")
    run.drive()

    assert seen == ["first", "first"]
    assert run.read == {1}
    assert [row for row in rows(run) if row[0] == "signal"] == [("signal", "decide", "success")]


def test_a_resume_reads_the_same_signal_again() -> None:
    """What ended the wait stands in the journal, also after a failure."""
    seen: list[Any] = []

    def fail_once(self: Any, verdict: Any) -> None:
        seen.append(verdict)
        if len(seen) == 1:
            raise ConnectionError

    run = MemoryRun(awaiting(act=fail_once))
    run.signal("review", "first")
    run.drive()
    assert run.state is RunState.FAILED
    run.resume()

    assert run.drive().state is RunState.COMPLETED
    assert seen == ["first", "first"]


# -- running out ---------------------------------------------------------------------------------------------------


def test_a_wait_with_a_timeout_wakes_by_itself() -> None:
    """The instant is fixed when the wait begins; what wakes the run for nothing does not move it."""
    run = MemoryRun(awaiting(Signal("review", timeout=DAY)))
    run.activate()
    assert run.waits == DAY
    run.clock.travel(HOUR)
    run.signal("else")
    run.activate()

    assert run.is_over_as(RunState.AWAITING, Reason.SIGNAL)
    assert run.wake_at == START + DAY


def test_a_wait_that_runs_out_is_an_error_of_the_step() -> None:
    """Before its body: it was never called, and the run fails with what did not come, and in which time."""
    run = MemoryRun(awaiting(Signal("review", timeout=DAY), act=lambda self, verdict: pytest.fail("called")))
    run.activate()
    run.wake()
    run.drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == "stepwell.errors.WaitTimedOut"
    assert run.error_message == "step 'decide': signal 'review' did not come within 1 day, 0:00:00."
    assert rows(run) == [("signal", "decide", "timed_out"), ("step", "decide", "failed")]
    assert [row.position for row in run.journal] == [1, 2]


@pytest.mark.parametrize(
    ("policy", "state", "outcome"),
    [
        (Skip(WaitTimedOut), RunState.COMPLETED, "skipped"),
        (Pause(WaitTimedOut), RunState.PAUSED, "paused"),
        (Cancel(WaitTimedOut), RunState.CANCELED, "canceled"),
        (Fail(TimeoutError), RunState.FAILED, "failed"),
    ],
)
def test_policies_decide_what_comes_of_a_wait_that_ran_out(
    policy: Any, state: RunState, outcome: str
) -> None:
    """As of any error of the step."""
    run = MemoryRun(awaiting(Signal("review", timeout=DAY), on_exception=policy))
    run.activate()
    run.wake()
    run.drive()

    assert run.state is state
    assert rows(run)[:2] == [("signal", "decide", "timed_out"), ("step", "decide", outcome)]


def test_after_a_retry_the_wait_begins_anew() -> None:
    """With its whole time, from the end of the delay; and it can run out again."""
    retry = Retry(WaitTimedOut, attempts=2, wait=HOUR)
    run = MemoryRun(awaiting(Signal("review", timeout=DAY), on_exception=retry))
    run.activate()
    run.wake()
    run.activate()
    assert run.is_over_as(RunState.WAITING, Reason.RETRY)
    assert run.wake_at == START + DAY + HOUR
    run.wake()
    run.activate()

    assert run.is_over_as(RunState.AWAITING, Reason.SIGNAL)
    assert run.wake_at == START + 2 * DAY + HOUR
    run.wake()
    run.drive()
    assert run.state is RunState.FAILED
    assert rows(run) == [
        ("signal", "decide", "timed_out"),
        ("step", "decide", "retried"),
        ("step", "decide", "failed"),
        ("signal", "decide", "timed_out"),
    ]


def test_a_resume_begins_the_wait_anew() -> None:
    """A person who resumes a run whose wait ran out gives it its time again."""
    run = MemoryRun(awaiting(Signal("review", timeout=DAY)))
    run.activate()
    run.wake()
    run.drive()
    run.resume()
    run.activate()

    assert run.is_over_as(RunState.AWAITING, Reason.SIGNAL)
    assert run.waits == DAY


@pytest.mark.parametrize("default", [None, "expired", {"a": 1}])
def test_a_default_takes_the_place_of_the_payload(default: Any) -> None:
    """No error: the step runs with it, and a retry does too; the row of the wait says that it timed out."""
    seen: list[Any] = []

    def fail_once(self: Any, verdict: Any) -> None:
        seen.append(verdict)
        if len(seen) == 1:
            raise ConnectionError

    signal = Signal("review", timeout=DAY, default=default)
    run = MemoryRun(awaiting(signal, fail_once, on_exception=Retry(wait=HOUR)))
    run.activate()
    run.wake()
    run.drive()

    assert seen == [default, default]
    assert rows(run)[0] == ("signal", "decide", "timed_out")
    assert run.journal[0].state is ExecutionState.COMPLETED


def test_a_default_that_cannot_be_stored_fails_the_run() -> None:
    """It is no engine's fault: the step has failed, and says why."""
    signal = Signal("review", timeout=DAY, default=object())
    run = MemoryRun(awaiting(signal, on_exception=Retry(wait=HOUR)))
    run.activate()
    run.wake()
    run.drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_message is not None
    assert "default of step 'decide' cannot be stored" in run.error_message


def test_where_both_are_there_the_signal_wins() -> None:
    """A signal that was sent in time, or too late, but before anybody looked."""
    run = MemoryRun(awaiting(Signal("review", timeout=DAY)))
    run.activate()
    run.clock.travel(2 * DAY)
    run.signal("review", "late but there")
    run.drive()

    assert run.row("decide").result == '"late but there"'


def test_a_handler_may_answer_a_wait_that_ran_out() -> None:
    """``@handles(WaitTimedOut)``: here the run is called off."""

    class Review(Workflow[None]):
        @handles(WaitTimedOut)
        def nobody_came(self, error: WaitTimedOut) -> None:
            self.cancel("nobody came")

        @step(awaits=Signal("review", timeout=DAY))
        def decide(self) -> None: ...

    run = MemoryRun(Review)
    run.activate()
    run.wake()
    run.drive()

    assert run.is_over_as(RunState.CANCELED, "nobody came")
    assert rows(run) == [("signal", "decide", "timed_out"), ("step", "decide", "canceled")]


# -- what ends with it ---------------------------------------------------------------------------------------------


def test_a_skip_ends_the_wait_with_its_step() -> None:
    """No row is left open, and the signal that comes later is for nobody."""
    run = MemoryRun(awaiting())
    run.activate()
    run.skip()
    run.drive()

    assert run.state is RunState.COMPLETED
    assert rows(run) == [
        ("signal", "decide", "skipped"),
        ("step", "decide", "skipped"),
        ("step", "tell", "success"),
    ]


def test_a_cancel_while_it_is_looked_at_ends_the_wait() -> None:
    """Also when it is honoured by the driver: nothing is left open."""
    run = MemoryRun(awaiting())
    run.activate()
    run.signal("else")
    run.at_boundary = lambda moment: run.cancel("no") if moment == "before" else None
    run.drive()

    assert run.is_over_as(RunState.CANCELED, "no")
    assert rows(run) == [("signal", "decide", "canceled"), ("command", "cancel", "success")]


def test_a_pause_keeps_the_wait_and_its_deadline() -> None:
    """Nothing of it begins anew at ``resume()``; a deadline that has passed meanwhile has passed."""
    run = MemoryRun(awaiting(Signal("review", timeout=DAY)))
    run.activate()
    run.pause()
    run.clock.travel(HOUR)
    run.resume()
    run.activate()
    assert run.is_over_as(RunState.AWAITING, Reason.SIGNAL)
    assert run.wake_at == START + DAY

    run.pause()
    run.clock.travel(DAY)
    run.resume()
    run.drive()
    assert run.error_class == "stepwell.errors.WaitTimedOut"


def test_a_signal_to_a_paused_run_is_kept() -> None:
    """The run stays paused; after ``resume()`` it finds it."""
    run = MemoryRun(awaiting())
    run.activate()
    run.pause()
    run.signal("review", "kept")
    assert run.state is RunState.PAUSED
    run.resume()
    run.drive()

    assert run.row("decide").result == '"kept"'


@pytest.mark.parametrize("moment", ["before", "with"])
def test_a_signal_between_the_look_and_the_park_is_not_lost(moment: str) -> None:
    """The counter has moved on: the park is refused, and the run looks again."""
    run = MemoryRun(awaiting())
    sent: list[str] = []

    def send(now: str) -> None:
        if now == moment and not sent:
            sent.append(now)
            run.signal("review", "just in time")

    run.at_boundary = send
    run.drive()

    assert run.row("decide").result == '"just in time"'


def test_a_wait_comes_before_the_signal() -> None:
    """``wait=`` and ``awaits=``: the step is due first, then it waits for its signal; the timeout counts from there."""
    run = MemoryRun(awaiting(Signal("review", timeout=HOUR), wait=DAY, on_exception=Retry(wait=HOUR)))
    run.activate()
    assert run.is_over_as(RunState.WAITING, Reason.TIMER)
    run.wake()
    run.activate()
    assert run.is_over_as(RunState.AWAITING, Reason.SIGNAL)
    assert run.wake_at == START + DAY + HOUR
    run.wake()
    run.activate()

    assert [row.outcome for row in run.journal[:2]] == [Outcome.RETRIED, Outcome.TIMED_OUT]
    run.signal("review")
    run.drive()
    assert run.state is RunState.COMPLETED
    assert not any(row.outcome is None for row in run.journal)


def test_a_step_that_is_left_out_is_not_waited_for() -> None:
    """``skip_if`` is looked at before the run parks, and again when the signal is there."""
    answers = [True, False, True]
    run = MemoryRun(awaiting(skip_if=lambda self: answers.pop(0)))
    assert run.drive().story == ["decide skipped", "tell success"]

    again = MemoryRun(run.workflow)
    again.activate()
    assert again.state is RunState.AWAITING
    again.signal("review")
    again.drive()
    assert again.story == ["decide skipped", "tell success"]
    assert answers == []
