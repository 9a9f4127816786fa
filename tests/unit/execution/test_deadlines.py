"""Deadlines: how long a whole run may take, with its waits or without."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import Cancel, DeadlineExceeded, Poll, Retry, Signal, Workflow, resumable_step, step
from stepwell.states import RunState
from tests.unit.execution.memory import START, MemoryRun

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def taking(*durations: timedelta, limit: timedelta | None = DAY, waits: bool = True, **options: Any) -> Any:
    """A workflow whose steps take so long."""

    class Taking(Workflow[None]):
        deadline = limit
        deadline_includes_waits = waits
        policies = options.pop("policies", [])

        for number, duration in enumerate(durations):

            @step(name=f"step{number}", **(options if number else {}))
            def work(self, *, duration: timedelta = duration) -> None:
                clock.travel(duration)

    clock = MemoryRun(Taking).clock
    Taking.clock_of_test = clock
    return Taking


def run_of(cls: Any) -> MemoryRun:
    return MemoryRun(cls, clock=cls.clock_of_test)


def test_a_run_that_takes_too_long_fails_before_its_next_step() -> None:
    """The step that was running is finished and kept; the next one has the error."""
    run = run_of(taking(30 * HOUR, HOUR)).drive()

    assert run.state is RunState.FAILED
    assert run.error_class == "stepwell.errors.DeadlineExceeded"
    assert run.error_message == (
        "the run has taken 1 day, 6:00:00; its deadline is 1 day, 0:00:00 after its start."
    )
    assert run.story == ["step0 success", "step1 failed"]


def test_a_run_in_time_is_let_be() -> None:
    """A second before it is in time; what the last step takes is nobody's business any more."""
    run = run_of(taking(DAY - timedelta(seconds=1), 3 * DAY)).drive()

    assert run.state is RunState.COMPLETED


def test_a_parked_run_is_woken_for_its_deadline() -> None:
    """A wait that is longer than the deadline ends there."""
    run = run_of(taking(HOUR, HOUR, wait=7 * DAY))
    run.activate()

    assert run.wake_at == START + DAY
    run.drive()
    assert run.error_class == "stepwell.errors.DeadlineExceeded"
    assert run.clock.now() == START + DAY


def test_a_run_that_awaits_a_signal_is_woken_for_its_deadline() -> None:
    """Also when the wait itself has no end."""
    run = run_of(taking(HOUR, HOUR, awaits="go"))
    run.activate()

    assert (run.state, run.wake_at) == (RunState.AWAITING, START + DAY)
    run.wake()
    run.drive()
    assert run.error_class == "stepwell.errors.DeadlineExceeded"


def test_policies_decide_about_a_deadline() -> None:
    """It is an error of the step that comes next."""
    run = run_of(taking(2 * DAY, HOUR, policies=[Cancel(DeadlineExceeded)])).drive()

    assert run.state is RunState.CANCELED


def test_a_retry_of_a_missed_deadline_keeps_its_delay() -> None:
    """It helps nothing, and is no hot loop either."""
    run = run_of(taking(2 * DAY, HOUR, policies=[Retry(attempts=3, wait=HOUR)])).drive()

    assert run.state is RunState.FAILED
    assert run.story == ["step0 success", "step1 retried", "step1 retried", "step1 failed"]
    assert run.clock.now() == START + 2 * DAY + 2 * HOUR


def test_a_resume_gives_the_whole_time_again() -> None:
    """A person who resumes a run that has failed wants it to go on."""
    run = run_of(taking(2 * DAY, HOUR)).drive()
    assert run.state is RunState.FAILED
    run.clock.travel(DAY)
    run.resume()

    assert run.drive().state is RunState.COMPLETED


def test_a_resume_from_a_pause_does_not() -> None:
    """A run that was only held keeps its deadline."""
    run = run_of(taking(HOUR, HOUR, wait=HOUR))
    run.activate()
    run.pause()
    run.clock.travel(2 * DAY)
    run.resume()

    assert run.drive().error_class == "stepwell.errors.DeadlineExceeded"


# -- without the waits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"wait": 3 * DAY},
        {"wait_until": lambda self: START + 3 * DAY},
        {"wait_until": Poll(lambda self: self._runtime._recorder.now() >= START + 3 * DAY, every=HOUR)},
    ],
    ids=["wait", "wait_until", "poll"],
)
def test_the_waits_of_steps_may_be_left_out(options: Any) -> None:
    """Only the time in which the run does something counts; nothing wakes it for its deadline."""
    run = run_of(taking(HOUR, HOUR, HOUR, waits=False, **options))
    run.drive()

    assert run.state is RunState.COMPLETED
    assert run.clock.now() > START + 3 * DAY


@pytest.mark.parametrize("timeout", [None, 9 * DAY])
def test_the_wait_for_a_signal_may_be_left_out(timeout: timedelta | None) -> None:
    """Whether it has an end or not."""
    run = run_of(taking(HOUR, HOUR, waits=False, awaits=Signal("go", timeout=timeout)))
    run.activate()
    run.clock.travel(3 * DAY)
    run.signal("go")

    assert run.drive().state is RunState.COMPLETED


def test_the_wait_at_a_gate_may_be_left_out() -> None:
    """However often it was looked at."""
    run = run_of(
        taking(HOUR, HOUR, waits=False, gate=lambda self: self._runtime._recorder.now() > START + 2 * DAY)
    )
    for _ in range(3):
        run.activate()
        run.clock.travel(DAY)
        run.nudge()

    assert run.drive().state is RunState.COMPLETED


def test_a_pause_may_be_left_out() -> None:
    """Nobody works on a run that is paused."""
    run = run_of(taking(HOUR, HOUR, waits=False, wait=HOUR))
    run.activate()
    run.pause()
    run.clock.travel(3 * DAY)
    run.resume()

    assert run.drive().state is RunState.COMPLETED


def test_a_pause_in_a_wait_is_left_out_for_good() -> None:
    """Also once the step that waited has run: the journal says when the pause began."""
    run = run_of(taking(HOUR, HOUR, HOUR, waits=False, wait=DAY))
    run.activate()
    run.clock.travel(HOUR)
    run.pause()
    run.clock.travel(9 * DAY)
    run.resume()

    assert run.drive().state is RunState.COMPLETED


def test_what_came_before_a_pause_is_not_left_out() -> None:
    """For as long as the run stood in its queue, nobody had paused it."""
    run = run_of(taking(HOUR, HOUR, waits=False))
    run.clock.travel(30 * HOUR)
    run.pause()
    run.clock.travel(HOUR)
    run.resume()
    run.drive()

    assert run.error_message == (
        "the run has taken 1 day, 6:00:00, its waits not counted; its deadline is 1 day, 0:00:00 after its start."
    )


def test_the_wait_of_a_resumable_step_may_be_left_out() -> None:
    """``skip_to(wait=)`` is a wait too."""

    class Steps(Workflow[None]):
        deadline = DAY
        deadline_includes_waits = False

        @resumable_step
        def walk(self) -> None:
            if not self.cursor.resumed:
                self.cursor.skip_to(1, wait=3 * DAY)

        @step
        def tell(self) -> None: ...

    assert MemoryRun(Steps).drive().state is RunState.COMPLETED


def test_work_counts_although_waits_do_not() -> None:
    """What is left out is the waits and nothing else, and what lies in two of them is left out once."""
    run = run_of(taking(20 * HOUR, 5 * HOUR, HOUR, waits=False, wait=3 * DAY))
    run.drive()

    assert run.error_message == (
        "the run has taken 1 day, 1:00:00, its waits not counted; its deadline is 1 day, 0:00:00 after its start."
    )


def test_the_delay_before_a_retry_counts() -> None:
    """Trouble takes its time."""

    class Failing(Workflow[None]):
        deadline = DAY
        deadline_includes_waits = False

        @step(on_exception=Retry(ConnectionError, attempts=99, wait=10 * HOUR))
        def work(self) -> None:
            raise ConnectionError

    run = MemoryRun(Failing).drive()

    assert run.error_class == "stepwell.errors.DeadlineExceeded"
    assert run.clock.now() == START + 30 * HOUR
