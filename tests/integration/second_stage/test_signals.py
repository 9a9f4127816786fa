"""Signals and wakes on the databases: whose transaction they join, how often they count, who hears of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from stepwell import (
    InvalidTransition,
    Retry,
    Run,
    RunError,
    RunNotFound,
    RunNotLive,
    Signal,
    Stepwell,
    Unstorable,
    Workflow,
    step,
)
from stepwell.ids import new_run_id
from stepwell.states import RunState
from stepwell.store.schema import runs, signals
from tests.integration.second_stage.warehouse import Line, Warehouse
from tests.support.driving import Driver

HOUR = timedelta(hours=1)
AT_ONCE = timedelta()
DO: dict[str, Callable[[Any], Any]] = {}


class Review(Workflow):
    """Awaits a verdict, then waits for a gate."""

    workflow_name = "signals.Review"

    @step(awaits=Signal("verdict", timeout=24 * HOUR))
    def decide(self, verdict: Any) -> Any:
        self.session.add(Line(text=f"{verdict}"))
        return verdict

    @step(gate=lambda self: DO.get("gate", lambda self: True)(self))
    def publish(self) -> None: ...


class Sender(Workflow):
    """Does what a test wants in its one step."""

    workflow_name = "signals.Sender"

    @step(on_exception=Retry(ConnectionError, attempts=3, wait=AT_ONCE))
    def send(self) -> None:
        DO["send"](self)

    @step
    def tell(self) -> None: ...


@pytest.fixture(autouse=True)
def _nothing_to_do() -> None:
    DO.clear()


@pytest.fixture
def review(driver: Driver) -> Run:
    """A run that awaits its signal."""
    run = Review.start()
    driver.drain()
    assert run.state is RunState.AWAITING
    return run


def mailbox(well: Stepwell, run: Run) -> list[Any]:
    with well.database.read() as connection:
        return list(
            connection.execute(select(signals).where(signals.c.run_id == run.id).order_by(signals.c.id))
        )


# -- from outside --------------------------------------------------------------------------------------------------


def test_a_signal_wakes_the_run(driver: Driver, review: Run, house: Warehouse, well: Stepwell) -> None:
    """At once; its row says when it was read, and by which entry of the journal."""
    assert "the signal 'verdict'" in review.explain()
    assert review.signal("verdict", {"by": "Ada"}) is True
    assert review.state is RunState.READY
    driver.drain()

    assert review.state is RunState.COMPLETED
    assert house.lines() == ["{'by': 'Ada'}"]
    (row,) = mailbox(well, review)
    assert row.consumed_by == review.steps[0].position
    assert row.consumed_at == review.steps[0].finished_at


def test_a_signal_that_no_step_awaits_is_warned_of(
    driver: Driver, review: Run, well: Stepwell, caplog: pytest.LogCaptureFixture
) -> None:
    """A slip is told with the names that the class knows, however it is sent; the signal is kept all the same."""
    DO["send"] = lambda self: review.signal("verdikt", 3)
    review.signal("verdikt", 1)
    with well.database.begin() as connection:
        review.signal("verdikt", 2, connection=connection)
    Sender.start()
    driver.drain()

    warned = [record.__dict__ for record in caplog.records if record.name == "stepwell.engine.signalling"]
    assert [(each["action"], each["signal"], each["known"]) for each in warned] == [
        ("signal.unknown", "verdikt", ["verdict"])
    ] * 3
    assert len(mailbox(well, review)) == 3
    assert review.state is RunState.AWAITING


def test_a_signal_that_may_be_meant_is_not_warned_of(
    review: Run, well: Stepwell, caplog: pytest.LogCaptureFixture
) -> None:
    """One that a step awaits, a wake, and whatever is sent to a run of a class that is not loaded here."""
    foreign = Review.start()
    with well.database.begin() as connection:
        connection.execute(update(runs).where(runs.c.id == foreign.id).values(workflow="Elsewhere"))
    foreign.signal("whatever")
    review.wake()
    review.signal("verdict", "yes")

    assert caplog.records == []


def test_an_early_signal_is_kept(driver: Driver) -> None:
    """Sent before the run was ever claimed."""
    run = Review.start()
    run.signal("verdict", "early")
    driver.drain()

    assert run.state is RunState.COMPLETED


@pytest.mark.parametrize("where", ["own", "session", "step"])
def test_a_key_counts_once(driver: Driver, review: Run, house: Warehouse, well: Stepwell, where: str) -> None:
    """A webhook that is delivered twice is one signal, whoever delivers it; another name is another signal."""
    answers: list[bool] = []

    def send(session: Any = None) -> None:
        for name in ("verdict", "verdict", "other"):
            answers.append(review.signal(name, len(answers), idempotency_key="hook-7", session=session))

    if where == "own":
        send()
    elif where == "session":
        with house.session() as session:
            send(session)
            session.commit()
    else:
        DO["send"] = lambda self: send()
        Sender.start()
    driver.drain()

    assert answers == [True, False, True]
    assert (
        review.signal("verdict", "late", idempotency_key="hook-7") is False
        if review.state == "awaiting"
        else True
    )
    assert [(row.name, row.payload) for row in mailbox(well, review)] == [("verdict", "0"), ("other", "2")]


def test_a_signal_to_a_run_that_is_over_is_refused(driver: Driver, review: Run) -> None:
    """Nobody would read it: the sender hears that."""
    review.signal("verdict", 1)
    driver.drain()
    with pytest.raises(
        RunNotLive, match=rf"^run {review.id} is completed: it is over and reads no signals any more\.$"
    ):
        review.signal("verdict", 2)
    other = Review.start()
    other.cancel()
    with pytest.raises(RunNotLive, match="is canceled"):
        other.signal("verdict", 2)


def test_a_signal_to_no_run_is_refused(well: Stepwell, house: Warehouse) -> None:
    """Nor is anything left behind."""
    nobody = Run(well, new_run_id())
    with pytest.raises(RunNotFound, match="nobody will read the signal"):
        nobody.signal("verdict")
    with house.session() as session, pytest.raises(RunNotFound):
        nobody.signal("verdict", session=session)

    assert mailbox(well, nobody) == []


@pytest.mark.parametrize("stop", ["pause", "fail"])
def test_a_signal_to_a_run_that_needs_a_person_is_kept(driver: Driver, review: Run, stop: str) -> None:
    """It changes nothing about the state; after ``resume()`` it is found."""
    if stop == "pause":
        review.pause("lunch")
    else:
        driver.travel(25 * HOUR)
        assert review.state is RunState.FAILED
    assert review.signal("verdict", "kept") is True
    assert review.state in (RunState.PAUSED, RunState.FAILED)
    review.resume()
    driver.drain()

    assert review.state is RunState.COMPLETED


def test_a_late_signal_is_left_unread(driver: Driver, well: Stepwell, review: Run) -> None:
    """It is counted in the run's details when the run ends, and ``explain()`` names it."""
    review.signal("verdict", 1)
    review.signal("verdict", 2)
    review.signal("else", 3)
    assert "Unread signals: 'else', 'verdict' (2)." in review.explain()
    driver.drain()

    assert json.loads(review.info().details or "{}") == {"unread_signals": 2}
    assert "Signals that were never read: 'else', 'verdict'." in review.explain()


def test_a_canceled_run_counts_its_unread_signals_too(driver: Driver, review: Run) -> None:
    """Whoever ends it."""
    review.pause()
    review.signal("verdict", 1)
    review.cancel()

    assert json.loads(review.info().details or "{}") == {"unread_signals": 1}


def test_a_run_without_unread_signals_has_no_count(driver: Driver, review: Run) -> None:
    """Nothing is said about nothing."""
    review.signal("verdict", 1)
    driver.drain()

    assert review.info().details is None
    assert "unread" not in review.explain().lower()
    assert "never read" not in review.explain()


@pytest.mark.parametrize("name", ["", " x", "x" * 191, "a\x00b", 7])
def test_names_and_keys_that_cannot_be_stored_are_refused(review: Run, name: Any, well: Stepwell) -> None:
    """At once, with what is wrong, on every database alike."""
    with pytest.raises(RunError, match="a signal's name must"):
        review.signal(name)
    with pytest.raises(RunError, match="idempotency_key must"):
        review.signal("verdict", idempotency_key=name)
    with pytest.raises(Unstorable, match="payload of signal 'verdict' cannot be stored"):
        review.signal("verdict", object())

    assert mailbox(well, review) == []


def test_what_is_awaited_is_not_rescheduled(review: Run) -> None:
    """A run that waits to be woken has no instant to be moved: the command says so, and the run still listens."""
    with pytest.raises(InvalidTransition, match="cannot reschedule"):
        review.reschedule(48 * HOUR)

    assert review.state is RunState.AWAITING


# -- in a caller's transaction -------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("way", ["session", "connection"])
def test_a_signal_joins_the_callers_transaction(
    driver: Driver, review: Run, house: Warehouse, well: Stepwell, way: str, commits: bool
) -> None:
    """It is there if and only if that commits, and nobody sees it earlier; the run is woken after the commit."""
    with house.session() as session:
        session.add(Line(text="the caller's"))
        session.flush()
        join = {"session": session} if way == "session" else {"connection": session.connection()}
        assert review.signal("verdict", "x", **join) is True
        assert review.state is RunState.AWAITING
        session.commit() if commits else session.rollback()
    if way == "connection":
        # A connection does not tell when it has committed: any worker's tick makes up for it.
        driver.clock.travel(timedelta(seconds=2))
    driver.drain()

    assert review.state is (RunState.COMPLETED if commits else RunState.AWAITING)
    assert house.lines() == (["the caller's", "x"] if commits else [])
    assert [row.pending_at for row in mailbox(well, review)] == ([None] if commits else [])


@pytest.mark.parametrize("commits", [True, False])
def test_a_wake_joins_the_callers_transaction(driver: Driver, house: Warehouse, commits: bool) -> None:
    """What opens the gate and the wake are one."""
    is_open: list[bool] = []
    DO["gate"] = lambda self: bool(is_open)
    run = Review.start()
    run.signal("verdict")
    driver.drain()
    with house.session() as session:
        session.add(Line(text="open"))
        run.wake(session=session)
        is_open.append(True)
        session.commit() if commits else session.rollback()
    driver.drain()

    assert run.state is (RunState.COMPLETED if commits else RunState.AWAITING)


def test_a_wake_of_a_run_that_is_over_does_nothing(
    driver: Driver, review: Run, house: Warehouse, well: Stepwell
) -> None:
    """Alone, in a transaction or in a step: no error, no row."""
    review.cancel()
    review.wake()
    with house.session() as session:
        review.wake(session=session)
        session.commit()
    DO["send"] = lambda self: review.wake()
    sender = Sender.start()
    driver.drain()
    Run(well, new_run_id()).wake()

    assert sender.state is RunState.COMPLETED
    assert mailbox(well, review) == []


# -- in a step -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opens", [True, False], ids=["with a transaction", "without one"])
def test_a_signal_from_a_step_is_sent_with_it(
    driver: Driver, review: Run, house: Warehouse, well: Stepwell, opens: bool
) -> None:
    """Exactly once: an attempt that fails has sent nothing, whether the step wrote something or not."""
    attempts: list[int] = []

    def send(self: Any) -> None:
        attempts.append(1)
        if opens:
            self.session.add(Line(text="the sender's"))
            self.session.flush()
        review.signal("verdict", f"attempt {len(attempts)}")
        assert mailbox(well, review) == []
        if len(attempts) < 3:
            raise ConnectionError

    DO["send"] = send
    sender = Sender.start()
    driver.drain()

    assert sender.state is RunState.COMPLETED, sender.explain()
    assert [row.payload for row in mailbox(well, review)] == ['"attempt 3"']
    assert review.state is RunState.COMPLETED


def test_a_signal_from_a_step_that_stops_its_run_is_sent_once(
    driver: Driver, review: Run, well: Stepwell
) -> None:
    """Something comes in that moment, so that the step's end is written a second time: the signal is there once."""

    def send(workflow: Any) -> None:
        review.signal("verdict", "yes")
        with well.database.begin() as connection:
            mine = update(runs).where(runs.c.id == workflow.run_id)
            connection.execute(mine.values(wakeups=runs.c.wakeups + 1))
        workflow.pause("look", done=True)

    DO["send"] = send
    run = Sender.start()
    driver.drain()

    assert run.state is RunState.PAUSED
    assert [row.name for row in mailbox(well, review)] == ["verdict"]


def test_a_step_may_signal_the_run_that_it_starts(driver: Driver, well: Stepwell) -> None:
    """Both are there with the step, or neither is."""
    started: list[Run] = []

    def send(self: Any) -> None:
        run = Review.start()
        run.signal("verdict", "from its starter")
        started.append(run)
        if len(started) == 1:
            raise ConnectionError

    DO["send"] = send
    Sender.start()
    driver.drain()

    with pytest.raises(RunNotFound):
        started[0].info()
    assert started[1].state is RunState.COMPLETED
    assert mailbox(well, started[0]) == []


def test_a_step_may_signal_its_own_run(driver: Driver) -> None:
    """For a step that comes later."""

    class Own(Workflow):
        workflow_name = "signals.Own"

        @step
        def send(self) -> None:
            well_of_test.run(self.run_id).signal("go", 7)

        @step(awaits="go")
        def read(self, payload: Any) -> Any:
            self.finish(payload)

    well_of_test = driver.well
    run = Own.start()
    driver.drain()

    assert run.result(AT_ONCE) == 7


def test_a_signal_to_a_run_that_is_over_is_an_error_of_the_step(driver: Driver, review: Run) -> None:
    """At the call: its policies decide."""
    review.cancel()
    DO["send"] = lambda self: review.signal("verdict")
    sender = Sender.start()
    driver.drain()

    assert sender.state is RunState.FAILED
    assert sender.info().error_class == "stepwell.errors.RunNotLive"


def test_a_run_that_ends_before_the_step_does_strands_nothing(driver: Driver, review: Run) -> None:
    """It was live when the step asked: the signal is left unread, and the step is done."""

    def send(self: Any) -> None:
        review.signal("verdict", "too late")
        review.cancel()

    DO["send"] = send
    sender = Sender.start()
    driver.drain()

    assert sender.state is RunState.COMPLETED
    assert review.state is RunState.CANCELED


def test_two_workflows_that_signal_each_other(driver: Driver) -> None:
    """Each from a step of its own: neither waits for the other's row."""
    pair: dict[str, Run] = {}

    class Ping(Workflow):
        workflow_name = "signals.Ping"

        @step
        def send(self) -> None:
            other = pair["b" if self.args["me"] == "a" else "a"]
            other.signal("ball", self.args["me"])

        @step(awaits="ball")
        def catch(self, ball: str) -> None:
            self.finish(ball)

    pair["a"], pair["b"] = Ping.start(me="a"), Ping.start(me="b")
    driver.drain()

    assert [pair[name].result(AT_ONCE) for name in "ab"] == ["b", "a"]
