"""Gates and polls: conditions that hold a step back until they are true."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Pause, Poll, Retry, Skip, WaitTimedOut, Workflow, resumable_step, step
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from tests.unit.execution.memory import START, MemoryRun
from tests.unit.execution.test_waits_for_signals import rows

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class Door:
    """A condition, and how often it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, workflow: Any) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer(workflow) if callable(answer) else answer


def gated(door: Callable[[Any], object], **options: Any) -> Any:
    """A workflow whose first step is behind a gate."""

    class Gated(Workflow[None]):
        @step(gate=door, **options)
        def enter(self) -> None: ...

        @step
        def sit(self) -> None: ...

    return Gated


def polling(
    door: Callable[[Any], object], *, every: timedelta = HOUR, more: Any = None, **options: Any
) -> Any:
    """A workflow whose first step polls a condition."""

    class Polling(Workflow[None]):
        @step(wait_until=Poll(door, every=every, **(more or {})), **options)
        def enter(self) -> None: ...

        @step
        def sit(self) -> None: ...

    return Polling


# -- gates ---------------------------------------------------------------------------------------------------------


def test_an_open_gate_costs_nothing() -> None:
    """No row, no park: the step runs."""
    door = Door(True)
    run = MemoryRun(gated(door))
    run.activate()

    assert run.story == ["enter success", "sit success"]
    assert (len(run.rows), door.asked) == (2, 1)


def test_a_closed_gate_parks_the_run_until_it_is_woken() -> None:
    """Nothing polls: ``run.wake()`` has it look again, at any time, as often as it takes."""
    door = Door(False, False, True)
    run = MemoryRun(gated(door))
    run.activate()
    assert run.is_over_as(RunState.AWAITING, Reason.GATE)
    assert run.wake_at is None
    run.nudge()
    run.activate()
    assert run.state is RunState.AWAITING
    assert len(run.rows) == 1
    run.nudge()
    run.drive()

    assert rows(run) == [
        ("gate", "enter", "success"),
        ("step", "enter", "success"),
        ("step", "sit", "success"),
    ]
    assert door.asked == 3


def test_a_wake_between_the_look_and_the_park_is_not_lost() -> None:
    """What opened the gate just after it was looked at is seen."""
    door = Door(False, True)
    run = MemoryRun(gated(door))
    woken: list[str] = []

    def wake(moment: str) -> None:
        if moment == "before" and not woken:
            woken.append(moment)
            run.nudge()

    run.at_boundary = wake
    run.drive()

    assert run.state is RunState.COMPLETED


def test_a_gate_is_looked_at_before_each_attempt() -> None:
    """A retry does not slip through a gate that has been closed meanwhile."""
    door = Door(True, False, True)
    attempts: list[int] = []

    class Gated(Workflow[None]):
        @step(gate=door, on_exception=Retry(wait=HOUR))
        def enter(self) -> None:
            attempts.append(1)
            if len(attempts) == 1:
                raise ConnectionError

    run = MemoryRun(Gated)
    run.activate()
    run.wake()
    run.activate()
    assert run.is_over_as(RunState.AWAITING, Reason.GATE)
    run.nudge()

    assert run.drive().state is RunState.COMPLETED


# -- polls ---------------------------------------------------------------------------------------------------------


def test_a_poll_that_holds_at_once_costs_nothing() -> None:
    """It is looked at at least once, before anything is written."""
    door = Door(True)
    run = MemoryRun(polling(door))
    run.activate()

    assert run.story == ["enter success", "sit success"]
    assert (len(run.rows), door.asked) == (2, 1)


def test_a_poll_is_looked_at_again_after_its_interval() -> None:
    """The run is parked between two looks, on one row, and woken by the clock."""
    door = Door(False, False, True)
    run = MemoryRun(polling(door))
    run.activate()
    assert run.is_over_as(RunState.WAITING, Reason.POLL)
    assert run.waits == HOUR
    run.drive()

    assert run.clock.now() == START + 2 * HOUR
    assert rows(run) == [
        ("poll", "enter", "success"),
        ("step", "enter", "success"),
        ("step", "sit", "success"),
    ]
    assert door.asked == 3
    assert run.journal[0].started_at == START


def test_a_poll_runs_out() -> None:
    """The last look is at the deadline, which clips the interval; then it is an error of the step."""
    door = Door(False)
    run = MemoryRun(polling(door, every=2 * HOUR, more={"timeout": 3 * HOUR}))
    run.drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.clock.now() == START + 3 * HOUR
    assert door.asked == 3
    assert run.error_class == "stepwell.errors.WaitTimedOut"
    assert run.error_message == "step 'enter': its condition did not hold within 3:00:00."
    assert rows(run) == [("poll", "enter", "timed_out"), ("step", "enter", "failed")]


def test_a_poll_that_holds_at_its_deadline_holds() -> None:
    """The condition is asked before the clock is."""
    run = MemoryRun(polling(Door(False, False, True), every=2 * HOUR, more={"timeout": 3 * HOUR}))

    assert run.drive().state is RunState.COMPLETED


def test_a_poll_is_looked_at_once_even_if_a_look_takes_longer_than_its_timeout() -> None:
    """A slow condition with a short timeout is no reason never to ask it, nor to write its row twice."""
    run = MemoryRun(
        polling(Door(lambda self: bool(run.clock.travel(HOUR)) and False), more={"timeout": HOUR})
    )
    run.drive()

    assert run.error_class == "stepwell.errors.WaitTimedOut"
    assert rows(run) == [("poll", "enter", "timed_out"), ("step", "enter", "failed")]


def test_a_poll_with_a_default_goes_on() -> None:
    """The step runs although the condition does not hold; the row says that it timed out."""
    run = MemoryRun(polling(Door(False), more={"timeout": 2 * HOUR, "default": None}))
    run.drive()

    assert run.state is RunState.COMPLETED
    assert rows(run)[0] == ("poll", "enter", "timed_out")
    assert run.journal[0].state is ExecutionState.COMPLETED


def test_after_a_retry_a_poll_that_ran_out_begins_anew() -> None:
    """With its whole time."""
    retry = Retry(WaitTimedOut, attempts=2, wait=timedelta())
    run = MemoryRun(polling(Door(False), more={"timeout": HOUR}, on_exception=retry))
    run.drive()

    assert run.clock.now() == START + 2 * HOUR
    assert run.story == ["enter retried", "enter failed"]


def test_a_poll_that_held_holds_for_the_retries_of_its_step() -> None:
    """What ended a wait that was written down stands in the journal."""
    door = Door(False, True, False)
    attempts: list[int] = []

    class Polling(Workflow[None]):
        @step(wait_until=Poll(door, every=HOUR), on_exception=Retry(wait=HOUR))
        def enter(self) -> None:
            attempts.append(1)
            if len(attempts) == 1:
                raise ConnectionError

    run = MemoryRun(Polling).drive()

    assert run.state is RunState.COMPLETED
    assert door.asked == 2


def test_a_wake_ahead_of_its_time_asks_nothing() -> None:
    """A pause and a resume in the middle of an interval: what remains of it is kept."""
    door = Door(False, True)
    run = MemoryRun(polling(door))
    run.activate()
    run.clock.travel(HOUR / 2)
    run.pause()
    run.resume()
    run.activate()

    assert run.is_over_as(RunState.WAITING, Reason.POLL)
    assert run.wake_at == START + HOUR
    assert door.asked == 1
    assert run.drive().state is RunState.COMPLETED


def test_a_pause_keeps_the_deadline_of_a_poll() -> None:
    """It goes on while the run is paused."""
    run = MemoryRun(polling(Door(False), more={"timeout": DAY}))
    run.activate()
    run.pause()
    run.clock.travel(2 * DAY)
    run.resume()
    run.drive()

    assert run.error_class == "stepwell.errors.WaitTimedOut"
    assert run.clock.now() == START + 2 * DAY


# -- both ----------------------------------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("make", [gated, polling], ids=["gate", "poll"])


@BOTH
def test_a_condition_sees_hero_context_and_arguments(make: Any) -> None:
    """It is asked in the surroundings of the step."""
    run = MemoryRun(
        make(lambda self: self.args["open"] and self.context.get("x") is None), args={"open": True}
    )

    assert run.drive().state is RunState.COMPLETED


@BOTH
def test_an_error_in_a_condition_is_an_error_of_the_step(make: Any) -> None:
    """Its policies decide; the wait goes on after a retry, with the row that it has."""
    door = Door(ConnectionError("once"), False, True)
    run = MemoryRun(make(door, on_exception=Retry(ConnectionError, wait=HOUR)))
    run.activate()
    assert run.is_over_as(RunState.WAITING, Reason.RETRY)
    assert run.story == ["enter retried", "enter scheduled"]
    run.wake()
    run.activate()
    if make is gated:
        run.nudge()

    assert run.drive().state is RunState.COMPLETED
    assert door.asked == 3
    assert not any(row.outcome is None for row in run.journal)


@BOTH
def test_an_error_in_a_condition_that_waits_already(make: Any) -> None:
    """It is skipped with its step: no row is left open."""
    run = MemoryRun(make(Door(False, ConnectionError()), on_exception=Skip(ConnectionError)))
    run.activate()
    run.wake() if run.wake_at else run.nudge()
    run.drive()

    assert run.state is RunState.COMPLETED
    assert [row[2] for row in rows(run)] == ["skipped", "skipped", "success"]


@BOTH
def test_a_failed_condition_goes_on_waiting_after_a_resume(make: Any) -> None:
    """The row stays open while a person looks after it."""
    run = MemoryRun(make(Door(False, ConnectionError(), True)))
    run.activate()
    run.wake() if run.wake_at else run.nudge()
    run.drive()
    assert run.state is RunState.FAILED
    assert run.journal[0].state is ExecutionState.SCHEDULED
    run.resume()

    assert run.drive().state is RunState.COMPLETED
    assert not any(row.outcome is None for row in run.journal)


@BOTH
@pytest.mark.parametrize("verb", ["skip", "cancel", "finish", "pause"])
def test_a_condition_may_say_a_verb(make: Any, verb: str) -> None:
    """It is an answer about the step; what it waited for ends with the step, and only then."""
    run = MemoryRun(make(Door(False, lambda self: getattr(self, verb)())))
    run.activate()
    run.wake() if run.wake_at else run.nudge()
    run.drive()

    wait = run.journal[0]
    states = {
        "skip": (RunState.COMPLETED, ExecutionState.SKIPPED),
        "cancel": (RunState.CANCELED, ExecutionState.CANCELED),
        "finish": (RunState.COMPLETED, ExecutionState.SKIPPED),
        "pause": (RunState.PAUSED, ExecutionState.SCHEDULED),
    }
    assert (run.state, wait.state) == states[verb]


@BOTH
@pytest.mark.parametrize("how", ["session", "context"])
def test_a_condition_changes_nothing(make: Any, how: str) -> None:
    """What it writes is refused, and not stored by chance with something else."""

    def door(self: Any) -> bool:
        if how == "session":
            self.session.append("written")
        else:
            self.context["written"] = True
        return True

    run = MemoryRun(make(door))
    run.drive()

    assert run.state is RunState.FAILED
    assert run.error_message is not None
    assert "Conditions are looked at, not journaled" in run.error_message
    assert (run.ledger, run.memory) == ([], {})


@BOTH
def test_a_skip_from_outside_ends_the_wait(make: Any) -> None:
    """Its row ends with the step's."""
    run = MemoryRun(make(Door(False)))
    run.activate()
    run.skip()
    run.drive()

    assert run.state is RunState.COMPLETED
    assert [row[2] for row in rows(run)] == ["skipped", "skipped", "success"]


@BOTH
def test_a_cancel_that_comes_while_it_is_asked_ends_the_wait(make: Any) -> None:
    """The driver honours it instead of parking."""
    run = MemoryRun(make(Door(lambda self: run.cancel("no") and False)))
    run.drive()

    assert run.is_over_as(RunState.CANCELED, "no")
    assert not any(row.outcome is None for row in run.journal)


@BOTH
def test_a_step_that_is_under_way_does_not_wait_again(make: Any) -> None:
    """A resumable step that goes on has its wait behind it."""
    door = Door(True, False)

    class Steps(Workflow[None]):
        @resumable_step(
            max_iterations=1,
            **({"gate": door} if make is gated else {"wait_until": Poll(door, every=HOUR)}),
        )
        def walk(self) -> None:
            for _ in self.cursor.iterate(range(3)):
                pass

    run = MemoryRun(Steps)

    assert run.drive().state is RunState.COMPLETED
    assert door.asked == 1


@BOTH
def test_a_policy_that_pauses_keeps_the_wait(make: Any) -> None:
    """``resume()`` asks again."""
    run = MemoryRun(make(Door(ValueError(), True), on_exception=Pause(ValueError)))
    run.drive()
    assert run.state is RunState.PAUSED
    run.resume()

    assert run.drive().state is RunState.COMPLETED
    assert [row.kind for row in run.journal] == [Kind.STEP, Kind.COMMAND, Kind.STEP, Kind.STEP]
    assert run.journal[0].outcome is Outcome.PAUSED
