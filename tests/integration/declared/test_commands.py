"""What people do to runs, on the databases: instants are kept, requests are honoured, answers say what happened."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import InvalidTransition, Retry, Run, Stepwell, Workflow, step
from stepwell.states import Reason, RunState
from tests.integration.declared.shop import Entry, Shop, story
from tests.support.driving import Driver

NOW = timedelta()
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
DO: dict[str, Callable[[Any], Any]] = {}


class Remind(Workflow[None]):
    """Waits two days between its steps."""

    workflow_name = "commands.Remind"

    @step
    def welcome(self) -> None:
        DO.get("welcome", lambda self: None)(self)

    @step(wait=2 * DAY)
    def remind(self) -> None:
        self.session.add(Entry(text="reminded"))


class Later(Workflow[None]):
    """Waits two days before its first step."""

    workflow_name = "commands.Later"

    @step(wait=2 * DAY)
    def begin(self) -> None:
        self.session.add(Entry(text="begun"))


@pytest.fixture(autouse=True)
def _nothing_to_do() -> None:
    DO.clear()


@pytest.fixture
def parked(driver: Driver) -> Run:
    """A run that waits for its second step."""
    run = Remind.start()
    driver.drain()
    return run


def test_pause_and_resume_keep_the_instant(driver: Driver, parked: Run, shop: Shop) -> None:
    """However long it was paused, what remains of the wait is what it would have been."""
    due = parked.info().wake_at
    driver.clock.travel(DAY)
    assert str(parked.pause("holiday")) == "done"
    assert (parked.state, parked.reason, parked.info().wake_at) == (RunState.PAUSED, "holiday", None)
    driver.travel(HOUR)
    assert str(parked.resume()) == "done"
    driver.drain()

    assert parked.info().wake_at == due
    driver.travel(DAY)
    assert shop.ledger == ["reminded"]


def test_a_pause_that_outlasts_the_instant(driver: Driver, parked: Run, shop: Shop) -> None:
    """Paused beyond it, the run goes on as soon as it is resumed, and not before."""
    parked.pause()
    driver.travel(9 * DAY)
    assert shop.ledger == []
    parked.resume()
    driver.drain()

    assert parked.state is RunState.COMPLETED


@pytest.mark.parametrize("at", [NOW, 3 * DAY])
def test_what_happens_before_the_first_step_moves_no_instant(
    driver: Driver, shop: Shop, at: timedelta
) -> None:
    """A pause, or a worker that is lost before it has parked the run: the wait counts from the start, or from the
    instant that the start named.
    """
    begins_at = driver.clock.now() + at
    run = Later.with_options(at=at).start()
    run.pause()
    driver.clock.travel(at + HOUR)
    run.resume()
    assert [each.run.id for each in driver.claim()] == [run.id]
    driver.travel(HOUR)
    driver.travel(HOUR)

    row = run.info()
    assert (row.state, row.wake_at) == (RunState.WAITING, begins_at + 2 * DAY)
    assert "lost" in [entry.outcome for entry in run.steps]
    driver.travel(2 * DAY)
    assert shop.ledger == ["begun"]


def test_reschedule_moves_the_instant(driver: Driver, parked: Run, shop: Shop) -> None:
    """To later, to earlier, to now; the row that announces the step says the new instant."""
    now = driver.clock.now()
    parked.reschedule(5 * DAY)
    assert parked.info().wake_at == now + 5 * DAY
    assert parked.steps[-1].scheduled_for == now + 5 * DAY
    driver.travel(3 * DAY)
    assert shop.ledger == []

    parked.reschedule(driver.clock.now() + HOUR)
    assert driver.waits(parked) == HOUR
    parked.reschedule()
    driver.drain()
    assert (shop.ledger, parked.state) == (["reminded"], RunState.COMPLETED)


def test_reschedule_moves_a_retry(driver: Driver) -> None:
    """The delay before a retry is an instant like others."""
    errors = [ValueError(), ValueError()]

    class Retried(Workflow[None]):
        @step(on_exception=Retry(attempts=3, wait=DAY))
        def work(self) -> None:
            if errors:
                raise errors.pop()

    run = Retried.start()
    driver.drain()
    run.reschedule()
    driver.drain()
    assert (run.state, driver.waits(run)) == (RunState.WAITING, DAY)
    run.reschedule(HOUR)
    driver.travel(HOUR)

    assert run.state is RunState.COMPLETED


def test_a_run_that_is_put_off_at_its_start(driver: Driver) -> None:
    """``at=`` is an instant too: it can be moved, and a run paused before it keeps it."""
    run = Remind.with_options(at=DAY).start()
    assert driver.drain() == 0
    run.pause()
    run.resume()
    driver.drain()
    assert story(run)[0] == "welcome success"

    other = Remind.with_options(at=DAY).start()
    other.reschedule()
    driver.drain()
    assert story(other)[0] == "welcome success"


def test_skip_leads_over_a_wait(driver: Driver, parked: Run, shop: Shop) -> None:
    """The step that the run waits for is left out; its row says so."""
    assert str(parked.skip("not wanted", by="Ada")) == "done"
    driver.drain()

    assert story(parked) == ["welcome success", "remind skipped"]
    assert parked.state is RunState.COMPLETED
    assert shop.ledger == []


def test_cancel_ends_a_wait(driver: Driver, parked: Run) -> None:
    """At once, with its reason; what was scheduled is so no more, and nothing wakes."""
    assert str(parked.cancel("moved away")) == "done"
    assert (parked.state, parked.reason) == (RunState.CANCELED, "moved away")
    assert story(parked) == ["welcome success", "remind canceled"]
    assert driver.travel(9 * DAY) == 0


REQUESTS: dict[str, tuple[Callable[[Run], Any], RunState]] = {
    "pause": (lambda run: run.pause("why"), RunState.PAUSED),
    "cancel": (lambda run: run.cancel("why"), RunState.CANCELED),
    "skip": (lambda run: run.skip("why"), RunState.WAITING),
}


@pytest.mark.parametrize("verb", REQUESTS)
def test_a_request_to_a_run_that_is_being_driven(driver: Driver, verb: str) -> None:
    """It answers ``requested``; the step that runs is finished first, and then it is done, or void."""
    give, state = REQUESTS[verb]
    answers: list[str] = []
    DO["welcome"] = lambda self: answers.append(str(give(run)))
    run = Remind.start()
    driver.drain()

    assert answers == ["requested"]
    assert story(run)[0] == "welcome success"
    assert run.state is state
    assert state is RunState.CANCELED or run.info().stop_request is None


@pytest.mark.parametrize("verb", REQUESTS)
def test_a_dead_holder_changes_nothing(driver: Driver, verb: str) -> None:
    """Asked of a worker that is lost, it is done by the next one, before any body."""
    give, state = REQUESTS[verb]
    bodies: list[int] = []
    DO["welcome"] = lambda self: bodies.append(1)
    run = Remind.start()
    driver.claim()
    assert str(give(run)) == "requested"
    driver.clock.travel(driver.well.lease + timedelta(seconds=1))
    driver.drain()

    assert bodies == []
    assert run.state is state


def test_what_a_stopped_run_says(driver: Driver) -> None:
    """A failed run keeps its error until it is resumed, and its history for good."""
    errors: list[Exception] = [ValueError("no paper")]
    DO["welcome"] = lambda self: raise_first(errors)
    run = Remind.start()
    driver.drain()

    row = run.info()
    assert (row.state, row.reason, row.error_class) == (RunState.FAILED, Reason.STEP_FAILED, "ValueError")
    assert "no paper" in run.explain()
    run.resume()
    driver.drain()
    assert run.info().error_class is None
    assert story(run) == ["welcome failed", "welcome success", "remind scheduled"]


def raise_first(errors: list[Exception]) -> None:
    if errors:
        raise errors.pop(0)


def test_commands_that_a_state_does_not_allow(driver: Driver, parked: Run) -> None:
    """A run that is over cannot be moved; the error says what it is and where the command works."""
    parked.cancel()
    for command in (parked.pause, parked.resume, parked.skip, parked.reschedule):
        with pytest.raises(InvalidTransition, match="is canceled: it cannot"):
            command()


def test_the_idempotency_key_is_the_same_for_all_attempts(driver: Driver) -> None:
    """Over retries in other activations, over a failure and a resume; other steps and runs have others."""
    keys: list[str] = []

    class Pay(Workflow[None]):
        @step(on_exception=Retry(attempts=2, wait=HOUR))
        def charge(self) -> None:
            keys.append(self.idempotency_key)
            if len(keys) < 4:
                raise ValueError

        @step
        def thank(self) -> None:
            keys.append(self.idempotency_key)

    run = Pay.start()
    driver.finish(run)
    assert run.state is RunState.FAILED
    run.resume()
    driver.finish(run)
    Pay.start()
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert len(set(keys[:4])) == 1
    assert len(set(keys)) == 4


def test_the_queue_of_a_step(driver: Driver, well: Stepwell) -> None:
    """Handed over and back: a worker of the one queue drives what is there and no more."""
    ran: list[str] = []

    class Video(Workflow[None]):
        @step
        def upload(self) -> None:
            ran.append("upload")

        @step(queue="heavy", priority=1)
        def encode(self) -> None:
            ran.append("encode")

        @step
        def publish(self) -> None:
            ran.append("publish")

    run = Video.start()
    with Driver(well, queues=["default"]) as light:
        light.drain()
        assert (ran, run.info().queue, run.info().priority) == (["upload"], "heavy", 1)
        with Driver(well, queues=["heavy"]) as heavy:
            heavy.drain()
        assert (ran, run.info().queue, run.info().priority) == (["upload", "encode"], "default", 100)
        light.drain()

    assert ran == ["upload", "encode", "publish"]
    assert run.state is RunState.COMPLETED
