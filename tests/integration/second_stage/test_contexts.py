"""A run's context that is changed from outside: in every state, in whose transaction, and what is read of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import select, update

from stepwell import (
    Event,
    Retry,
    Run,
    RunError,
    RunNotFound,
    RunNotLive,
    Stepwell,
    Unstorable,
    Workflow,
    step,
)
from stepwell.ids import new_run_id
from stepwell.requests import CONTEXT_MAIL
from stepwell.states import RunState
from stepwell.store.schema import runs, signals
from tests.integration.second_stage.warehouse import Line, Warehouse
from tests.support.driving import Driver

HOUR = timedelta(hours=1)
DO: dict[str, Callable[[Any], Any]] = {}
SEEN: list[Any] = []


class Opens(Workflow):
    """Goes on once its context says so."""

    workflow_name = "contexts.Opens"

    def run(self) -> Any:
        self.first()
        self.continue_if(lambda: self.context.get("open"))
        SEEN.append(dict(self.context))
        self.sleep(HOUR)
        return dict(self.context)

    @step
    def first(self) -> None:
        self.context["n"] = 1
        DO.get("first", lambda self: None)(self)


class Declared(Workflow):
    """The same, with declared steps."""

    workflow_name = "contexts.Declared"

    @step
    def first(self) -> None:
        self.context["n"] = 1
        DO.get("first", lambda self: None)(self)

    @step(gate=lambda self: self.context.get("open"))
    def second(self) -> None:
        SEEN.append(dict(self.context))

    @step(wait=HOUR)
    def third(self) -> None:
        self.finish(dict(self.context))


class Sender(Workflow):
    """Does what a test wants in its one step."""

    workflow_name = "contexts.Sender"

    @step(on_exception=Retry(ConnectionError, attempts=3, wait=timedelta()))
    def send(self) -> None:
        self.session.add(Line(text="sent"))
        DO["send"](self)


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    DO.clear()
    SEEN.clear()


@pytest.fixture(params=[Opens, Declared])
def run(request: pytest.FixtureRequest, driver: Driver) -> Run:
    """A run that waits for its gate, in either style."""
    run: Run = request.param.start()
    driver.drain()
    assert run.state is RunState.AWAITING
    return run


def mail(well: Stepwell, run: Run) -> list[Any]:
    wanted = select(signals).where(signals.c.run_id == run.id, signals.c.name == CONTEXT_MAIL)
    with well.database.read() as connection:
        return list(connection.execute(wanted.order_by(signals.c.id)))


# -- what it does --------------------------------------------------------------------------------------------------


def test_a_gate_looks_at_once_and_sees_it(run: Run, driver: Driver, well: Stepwell) -> None:
    """And the journal tells who has changed the context, when, and to what."""
    run.context.with_options(by="Ada").update(open=True)
    assert run.state is RunState.READY
    assert run.context == {"n": 1, "open": True}
    driver.drain()

    assert SEEN == [{"n": 1, "open": True}]
    assert run.context == {"n": 1, "open": True}
    (row,) = [row for row in run.steps if row.kind == "context"]
    assert (row.name, row.state) == ("update", "completed")
    assert row.details == {"by": "Ada", "asked_at": well.now().isoformat()}
    (letter,) = mail(well, run)
    assert (letter.consumed_by, letter.consumed_at) == (row.position, row.finished_at)


def test_it_lasts_to_the_end(run: Run, driver: Driver, well: Stepwell) -> None:
    """To the result and to the row; what was taken up is not counted as unread."""
    run.context.update({"open": True, "rush": [1]})
    driver.drain()
    run.context.delete("rush", "no such name")
    assert run.state is RunState.WAITING
    assert run.context == {"n": 1, "open": True}
    well.clock.travel(HOUR)
    driver.drain()
    assert run.result() == run.context == {"n": 1, "open": True}
    assert "unread_signals" not in (run.info().details or "")


@pytest.mark.parametrize("verb", ["pause", "fail"])
def test_it_is_kept_while_nobody_may_drive_the_run(
    verb: str, run: Run, driver: Driver, well: Stepwell
) -> None:
    """What was changed is read at once; ``resume()`` goes on with it."""
    if verb == "pause":
        run.pause()
    else:
        with well.database.begin() as connection:
            connection.execute(update(runs).where(runs.c.id == run.id).values(state="failed", lane=None))
    run.context.update(open=1)
    run.context.update(open=2)
    assert run.context["open"] == 2
    assert driver.drain() is None or run.state is not RunState.READY
    assert SEEN == []
    run.resume()
    driver.drain()
    assert SEEN == [{"n": 1, "open": 2}]


@pytest.mark.parametrize("kind", [Opens, Declared])
def test_a_run_that_is_driven_takes_it_up_at_its_next_boundary(kind: Any, driver: Driver) -> None:
    """Also one that changes its own: the step that runs keeps what it has read."""

    def change(workflow: Any) -> None:
        Run(driver.well, workflow.run_id).context.update(open="from the step", n=5)
        SEEN.append(dict(workflow.context))

    DO["first"] = change
    kind.start()
    driver.drain()
    assert SEEN == [{"n": 1}, {"n": 5, "open": "from the step"}]


def test_before_a_run_has_begun(driver: Driver) -> None:
    """It is there at the first line, as if the run had been started with it."""
    run = Opens.start()
    run.context.update(open=True)
    driver.drain()
    assert SEEN == [{"open": True, "n": 1}]
    assert [row.name for row in run.steps if row.kind == "context"] == ["start"]


class Ends(Workflow):
    """Is over behind its one step."""

    workflow_name = "contexts.Ends"

    def run(self) -> Any:
        self.only()
        return dict(self.context)

    @step
    def only(self) -> None:
        DO["only"](self)


def test_what_comes_during_the_last_step_is_the_runs_too(driver: Driver) -> None:
    """Although ``run()`` sees nothing of it; the journal has it."""
    run = Ends.start()

    def change(workflow: Any) -> None:
        somebody = Thread(target=lambda: run.context.update(late=True))
        somebody.start()
        somebody.join()

    DO["only"] = change
    driver.drain()
    assert run.result() == {}
    assert run.context == json.loads(run.info().context or "") == {"late": True}
    assert [row.kind for row in run.steps] == ["step", "context"]


def test_what_comes_too_late_is_shown_as_that(run: Run, driver: Driver, well: Stepwell) -> None:
    """And not as what the context is."""
    with well.database.begin() as connection:
        run.context.with_options(connection=connection).update(open=True)
    assert "A change of its context not taken up yet." in run.explain()
    with well.database.begin() as connection:
        connection.execute(
            update(runs).where(runs.c.id == run.id).values(state="completed", finished_at=well.now())
        )
    assert run.context == {"n": 1}
    assert "A change of its context came too late." in run.explain()


def test_the_copy_that_was_read_follows(run: Run) -> None:
    """And changes of the copy itself do nothing."""
    context = run.context
    context.update(open=[1])
    context["open"].append(2)
    context.delete("n")
    assert "n" not in context
    assert run.context == {"open": [1]}
    assert repr(run.context) == "RunContext({'open': [1]})"
    with pytest.raises(TypeError, match=r"write run\.context\.update\(open=\.\.\.\)"):
        context["open"] = 1
    with pytest.raises(TypeError, match=r"write run\.context\.delete\('open'\)"):
        del context["open"]


def test_names_that_are_options_elsewhere_are_names_here(run: Run) -> None:
    """None of them is taken for something else."""
    run.context.update(by=1, session=2, connection=3, values=4, self=5)
    assert run.context == {"n": 1, "by": 1, "session": 2, "connection": 3, "values": 4, "self": 5}


def test_nothing_to_change_is_no_mail(run: Run, well: Stepwell) -> None:
    """Nobody is woken for nothing."""
    run.context.update()
    run.context.update({})
    run.context.delete()
    assert mail(well, run) == []


# -- whose transaction ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
def test_in_a_callers_transaction(commits: bool, run: Run, driver: Driver, house: Warehouse) -> None:
    """It happens if and only if that commits."""
    with house.session() as session:
        run.context.with_options(session=session).update(open=True)
        assert "open" not in run.context
        driver.drain()
        (session.commit if commits else session.rollback)()
    driver.drain()
    assert ("open" in run.context) is commits
    assert len(SEEN) == commits


def test_in_a_step_it_happens_with_the_step(
    run: Run, driver: Driver, well: Stepwell, house: Warehouse
) -> None:
    """Exactly once, however often the step is tried."""
    tries: list[int] = []

    def send(workflow: Any) -> None:
        run.context.update(open=len(tries))
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError

    DO["send"] = send
    Sender.start()
    driver.drain()
    assert run.context["open"] == 2
    assert len(mail(well, run)) == 1
    assert house.lines() == ["sent"]


def test_in_the_body_of_run_it_is_refused(driver: Driver) -> None:
    """A replay would repeat it."""
    caught: list[Exception] = []

    class Meddles(Workflow):
        workflow_name = "contexts.Meddles"

        def run(self) -> None:
            try:
                Run(driver.well, self.run_id).context.update(x=1)
            except RunError as error:
                caught.append(error)

    Meddles.start()
    driver.drain()
    assert len(caught) == 1


# -- what is refused -----------------------------------------------------------------------------------------------


def test_a_run_that_is_over_changes_no_more(run: Run) -> None:
    """Whoever tries is told why."""
    run.cancel()
    with pytest.raises(
        RunNotLive, match=rf"^run {run.id} is canceled: it is over and its context changes no more\.$"
    ):
        run.context.update(x=1)


def test_a_run_that_does_not_exist(run: Run, well: Stepwell) -> None:
    """Its id may be a slip."""
    context = run.context
    with well.database.begin() as connection:
        connection.execute(runs.delete())
    with pytest.raises(RunNotFound, match="nothing was changed"):
        context.update(x=1)
    with pytest.raises(RunNotFound):
        dict(Run(well, new_run_id()).context)


@pytest.mark.parametrize("value", [{1, 2}, object(), b"x", "x" * 20_000, {"deep": [float("nan")]}])
def test_what_is_not_plain_is_refused_whole(value: Any, run: Run, well: Stepwell) -> None:
    """Where it is given, and before anything is sent."""
    with pytest.raises(Unstorable, match="context"):
        run.context.update(good=1, bad=value)
    assert mail(well, run) == []
    assert run.context == {"n": 1}


@pytest.mark.parametrize("change", [lambda c: c.update({1: 2}), lambda c: c.delete(1)])
def test_a_name_is_a_text(change: Callable[[Any], None], run: Run) -> None:
    """Of what is set and of what is taken out."""
    with pytest.raises(TypeError, match="names are texts; got 1"):
        change(run.context)


def test_no_signal_can_be_taken_for_it(run: Run) -> None:
    """The name that it has in the mailbox is none that a signal may have."""
    with pytest.raises(RunError, match="begin or end with a space"):
        run.signal(CONTEXT_MAIL, {"delta": "{}", "by": None})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"delta": 1, "by": null}', '{"delta": "[]", "by": null}'])
def test_one_that_cannot_be_read_fails_the_run_and_nothing_else(
    text: str, run: Run, driver: Driver, well: Stepwell
) -> None:
    """Once it is gone, the run goes on."""
    run.context.update(open=True)
    with well.database.begin() as connection:
        connection.execute(update(signals).values(payload=text))
    other = Sender.start()
    DO["send"] = lambda self: None
    driver.drain()
    assert other.state is RunState.COMPLETED
    assert (run.state, run.reason) == (RunState.FAILED, "undecodable")
    with well.database.begin() as connection:
        connection.execute(signals.delete())
    run.resume()
    driver.drain()
    assert run.state is RunState.AWAITING


# -- who hears of it -----------------------------------------------------------------------------------------------


def test_observers_are_told_once(run: Run, driver: Driver, well: Stepwell) -> None:
    """When it is sent, as of a command; taking it up is no step."""
    told: list[Event] = []

    class Ears:
        def observe(self, event: Event) -> None:
            told.append(event)

    well.observers = type(well.observers)([Ears()])
    run.context.update(open=True)
    driver.drain()
    about = [event for event in told if event.facts.get("verb") == "update" or event.step == "update"]
    assert [(event.kind.value, event.facts["answer"]) for event in about] == [("command", "requested")]


def test_it_goes_on_with_the_successor(driver: Driver, well: Stepwell) -> None:
    """Whatever was not taken up when the run was started over; and what comes later, too."""

    class Endless(Workflow):
        workflow_name = "contexts.Endless"

        def run(self, number: int = 0) -> Any:
            self.note()
            if number == 0:
                self.start_over(number=1)
            self.wait_for_signal("go")
            return dict(self.context)

        @step
        def note(self) -> None:
            if not SEEN:
                SEEN.append(Run(driver.well, self.run_id))
                SEEN[0].context.update(a=1)

    first = Endless.start()
    driver.drain()
    first.context.update(b=2)
    first.signal("go")
    driver.drain()
    assert first.result() == {"a": 1, "b": 2}


def test_the_whole_is_what_is_stored(run: Run, driver: Driver, well: Stepwell) -> None:
    """As queries and the command line read it."""
    run.context.update(open=True, text="naïve \N{SNOWMAN} \x00", **{"$": {"$": 1}})
    seen = dict(run.context)
    driver.drain()
    assert json.loads(run.info().context or "")["open"] is True
    assert (
        dict(run.context) == seen == {"n": 1, "open": True, "text": "naïve \N{SNOWMAN} \x00", "$": {"$": 1}}
    )
