"""Waits of ``run()``: sleeps, conditions, gates and signals, each recorded once and passed by every replay."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from stepwell import Pause, Retry, RunError, Skip, StepFailed, WaitTimedOut, Workflow, step
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from tests.unit.execution.memory import START, MemoryRun
from tests.unit.execution.procedures import crashed_everywhere, driven, replayed

HOUR = timedelta(hours=1)


def rows(run: MemoryRun, kind: Kind) -> list[tuple[str, str | None, str, str | None]]:
    return [(row.name, row.key, row.state, row.outcome) for row in run.journal if row.kind is kind]


# -- sleeps ---------------------------------------------------------------------------------------------------------


def test_a_sleep_is_fixed_when_it_is_first_reached() -> None:
    """However often the run is taken up before it is over."""

    class Sleeps(Workflow[None]):
        def run(self) -> str:
            self.sleep(3 * HOUR)
            return "awake"

    run = MemoryRun(Sleeps)
    run.activate()
    assert run.is_over_as(RunState.WAITING, Reason.TIMER)
    for _ in range(2):
        run.clock.travel(HOUR)
        run.pause()
        run.resume()
        run.activate()
    assert run.waits == HOUR
    run.drive()
    assert (run.result, run.clock.now()) == ('"awake"', START + 3 * HOUR)
    assert rows(run, Kind.TIMER) == [("sleep", None, ExecutionState.COMPLETED, Outcome.SUCCESS)]


def test_sleeps_have_names_and_numbers() -> None:
    """And take their time one after the other."""

    class Sleeps(Workflow[None]):
        def run(self) -> None:
            for _ in range(2):
                self.sleep(HOUR)
            self.sleep(HOUR, name="nap")
            self.sleep(timedelta())
            self.sleep_until(START)

    run = replayed(MemoryRun(Sleeps)).drive()
    assert run.clock.now() == START + 3 * HOUR
    assert [(name, key) for name, key, *_ in rows(run, Kind.TIMER)] == [
        ("sleep", None),
        ("sleep", "#2"),
        ("nap", None),
        ("sleep", "#3"),
        ("sleep_until", None),
    ]


def test_a_given_instant_is_fixed_too() -> None:
    """Another one in the code later moves nothing."""
    instants = [START + 2 * HOUR]

    class Sleeps(Workflow[None]):
        def run(self) -> None:
            self.sleep_until(instants[-1])

    run = MemoryRun(Sleeps)
    run.activate()
    instants.append(START + 9 * HOUR)
    run.pause()
    run.resume()
    run.drive()
    assert run.clock.now() == START + 2 * HOUR


@pytest.mark.parametrize("by_name", [False, True])
def test_a_computed_instant_moves_the_wait(by_name: bool) -> None:
    """It is asked again whenever the run wakes, and parks again if it has moved."""
    moves = [START + HOUR, START + 3 * HOUR, START + 2 * HOUR]

    class Sleeps(Workflow[None]):
        def run(self) -> None:
            self.sleep_until("appointment" if by_name else self.appointment)

        def appointment(self) -> datetime:
            return moves[0]

    run = MemoryRun(Sleeps)
    run.activate()
    assert run.waits == HOUR
    moves.pop(0)
    run.wake()
    run.activate()
    assert run.waits == 2 * HOUR
    moves.pop(0)
    run.pause()
    run.resume()
    run.activate()
    assert run.waits == HOUR
    run.drive()
    assert run.clock.now() == START + 2 * HOUR
    moves[0] = START + 99 * HOUR
    assert run.state is RunState.COMPLETED


def test_an_instant_that_is_none_is_an_error_of_the_wait() -> None:
    """With a message that says what it must be; the run can catch it."""

    class Sleeps(Workflow[None]):
        def run(self) -> str:
            try:
                self.sleep_until(lambda: datetime(2026, 1, 1))
            except StepFailed as failure:
                return failure.message
            return "awake"

    assert "aware" in driven(Sleeps).result


@pytest.mark.parametrize("verb", ["sleep", "sleep_until", "wait_until", "continue_if"])
@pytest.mark.parametrize("name", ["x" * 191, "a\0b", "a\ud800b", " a", "", 7])
def test_a_name_that_no_row_can_hold_is_refused_at_the_call(verb: str, name: Any) -> None:
    """It would break the write of the wait, again and again, until the run fails as if its workers had died."""
    given = {"sleep": HOUR, "sleep_until": START + HOUR, "wait_until": bool, "continue_if": bool}[verb]

    class Waits(Workflow[None]):
        def run(self) -> None:
            getattr(self, verb)(given, name=name)

    run = driven(Waits)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert (run.error_message or "").startswith(f"{verb}(): name must ")


# -- conditions -----------------------------------------------------------------------------------------------------


def polling(seen: list[datetime], true_from: datetime | None, **options: Any) -> type[Workflow[None]]:
    class Polls(Workflow[None]):
        def run(self) -> str:
            try:
                return f"answer {self.wait_until(self.is_paid, every=HOUR, **options)}"
            except WaitTimedOut as error:
                return f"late: {error}"

        def is_paid(self) -> bool:
            now = self._runtime._recorder.now()
            seen.append(now)
            return true_from is not None and now >= true_from

    return Polls


def test_a_condition_that_holds_costs_no_wait() -> None:
    """It is looked at once, and its answer recorded."""
    seen: list[datetime] = []
    run = driven(polling(seen, START))
    assert (run.result, seen, run.activations) == ('"answer True"', [START], 1)
    assert rows(run, Kind.POLL) == [("is_paid", None, ExecutionState.COMPLETED, Outcome.SUCCESS)]


def test_a_condition_is_looked_at_again_and_again() -> None:
    """At its interval, and not again once it held."""
    seen: list[datetime] = []
    run = replayed(MemoryRun(polling(seen, START + 3 * HOUR))).drive()
    assert (run.result, run.clock.now()) == ('"answer True"', START + 3 * HOUR)
    assert sorted(set(seen)) == [START + number * HOUR for number in range(4)]


def test_the_last_look_falls_on_the_timeout() -> None:
    """And raises, on every pass alike."""
    seen: list[datetime] = []
    timeout = timedelta(minutes=150)
    run = replayed(MemoryRun(polling(seen, None, timeout=timeout))).drive()
    assert "its condition did not hold within 2:30:00" in run.result
    assert max(seen) == run.clock.now() == START + timeout
    assert rows(run, Kind.POLL) == [("is_paid", None, ExecutionState.FAILED, Outcome.TIMED_OUT)]


@pytest.mark.parametrize("default", [None, "expired", [1]])
def test_a_default_answers_in_place_of_an_error(default: Any) -> None:
    """None too."""
    run = replayed(MemoryRun(polling([], None, timeout=HOUR, default=default))).drive()
    assert json.loads(run.result) == f"answer {default}"


def test_a_wait_that_ran_out_fails_the_run_if_nobody_catches_it() -> None:
    """A resume waits anew, and whole."""

    class Polls(Workflow[None]):
        policies = [Retry(attempts=9)]

        def run(self) -> None:
            self.wait_until(lambda: False, timeout=2 * HOUR)

    run = driven(Polls)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == "stepwell.errors.WaitTimedOut"
    run.resume()
    run.drive()
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.clock.now() == START + 4 * HOUR


def test_the_same_error_is_raised_on_every_pass() -> None:
    """Class, text and cause."""
    seen: list[tuple[type, str, Any]] = []

    class Polls(Workflow[None]):
        def run(self) -> None:
            try:
                self.wait_until(lambda: False, timeout=HOUR, name="payment")
            except WaitTimedOut as error:
                seen.append((type(error), str(error), error.__context__ and None))
            self.sleep(HOUR)

    replayed(MemoryRun(Polls)).drive()
    assert len(seen) > 1
    assert len(set(seen)) == 1


def broken(times: int, policies: Any = (), *, of_class: Any = ()) -> tuple[type[Workflow[None]], list[int]]:
    asked: list[int] = []
    given = list(of_class)

    class Polls(Workflow[None]):
        policies = given

        def run(self) -> str:
            try:
                return f"answer {self.ask()}"
            except StepFailed as failure:
                return f"{failure.step}: {failure.error_class}"

        def ask(self) -> Any:
            return self.wait_until(self.is_paid, every=HOUR, timeout=5 * HOUR, on_exception=policies)

        def is_paid(self) -> bool:
            asked.append(1)
            if len(asked) <= times:
                raise ConnectionError
            return True

    return Polls, asked


def test_an_error_of_a_condition_can_be_caught() -> None:
    """It is recorded under the wait's name."""
    workflow, asked = broken(9)
    run = replayed(MemoryRun(workflow)).drive()
    assert (run.result, len(asked)) == ('"is_paid: ConnectionError"', 1)


def test_a_waits_own_policies_come_first_and_the_classs_blanket_ones_never() -> None:
    """A broken condition is not retried for ever; one that the class names is."""
    retry = Retry(ConnectionError, attempts=3, wait=timedelta(minutes=1))
    for policies, of_class, result, asks in [
        (retry, (), '"answer True"', 3),
        ((), [retry], '"answer True"', 3),
        ((), [Retry(attempts=9)], '"is_paid: ConnectionError"', 1),
        (Skip(ConnectionError), [retry], '"answer None"', 1),
        (Retry(attempts=2, wait=HOUR), (), '"is_paid: ConnectionError"', 2),
    ]:
        workflow, asked = broken(2, policies, of_class=of_class)
        run = replayed(MemoryRun(workflow)).drive()
        assert (run.result, len(asked)) == (result, asks)


def test_pause_of_a_condition_stops_the_run() -> None:
    """Resumed, it is asked again."""
    workflow, asked = broken(1, Pause(ConnectionError))
    run = driven(workflow)
    assert run.state is RunState.PAUSED
    run.resume()
    assert run.drive().result == '"answer True"'
    assert len(asked) == 2


@pytest.mark.parametrize("delay", [timedelta(), timedelta(minutes=30)])
def test_an_error_that_is_retried_moves_no_timeout(delay: timedelta) -> None:
    """The wait counts from the first look."""
    looks: list[int] = []

    class Polls(Workflow[None]):
        def run(self) -> str:
            try:
                retry = Retry(ConnectionError, attempts=9, wait=delay)
                self.wait_until(self.is_paid, every=HOUR, timeout=4 * HOUR, on_exception=retry)
            except WaitTimedOut:
                return "late"
            return "paid"

        def is_paid(self) -> bool:
            looks.append(1)
            if len(looks) == 3:
                raise ConnectionError
            return False

    run = driven(Polls)
    assert (run.result, run.clock.now()) == ('"late"', START + 4 * HOUR)


def test_a_condition_may_not_write() -> None:
    """Neither context nor records: nobody would commit it."""

    class Polls(Workflow[None]):
        def run(self, what: str) -> str:
            try:
                self.wait_until(lambda: self.write(what))
            except StepFailed as failure:
                return failure.message
            return "waited"

        def write(self, what: str) -> bool:
            if what == "context":
                self.context["seen"] = True
            else:
                self.session.append("written")
            return True

    for what in ("context", "session"):
        run = driven(Polls, what=what)
        assert "Conditions are looked at, not journaled" in run.result
        assert (run.memory, run.ledger) == ({}, [])


def test_a_condition_has_no_verbs_and_no_steps() -> None:
    """It is asked; whatever is durable belongs into ``run()``."""
    verbs: list[Callable[[Any], Any]] = [
        lambda self: self.work(),
        lambda self: self.sleep(HOUR),
        lambda self: self.wait_for_signal("go"),
    ]

    class Polls(Workflow[None]):
        def run(self, number: int) -> str:
            try:
                self.wait_until(lambda: verbs[number](self))
            except StepFailed as failure:
                return str(failure.caused_by(RunError))
            return "waited"

        @step
        def work(self) -> bool:
            return True

    for number in range(len(verbs)):
        run = driven(Polls, number=number)
        assert (run.result, run.story) == ('"True"', [])


# -- gates ----------------------------------------------------------------------------------------------------------


def test_a_gate_is_looked_at_when_the_run_is_woken() -> None:
    """And only then; passed once it held, whatever it says later."""
    is_open = [False]
    looks: list[int] = []

    class Gated(Workflow[None]):
        def run(self) -> str:
            self.continue_if(self.is_open)
            self.pause()
            return "through"

        def is_open(self) -> bool:
            looks.append(1)
            return is_open[-1]

    run = replayed(MemoryRun(Gated)).drive()
    assert run.is_over_as(RunState.AWAITING, Reason.GATE)
    assert run.wake_at is None
    before = len(looks)
    run.nudge()
    run.drive()
    assert (run.state, len(looks)) == (RunState.AWAITING, before + 1)
    is_open.append(True)
    run.nudge()
    run.drive()
    is_open.append(False)
    run.resume()
    run.drive()
    assert (run.result, len(looks)) == ('"through"', before + 2)
    assert rows(run, Kind.GATE) == [("is_open", None, ExecutionState.COMPLETED, Outcome.SUCCESS)]


def test_a_wake_between_look_and_park_is_not_lost() -> None:
    """The park is refused, and the gate looked at again."""
    is_open: list[bool] = []

    class Gated(Workflow[None]):
        def run(self) -> str:
            self.continue_if(lambda: bool(is_open))
            return "through"

    run = MemoryRun(Gated)

    def at_boundary(moment: str) -> None:
        if moment == "before" and not is_open:
            is_open.append(True)
            run.nudge()

    run.at_boundary = at_boundary
    assert run.drive().result == '"through"'


# -- signals --------------------------------------------------------------------------------------------------------


class Signals(Workflow[None]):
    """Reads so many signals of two names."""

    def run(self, names: list[str]) -> list[Any]:
        return [self.wait_for_signal(name) for name in names]


def test_signals_are_read_in_order_early_or_late() -> None:
    """One that comes before the run waits for it is kept; each is read once, by its name."""
    run = MemoryRun(Signals, args={"names": ["a", "b", "a", "a"]})
    run.signal("a", 1)
    run.signal("a", 2)
    replayed(run).drive()
    assert run.is_over_as(RunState.AWAITING, Reason.SIGNAL)
    run.signal("b", {"x": 1})
    run.drive()
    assert run.state is RunState.AWAITING
    run.signal("a")
    run.drive()
    assert json.loads(run.result) == [1, {"x": 1}, 2, None]
    assert [key for _, key, *_ in rows(run, Kind.SIGNAL)] == [None, None, "#2", "#3"]


def test_signals_in_a_loop_any_number_of_times() -> None:
    """What is unread at the end is counted."""

    class Loop(Workflow[None]):
        def run(self) -> int:
            total = 0
            while (number := self.wait_for_signal("add")) is not None:
                total += number
                self.note(total)
            return total

        @step
        def note(self, total: int) -> None: ...

    run = replayed(MemoryRun(Loop)).drive()
    for number in range(20):
        run.signal("add", number)
        run.drive()
    run.signal("add")
    run.signal("add", 99)
    run.drive()
    assert run.result == str(sum(range(20)))
    assert json.loads(run.details or "{}") == {"unread_signals": 1}
    assert len(run.story) == 20


def test_a_signal_between_look_and_park_is_not_lost() -> None:
    """The park is refused, and the mailbox looked at again."""
    run = MemoryRun(Signals, args={"names": ["a"]})
    sent: list[int] = []

    def at_boundary(moment: str) -> None:
        if moment == "before" and not sent:
            sent.append(1)
            run.signal("a", "in time")

    run.at_boundary = at_boundary
    assert json.loads(run.drive().result) == ["in time"]


def awaiting(**options: Any) -> type[Workflow[None]]:
    class Awaits(Workflow[None]):
        def run(self) -> Any:
            try:
                return ["got", self.wait_for_signal("go", **options)]
            except WaitTimedOut as error:
                return ["late", str(error)]

    return Awaits


LIMITS = [{"timeout": 2 * HOUR}, {"deadline": START + 2 * HOUR}]


@pytest.mark.parametrize("limit", LIMITS)
def test_a_signal_that_does_not_come_in_time(limit: dict[str, Any]) -> None:
    """Raises at its instant, on every pass alike, and says how long it was waited for."""
    run = replayed(MemoryRun(awaiting(**limit))).drive()
    assert run.state is RunState.AWAITING
    assert run.waits == 2 * HOUR
    run.wake()
    run.drive()
    assert json.loads(run.result)[0] == "late"
    assert "signal 'go' did not come within 2:00:00" in json.loads(run.result)[1]
    assert rows(run, Kind.SIGNAL) == [("go", None, ExecutionState.FAILED, Outcome.TIMED_OUT)]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("default", [None, "expired"])
def test_a_default_answers_for_a_signal(limit: dict[str, Any], default: Any) -> None:
    """In place of the error."""
    run = replayed(MemoryRun(awaiting(**limit, default=default))).drive()
    run.wake()
    run.drive()
    assert json.loads(run.result) == ["got", default]


@pytest.mark.parametrize("limit", LIMITS)
def test_a_signal_that_is_there_at_the_deadline_wins(limit: dict[str, Any]) -> None:
    """Both there at the moment of looking."""
    run = MemoryRun(awaiting(**limit)).drive()
    run.clock.travel(5 * HOUR)
    run.signal("go", 1)
    run.drive()
    assert json.loads(run.result) == ["got", 1]


def test_a_deadline_that_is_over_is_looked_at_once() -> None:
    """A signal that is there counts; none is late."""
    late = driven(awaiting(deadline=START - HOUR))
    assert json.loads(late.result)[0] == "late"
    assert "-1 day" not in late.result
    run = MemoryRun(awaiting(deadline=START - HOUR))
    run.signal("go", 1)
    assert json.loads(run.drive().result) == ["got", 1]


def test_a_late_signal_is_for_the_next_wait() -> None:
    """It is not lost with the wait that ran out."""

    class Twice(Workflow[None]):
        def run(self) -> list[Any]:
            first = self.wait_for_signal("go", timeout=HOUR, default="late")
            return [first, self.wait_for_signal("go")]

    run = MemoryRun(Twice).drive()
    run.wake()
    run.drive()
    run.signal("go", 1)
    run.drive()
    assert json.loads(run.result) == ["late", 1]


def test_a_signal_to_a_stopped_run_is_kept() -> None:
    """Paused or failed, it is read after the resume."""

    class Stops(Workflow[None]):
        def run(self) -> Any:
            self.pause()
            return self.wait_for_signal("go")

    run = driven(Stops)
    run.signal("go", 1)
    assert run.state is RunState.PAUSED
    run.resume()
    assert run.drive().result == "1"


def test_a_wait_survives_crashes_everywhere() -> None:
    """A signal is read once, a sleep takes its time once, a poll ends once."""

    class Mixed(Workflow[None]):
        def run(self) -> list[Any]:
            self.sleep(HOUR)
            first = self.wait_for_signal("go")
            self.wait_until(lambda: True, name="ready")
            late = self.wait_for_signal("never", deadline=START + 3 * HOUR, default="late")
            return [first, late, self.wait_for_signal("go")]

    def make() -> MemoryRun:
        run = MemoryRun(Mixed)
        run.signal("go", 1)
        run.signal("go", 2)
        return run

    runs = crashed_everywhere(make)
    for run in runs:
        assert run.is_over_as(RunState.AWAITING, Reason.SIGNAL)
        run.wake()
        run.drive()
        assert json.loads(run.result) == [1, "late", 2]
        assert run.clock.now() == START + 3 * HOUR
    assert len(runs) > 10
