"""Waits: where their instants come from, and when they are looked at again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import Pause, Retry, Skip, Workflow, step
from stepwell.states import ExecutionState, Kind, Reason, RunState
from tests.unit.execution.memory import START, Crash, MemoryRun, crash_at

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


class Reminder(Workflow[None]):
    """Two days between its steps."""

    @step
    def welcome(self) -> None: ...

    @step(wait=2 * DAY)
    def remind(self) -> None: ...


def test_a_wait_parks_the_run_and_announces_the_step() -> None:
    """One row says which step is due when; the run waits for that instant and holds nothing."""
    run = MemoryRun(Reminder)
    ended = run.activate()

    assert run.is_over_as(RunState.WAITING, Reason.TIMER)
    assert run.wake_at == START + 2 * DAY
    assert ended is not None
    assert ended.wake_at == run.wake_at
    row = run.row("remind")
    assert (row.state, row.scheduled_for, row.started_at) == (ExecutionState.SCHEDULED, run.wake_at, None)


def test_a_wait_counts_from_the_end_of_the_previous_step() -> None:
    """However long it takes until a worker looks, the instant stays where the previous step's end put it."""
    run = MemoryRun(Reminder)

    def stall(moment: str) -> None:
        if moment == "after":
            run.clock.travel(5 * HOUR)

    run.at_boundary = stall
    run.activate()

    assert run.row("remind").scheduled_for == START + 2 * DAY


def test_a_wait_that_is_over_when_it_is_looked_at_costs_nothing() -> None:
    """A run that comes too late for its instant goes on at once: no row announces what is due already."""
    run = MemoryRun(Reminder)

    def stall(moment: str) -> None:
        if moment == "after" and len(run.rows) == 1:
            run.clock.travel(3 * DAY)

    run.at_boundary = stall
    run.activate()

    assert run.story == ["welcome success", "remind success"]
    assert run.activations == 1


def test_the_row_that_announced_a_step_is_the_row_of_its_attempt() -> None:
    """An attempt finishes its own announcement, with both instants."""
    run = MemoryRun(Reminder).drive()

    row = run.row("remind")
    assert (row.position, row.state) == (2, ExecutionState.COMPLETED)
    assert row.scheduled_for == START + 2 * DAY
    assert row.started_at == START + 2 * DAY


def test_an_instant_is_fixed_when_first_computed() -> None:
    """A new deploy with another wait does not move those who wait already."""
    run = MemoryRun(Reminder)
    run.activate()

    class Slower(Workflow[None]):
        workflow_name = "Reminder"

        @step
        def welcome(self) -> None: ...

        @step(wait=9 * DAY)
        def remind(self) -> None: ...

    run.workflow = Slower
    run.wake()
    run.activate()

    assert run.is_over_as(RunState.COMPLETED)
    assert run.clock.now() == START + 2 * DAY


def test_a_run_that_is_woken_early_parks_again_for_the_same_instant() -> None:
    """Whoever looks before the time changes nothing: the same row, the same instant."""
    run = MemoryRun(Reminder)
    run.activate()
    rows = dict(run.rows)
    run.state = RunState.READY
    run.clock.travel(HOUR)
    run.activate()

    assert run.is_over_as(RunState.WAITING, Reason.TIMER)
    assert run.wake_at == START + 2 * DAY
    assert run.rows == rows


class Late(Workflow[None]):
    """Waits before its first step."""

    workflow_name = "waits.Late"

    @step(wait=2 * DAY)
    def remind(self) -> None: ...


def test_the_wait_of_the_first_step_counts_from_when_the_run_was_to_begin() -> None:
    """A run that is started for tomorrow with a wait of two days begins in three."""
    run = MemoryRun(Late)
    run.begins_at = run.due_at = START + DAY
    run.activate()

    assert run.wake_at == START + 3 * DAY


def test_a_pause_before_the_first_step_does_not_move_its_wait() -> None:
    """Paused before anybody has looked at it, and resumed a day later, the run waits from its start."""
    run = MemoryRun(Late)
    run.pause()
    run.clock.travel(DAY)
    run.resume()
    run.activate()

    assert run.wake_at == START + 2 * DAY


def test_a_worker_that_is_lost_before_the_first_step_does_not_move_its_wait() -> None:
    """It was claimed and never parked: whoever takes it over parks it for the instant that was meant."""
    run = MemoryRun(Late)
    crash_at(run, 0, "before")
    with pytest.raises(Crash):
        run.activate()
    run.at_boundary = lambda moment: None
    run.clock.travel(HOUR)
    run.lose_worker()
    run.due_at = run.clock.now()
    run.activate()

    assert run.wake_at == START + 2 * DAY


@pytest.mark.parametrize("again", ["retry", "policy", "pause"])
def test_a_first_step_that_has_waited_does_not_wait_again(again: str) -> None:
    """Another attempt follows its own delay: the step's wait is over, also where no step came before."""
    attempts: list[datetime] = []

    class Late(Workflow[None]):
        @step(wait=2 * DAY, on_exception=Retry(ValueError, wait=timedelta()))
        def remind(self) -> None:
            attempts.append(run.clock.now())
            if len(attempts) > 1:
                return
            if again == "retry":
                self.retry()
            if again == "pause":
                self.pause()
            raise ValueError

    run = MemoryRun(Late)
    run.drive()
    if again == "pause":
        run.resume()
        run.drive()

    assert attempts == [START + 2 * DAY, START + 2 * DAY]
    assert run.is_over_as(RunState.COMPLETED)


def test_a_first_step_that_was_lost_does_not_wait_again() -> None:
    """A worker that dies in a long body takes nothing of the wait back."""

    class Late(Workflow[None]):
        @step(wait=2 * DAY)
        def remind(self) -> None:
            if run.activations == 2:
                assert run.shown is not None
                run.keep(run.shown)
                run.token = None

    run = MemoryRun(Late)
    run.activate()
    run.wake()
    run.activate()
    run.lose_worker()
    run.due_at = run.clock.now()
    run.drive()

    assert run.story == ["remind lost", "remind success"]
    assert run.clock.now() == START + 2 * DAY


def test_what_a_person_does_in_between_does_not_move_a_wait() -> None:
    """Paused and resumed before its instant was computed, a step waits from the previous step's end."""
    run = MemoryRun(Reminder)

    def pause(moment: str) -> None:
        if moment == "before" and not run.rows:
            run.pause()

    run.at_boundary = pause
    run.activate()
    assert run.state is RunState.PAUSED
    run.clock.travel(DAY)
    run.resume()
    assert run.journal[-1].kind is Kind.COMMAND
    run.activate()

    assert run.wake_at == START + 2 * DAY


def test_paused_and_resumed_a_run_keeps_its_instant() -> None:
    """A pause in the middle of a wait does not stop the clock: resumed, the run parks for what remains."""
    run = MemoryRun(Reminder)
    run.activate()
    run.clock.travel(DAY)
    run.pause()
    run.clock.travel(HOUR)
    run.resume()
    run.activate()

    assert run.waits == DAY - HOUR
    run.drive()
    assert run.is_over_as(RunState.COMPLETED)


def test_wait_until_a_fixed_instant() -> None:
    """A datetime as the option is the instant itself."""

    class Appointment(Workflow[None]):
        @step(wait_until=START + 3 * DAY)
        def meet(self) -> None: ...

    run = MemoryRun(Appointment)
    run.activate()
    assert run.wake_at == START + 3 * DAY

    run.drive()
    assert run.is_over_as(RunState.COMPLETED)


def appointment(at: Callable[[Any], Any], **options: Any) -> type[Workflow[None]]:
    """A workflow whose one step waits until what ``at`` computes."""

    class Appointment(Workflow[None]):
        @step(wait_until=at, **options)
        def meet(self) -> None: ...

    return Appointment


def test_wait_until_is_computed_anew_when_the_run_wakes() -> None:
    """An appointment that was put off parks the run again, and its row says the new instant."""
    diary = {"meeting": START + DAY}
    run = MemoryRun(appointment(lambda self: diary["meeting"]))
    run.activate()
    diary["meeting"] = START + 4 * DAY
    run.wake()
    run.activate()

    assert run.wake_at == START + 4 * DAY
    assert run.row("meet").scheduled_for == START + 4 * DAY
    run.drive()
    assert run.story == ["meet success"]
    assert run.clock.now() == START + 4 * DAY


def test_wait_until_an_instant_in_the_past_is_due() -> None:
    """Nothing waits for what is over."""
    run = MemoryRun(appointment(lambda self: START - DAY)).drive()
    assert run.activations == 1


def test_wait_until_may_look_at_the_run() -> None:
    """The function gets the workflow with its arguments, context and hero, by a method's name too."""

    class Appointment(Workflow[None]):
        @step
        def agree(self) -> None:
            self.context["days"] = 3

        @step(wait_until="agreed")
        def meet(self) -> None: ...

        def agreed(self) -> datetime:
            days: int = self.context["days"]
            base: datetime = self.args["base"]
            return base + days * DAY

    run = MemoryRun(Appointment, args={"base": START})
    run.activate()

    assert run.wake_at == START + 3 * DAY


def test_a_naive_instant_is_an_error_of_the_step() -> None:
    """A datetime without a zone could mean anything: the step fails and its row says which option it was."""
    run = MemoryRun(appointment(lambda self: datetime(2026, 3, 9))).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert "wait_until of step 'meet' must be an aware datetime" in str(run.error_message)
    assert run.story == ["meet failed"]


def test_something_else_than_an_instant_is_an_error_of_the_step() -> None:
    """A function that answers no datetime fails the step, and strands nothing."""
    run = MemoryRun(appointment(lambda self: "tomorrow")).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert "wait_until of step 'meet'" in str(run.error_message)
    assert "'tomorrow'" in str(run.error_message)


def raise_first(errors: list[BaseException]) -> Callable[[Any], datetime]:
    """A function that raises what is in the list, one after the other, and then answers."""

    def at(workflow: Any) -> datetime:
        if errors:
            raise errors.pop(0)
        return START

    return at


def test_errors_in_wait_until_go_through_the_policies() -> None:
    """A diary that cannot be read is tried again as the step's policy says, and the delay is kept."""
    policy = Retry(OSError, wait=HOUR, attempts=3)
    run = MemoryRun(appointment(raise_first([OSError(), OSError()]), on_exception=policy))
    run.activate()
    assert (run.waits, run.reason) == (HOUR, Reason.RETRY)

    run.drive()
    assert run.story == ["meet retried", "meet retried", "meet success"]
    assert run.clock.now() == START + 2 * HOUR


@pytest.mark.parametrize(
    ("policy", "state"), [(Skip(), RunState.COMPLETED), (Pause(), RunState.PAUSED), ((), RunState.FAILED)]
)
def test_an_error_in_wait_until_ends_the_step_as_its_policy_says(policy: Any, state: RunState) -> None:
    """Skip, pause or failure: the same as for an error of the body."""
    run = MemoryRun(appointment(raise_first([ValueError("no diary")]), on_exception=policy)).drive()
    assert run.state is state


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_no_error_in_wait_until_strands_a_run(error: BaseException) -> None:
    """Whatever is raised, the run is journaled as failed and says so."""
    run = MemoryRun(appointment(raise_first([error]))).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == type(error).__name__


def test_a_verb_in_wait_until_is_honoured() -> None:
    """Before the body, too, the author may say that there is nothing to wait for."""

    class Appointment(Workflow[None]):
        @step(wait_until="agreed")
        def meet(self) -> None: ...

        @step(wait_until="called_off")
        def follow_up(self) -> None: ...

        def agreed(self) -> datetime:
            self.skip()

        def called_off(self) -> datetime:
            self.cancel("no meeting")

    run = MemoryRun(Appointment).drive()

    assert run.story == ["meet skipped", "follow_up canceled"]
    assert run.is_over_as(RunState.CANCELED, "no meeting")


def test_a_swallowed_verb_stands_in_wait_until_too() -> None:
    """What was decided there is decided, whatever the function answers then."""

    def at(workflow: Any) -> datetime:
        try:
            workflow.cancel("no meeting")
        except BaseException:
            pass
        return START + DAY

    assert MemoryRun(appointment(at)).drive().is_over_as(RunState.CANCELED, "no meeting")


def test_the_delay_of_a_retry_holds_beside_wait_until() -> None:
    """The later of the two: the appointment that is over does not shorten the delay of a retry."""
    errors: list[BaseException] = [ValueError()]

    class Appointment(Workflow[None]):
        @step(wait_until=START - DAY, on_exception=Retry(wait=HOUR))
        def meet(self) -> None:
            if errors:
                raise errors.pop()

    run = MemoryRun(Appointment)
    run.activate()
    assert run.waits == HOUR

    run.state = RunState.READY  # woken early
    run.activate()
    assert run.waits == HOUR
    assert run.drive().is_over_as(RunState.COMPLETED)


def test_instants_in_other_zones_are_the_same_instants() -> None:
    """An aware datetime of any zone is that instant."""
    from datetime import timezone

    there = (START + DAY).astimezone(timezone(timedelta(hours=9)))
    run = MemoryRun(appointment(lambda self: there))
    run.activate()

    assert run.wake_at == START + DAY
    assert run.wake_at.astimezone(UTC) == START + DAY


def test_after_a_skipped_step_a_wait_counts_from_the_skip() -> None:
    """A skipped step is over when it was skipped."""

    class Reminders(Workflow[None]):
        @step(wait=DAY, skip_if=True)
        def remind(self) -> None: ...

        @step(wait=DAY)
        def remind_again(self) -> None: ...

    run = MemoryRun(Reminders)
    run.activate()
    run.wake()
    run.activate()

    assert run.wake_at == START + 2 * DAY


def test_a_step_that_waits_is_not_asked_for_its_conditions() -> None:
    """Conditions are looked at before an attempt that will really run, not before a park."""
    asked = []

    class Reminders(Workflow[None]):
        @step(wait=DAY, skip_if=lambda self: asked.append(run.clock.now()))
        def remind(self) -> None: ...

    run = MemoryRun(Reminders)
    run.drive()

    assert asked == [START + DAY]
