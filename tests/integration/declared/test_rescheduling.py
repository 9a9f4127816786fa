"""``reschedule()`` says when a parked run goes on, whatever its step computes; what it waits for stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import Poll, Retry, Run, Workflow, step
from stepwell.states import RunState
from tests.integration.declared.shop import story
from tests.support.driving import Driver

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
FAR = datetime(2099, 1, 1, tzinfo=UTC)
asked: list[str] = []
is_open: list[bool] = []


class Fixed(Workflow[None]):
    """Waits for a duration."""

    workflow_name = "rescheduling.Fixed"

    @step(wait=9 * DAY)
    def work(self) -> None: ...


class Appointed(Workflow[None]):
    """Waits until an instant that its class says."""

    workflow_name = "rescheduling.Appointed"

    @step(wait_until=FAR)
    def work(self) -> None: ...


class Computed(Workflow[None]):
    """Waits until an instant that is asked for."""

    workflow_name = "rescheduling.Computed"

    def when(self) -> datetime:
        asked.append("when")
        return FAR

    @step(wait_until=when)
    def work(self) -> None: ...


class Polling(Workflow[None]):
    """Looks every nine days."""

    workflow_name = "rescheduling.Polling"

    def look(self) -> bool:
        asked.append("look")
        return bool(is_open)

    @step(wait_until=Poll(look, every=9 * DAY, timeout=99 * DAY))
    def work(self) -> None: ...


class Asleep(Workflow[None]):
    """Waits in ``run()``: for a duration, an instant, one that is asked for, a condition."""

    workflow_name = "rescheduling.Asleep"

    def run(self, how: str) -> None:
        match how:
            case "sleep":
                self.sleep(9 * DAY)
            case "instant":
                self.sleep_until(FAR)
            case "computed":
                self.sleep_until(self.when)
            case "polled":
                self.wait_until(self.look, every=9 * DAY)
        self.work()

    def when(self) -> datetime:
        asked.append("when")
        return FAR

    def look(self) -> bool:
        asked.append("look")
        return bool(is_open)

    @step
    def work(self) -> None: ...


CLASSES = [Fixed, Appointed, Computed, Polling, "sleep", "instant", "computed", "polled"]


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    asked.clear()
    is_open.clear()


def parked(driver: Driver, workflow: Any) -> Run:
    run: Run = Asleep.start(how=workflow) if isinstance(workflow, str) else workflow.start()
    driver.drain()
    assert run.state is RunState.WAITING
    is_open.append(True)
    asked.clear()
    return run


@pytest.mark.parametrize("workflow", CLASSES)
def test_it_goes_on_at_the_instant_that_a_person_says(driver: Driver, workflow: Any) -> None:
    """Not before it, and not later, whatever the step says itself."""
    run = parked(driver, workflow)
    run.reschedule(HOUR)
    assert driver.waits(run) == HOUR
    driver.travel(HOUR - timedelta(seconds=1))
    assert (run.state, asked) == (RunState.WAITING, [])
    driver.travel(timedelta(seconds=1))
    assert (run.state, story(run)) == (RunState.COMPLETED, ["work success"])


@pytest.mark.parametrize("workflow", CLASSES)
def test_it_goes_on_now(driver: Driver, workflow: Any) -> None:
    """Without an instant the run is due at once."""
    run = parked(driver, workflow)
    run.reschedule()
    driver.drain()
    assert run.state is RunState.COMPLETED


@pytest.mark.parametrize("workflow", CLASSES)
def test_it_may_be_put_off(driver: Driver, workflow: Any) -> None:
    """Beyond the instant at which the step itself would have been due."""
    run = parked(driver, workflow)
    later = FAR + DAY
    run.reschedule(later)
    driver.clock.travel(FAR - driver.clock.now())
    driver.drain()
    assert (run.state, run.info().wake_at) == (RunState.WAITING, later)


@pytest.mark.parametrize("workflow", CLASSES)
def test_a_pause_and_a_resume_keep_it(driver: Driver, workflow: Any) -> None:
    """Resumed before the new instant, the run parks for what remains; after it, it goes on."""
    run = parked(driver, workflow)
    due = driver.clock.now() + 2 * HOUR
    run.reschedule(2 * HOUR)
    run.pause()
    driver.travel(HOUR)
    run.resume()
    driver.drain()
    assert (run.state, run.info().wake_at) == (RunState.WAITING, due)
    run.pause()
    driver.travel(DAY)
    run.resume()
    driver.drain()
    assert run.state is RunState.COMPLETED


@pytest.mark.parametrize("workflow", CLASSES)
def test_it_moves_a_run_that_was_just_resumed(driver: Driver, workflow: Any) -> None:
    """Ready again, and not yet looked at by a worker: what it waits for is moved all the same."""
    run = parked(driver, workflow)
    run.pause()
    run.resume()
    run.reschedule(HOUR)
    driver.drain()
    assert driver.waits(run) == HOUR
    driver.travel(HOUR)
    assert run.state is RunState.COMPLETED


def test_a_poll_that_still_does_not_hold_goes_on_polling(driver: Driver) -> None:
    """The instant moved is that of one look; its deadline stays."""
    run = parked(driver, Polling)
    is_open.clear()
    run.reschedule(HOUR)
    driver.travel(HOUR)
    assert (asked, driver.waits(run)) == (["look"], 9 * DAY)
    (row,) = run.steps
    assert "rescheduled" not in row.details
    driver.finish(run)
    assert run.info().error_class == "stepwell.errors.WaitTimedOut"
    assert driver.clock.now() - driver.began_at == 99 * DAY


def test_an_appointment_that_was_not_touched_moves_with_its_source(driver: Driver) -> None:
    """The mark is on the row that a person has moved, and on no other."""
    appointments = [FAR, driver.clock.now() + DAY]

    class Twice(Workflow[None]):
        def when(self) -> datetime:
            return appointments[0]

        @step(wait_until=FAR)
        def first(self) -> None: ...

        @step(wait_until=when)
        def second(self) -> None: ...

    run = Twice.start()
    driver.drain()
    run.reschedule()
    driver.drain()
    assert (run.current_step, run.info().wake_at) == ("second", FAR)
    appointments.pop(0)
    run.pause()
    run.resume()
    driver.drain()
    assert driver.waits(run) == DAY


@pytest.mark.parametrize("wait", [timedelta(), HOUR])
def test_a_retry_does_not_go_back_to_the_instant_of_before(driver: Driver, wait: timedelta) -> None:
    """A person has said that the step is due; after an error only the delay of its policy is waited for."""
    errors = [ValueError("no paper")]

    class Retried(Workflow[None]):
        @step(wait_until=FAR, on_exception=Retry(attempts=2, wait=wait))
        def work(self) -> None:
            if errors:
                raise errors.pop()

    run = Retried.start()
    driver.drain()
    run.reschedule()
    driver.drain()
    driver.travel(wait)

    assert (run.state, story(run)) == (RunState.COMPLETED, ["work retried", "work success"])


@pytest.mark.parametrize("stop", ["failed", "paused"])
def test_a_resume_does_not_go_back_to_the_instant_of_before(driver: Driver, stop: str) -> None:
    """The step was due already, and stopped its run: resumed, it runs at once."""
    stops = [1]

    class Stopping(Workflow[None]):
        @step(wait_until=FAR)
        def work(self) -> None:
            if stops and stops.pop():
                if stop == "paused":
                    self.pause()
                raise ValueError("no paper")

    run = Stopping.start()
    driver.drain()
    run.reschedule()
    driver.drain()
    assert run.state == stop
    run.resume()
    driver.drain()

    assert (run.state, story(run)) == (RunState.COMPLETED, [f"work {stop}", "work success"])
