"""What a step does to other runs, and to its own: in its transaction, once, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, Run, RunAlreadyExists, RunError, Stepwell, Workflow, handles, step
from stepwell.states import RunState
from stepwell.store.mailbox import unread
from tests.integration.declared.shop import Customer, Entry, Shop, story
from tests.support.driving import Driver

NOW = timedelta()
HOUR = timedelta(hours=1)
DO: dict[str, Callable[[Any], Any]] = {}


class Other(Workflow[None]):
    """Started by others."""

    workflow_name = "inside.Other"

    unique_by = "number"

    @step(wait=timedelta(minutes=1))
    def work(self) -> None:
        self.session.add(Entry(text=f"other {self.args['number']}"))


class Parent(Workflow[None]):
    """Does what the test says."""

    workflow_name = "inside.Parent"

    @step(on_exception=Retry(OSError, attempts=3, wait=NOW))
    def first(self) -> Any:
        return DO["act"](self)

    @step
    def second(self) -> None: ...


def parent(act: Callable[[Any], Any]) -> Run:
    DO["act"] = act
    return Parent.start()


def test_a_run_started_in_a_step_exists_with_the_step(driver: Driver, well: Stepwell) -> None:
    """Nobody sees it before the step is recorded; then it is there and does its work."""
    seen: list[int] = []
    started: list[Run] = []

    def act(self: Any) -> None:
        started.append(Other.start(number=1))
        seen.append(Stepwell.runs(observer, Other).count())

    observer = Stepwell(str(well.database.engine.url.render_as_string(False)), default=False)
    run = parent(act)
    driver.drain()
    observer.close()

    assert seen == [0]
    assert run.state is RunState.COMPLETED
    assert started[0].state is RunState.WAITING
    driver.travel(HOUR)
    assert started[0].state is RunState.COMPLETED


def test_a_run_started_in_a_step_that_fails_was_never_started(driver: Driver, well: Stepwell) -> None:
    """Rolled back with everything else that the step wrote."""

    def act(self: Any) -> None:
        Other.start(number=1)
        raise ValueError

    run = parent(act)
    driver.drain()

    assert run.state is RunState.FAILED
    assert well.runs(Other).count() == 0


def test_a_run_started_by_a_retried_step_is_started_once(driver: Driver, well: Stepwell) -> None:
    """Three attempts, one run: its identity is free again after each that failed."""
    attempts: list[bool] = []

    def act(self: Any) -> None:
        attempts.append(Other.start(number=1).created)
        if len(attempts) < 3:
            raise OSError

    run = parent(act)
    driver.drain()

    assert attempts == [True, True, True]
    assert run.state is RunState.COMPLETED
    assert well.runs(Other).count() == 1


def test_a_start_and_a_write_of_one_step_are_one_thing(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """A step that writes, starts, and breaks a constraint at its end leaves neither."""
    shop.add(Entry(text="there"))

    def act(self: Any) -> None:
        Other.start(number=1)
        self.session.add(Entry(text="there"))

    run = parent(act)
    driver.drain()

    assert run.state is RunState.FAILED
    assert well.runs(Other).count() == 0


@pytest.mark.parametrize("verb", ["finish", "skip", "cancel"])
def test_what_a_failed_body_has_sent_is_not_sent(
    driver: Driver, shop: Shop, well: Stepwell, verb: str
) -> None:
    """Starts, writes and signals of a body that raised are gone, also if a handler ends the run well."""
    other = Other.start(number=7)

    class Handled(Workflow[None]):
        @handles(ValueError)
        def end(self, error: Exception) -> None:
            getattr(self, verb)()

        @step
        def first(self) -> None:
            other.signal("hello")
            Other.start(number=8)
            self.session.add(Entry(text="first"))
            self.session.flush()
            raise ValueError

    run = Handled.start()
    driver.drain()

    assert run.state in (RunState.COMPLETED, RunState.CANCELED)
    assert well.runs(Other).count() == 1
    assert shop.ledger == []
    with well.database.read() as connection:
        assert unread(connection, other.id, "hello") is None


def test_a_conflict_is_raised_at_the_call(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """Caught there, the step's transaction is as usable as before."""
    holder = Other.start(number=1)
    found: list[Any] = []

    def act(self: Any) -> None:
        try:
            Other.start(number=1)
        except RunAlreadyExists as error:
            found.append(error.run)
        self.session.add(Entry(text="first"))

    run = parent(act)
    driver.drain()

    assert found == [holder]
    assert run.state is RunState.COMPLETED
    assert shop.ledger == ["first"]


def test_the_options_of_a_start_work_in_a_step(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """``skip``, ``replace``, several at once, the step's own session: all in the step's transaction."""
    old = Other.start(number=1)
    handles: dict[str, Any] = {}

    def act(self: Any) -> None:
        handles["skipped"] = Other.with_options(on_conflict="skip").start(number=1)
        handles["replaced"] = Other.with_options(on_conflict="replace").start(number=1)
        handles["many"] = Other.start_many([{"number": n} for n in (2, 3, 4)])
        handles["session"] = Other.with_options(session=self.session).start(number=5)
        handles["later"] = Other.with_options(at=HOUR).start(number=6)

    run = parent(act)
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert handles["skipped"] == old
    assert old.state is RunState.CANCELED
    assert [each.state for each in handles["many"]] == [RunState.WAITING] * 3
    driver.travel(2 * HOUR)
    assert sorted(shop.ledger) == [f"other {number}" for number in range(1, 7)]


def test_a_new_hero_of_a_start_in_a_step(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """A record that the step has only added gets its key, and is committed together with its run."""

    class Welcome(Workflow[Customer]):
        @step
        def greet(self) -> None:
            self.session.add(Entry(text=f"welcome {self.hero.name}"))

    def act(self: Any) -> None:
        customer = Customer(name="Ada")
        self.session.add(customer)
        Welcome.start(customer)

    parent(act)
    driver.drain()

    assert shop.ledger == ["welcome Ada"]


def test_what_a_step_has_started_can_be_looked_at_in_it(driver: Driver, well: Stepwell) -> None:
    """The handle of a run that was started a moment ago answers, although nobody else can see it yet."""
    states: list[Any] = []
    parent(lambda self: states.append(Other.start(number=1).state))
    driver.drain()

    assert states == [RunState.READY]


def test_no_step_waits_for_the_result_of_a_run(driver: Driver) -> None:
    """It would hold a thread for another run, and on one thread for ever: it is refused."""
    other = Other.start(number=1)
    refused: list[str] = []

    def act(self: Any) -> None:
        with pytest.raises(RunError) as error:
            other.result(timeout=NOW)
        refused.append(str(error.value))

    parent(act)
    driver.drain()

    assert "a step must not wait for another run" in refused[0]


COMMANDS: dict[str, tuple[Callable[[Run], Any], RunState]] = {
    "pause": (lambda run: run.pause(), RunState.PAUSED),
    "cancel": (lambda run: run.cancel(), RunState.CANCELED),
    "skip": (lambda run: run.skip(), RunState.COMPLETED),
    "reschedule": (lambda run: run.reschedule(), RunState.COMPLETED),
}


@pytest.mark.parametrize("is_open", [False, True], ids=["no transaction", "in a transaction"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_to_other_runs_work_in_a_step(
    driver: Driver, shop: Shop, command: str, is_open: bool
) -> None:
    """With and without a transaction of the step's: nobody waits for himself."""
    give, state = COMMANDS[command]
    other = Other.start(number=1)
    driver.drain()

    def act(self: Any) -> None:
        if is_open:
            self.session.add(Entry(text="first"))
            self.session.flush()
        give(other)

    run = parent(act)
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert other.state is state


OWN: dict[str, tuple[Callable[[Run], Any], RunState, list[str]]] = {
    "pause": (lambda run: run.pause(), RunState.PAUSED, ["first success"]),
    "cancel": (lambda run: run.cancel(), RunState.CANCELED, ["first success"]),
    "skip": (lambda run: run.skip(), RunState.COMPLETED, ["first success", "second success"]),
}


@pytest.mark.parametrize("is_open", [False, True], ids=["no transaction", "in a transaction"])
@pytest.mark.parametrize("command", OWN)
def test_a_step_may_command_its_own_run(
    driver: Driver, well: Stepwell, shop: Shop, command: str, is_open: bool
) -> None:
    """It is a request like any other's: the step is finished first."""
    give, state, steps = OWN[command]

    def act(self: Any) -> None:
        if is_open:
            self.session.add(Entry(text="first"))
            self.session.flush()
        give(well.run(self.run_id))

    run = parent(act)
    driver.drain()

    assert run.state is state
    assert story(run) == steps
    assert shop.ledger == (["first"] if is_open else [])


def test_queries_work_in_a_step(driver: Driver, well: Stepwell, shop: Shop) -> None:
    """Looking at runs from inside a step that holds a transaction."""
    Other.start(number=1)
    counts: list[int] = []

    def act(self: Any) -> None:
        self.session.add(Entry(text="first"))
        self.session.flush()
        counts.append(well.runs(Other).live().count())
        counts.append(len(well.runs(Parent).all()))

    parent(act)
    driver.drain()

    assert counts == [1, 1]


def test_a_second_transaction_beside_the_steps_own_is_refused_on_sqlite(
    driver: Driver, well: Stepwell, shop: Shop
) -> None:
    """Where there is one writer, a step that opens another write transaction is told so; elsewhere it may."""
    outcome: list[str] = []

    def act(self: Any) -> None:
        self.session.add(Entry(text="first"))
        self.session.flush()
        try:
            with well.database.begin():
                outcome.append("opened")
        except Exception as error:
            outcome.append(str(error))

    run = parent(act)
    driver.drain()

    assert run.state is RunState.COMPLETED
    one_writer = well.database.dialect.has_one_writer
    assert outcome[0].startswith("this thread already has a write transaction" if one_writer else "opened")
