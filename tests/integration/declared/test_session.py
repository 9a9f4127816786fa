"""``self.session``: what a step writes is committed with its journal entry, once, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.orm import Session

from stepwell import Retry, Run, RunError, Skip, Stepwell, Workflow, cancel_if, handles, step
from stepwell.states import RunState
from tests.integration.declared.shop import Account, Customer, Entry, Shop, story
from tests.support.driving import Driver

NOW = timedelta()


class Doing(Workflow[None]):
    """Its first step does what the test says; its second one writes a line."""

    workflow_name = "session.Doing"

    @step(on_exception=Retry(OSError, attempts=3, wait=NOW))
    def first(self) -> Any:
        return DO[self.args["do"]](self)

    @step
    def second(self) -> None:
        self.session.add(Entry(text="second"))


DO: dict[str, Callable[[Any], Any]] = {}


def doing(act: Callable[[Any], Any]) -> Run:
    """A run whose first step does this."""
    DO["act"] = act
    return Doing.start(do="act")


def write(self: Any, text: str = "first") -> None:
    self.session.add(Entry(text=text))
    self.session.flush()


def test_writes_are_committed_with_the_journal_entry(driver: Driver, shop: Shop) -> None:
    """Nobody sees them before, and the run that has them is a step further."""
    seen: list[Any] = []

    def act(self: Any) -> None:
        write(self)
        seen.append((shop.ledger, run.current_step))

    run = doing(act)
    driver.drain()

    assert seen == [([], "first")]
    assert shop.ledger == ["first", "second"]
    assert run.state is RunState.COMPLETED


def raising(error: Exception) -> Callable[[Any], None]:
    def act(self: Any) -> None:
        write(self)
        self.context["n"] = 1
        raise error

    return act


def test_a_step_that_raises_leaves_nothing(driver: Driver, shop: Shop) -> None:
    """Flushed or not, what it wrote is undone; the failure itself is recorded."""
    run = doing(raising(ValueError("no")))
    driver.drain()

    assert shop.ledger == []
    assert run.state is RunState.FAILED
    assert run.context == {}
    assert story(run) == ["first failed"]


def test_a_retried_step_leaves_what_its_last_attempt_wrote(driver: Driver, shop: Shop) -> None:
    """The unique line is written by three attempts and stands there once."""
    attempts = []

    def act(self: Any) -> None:
        write(self)
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError

    run = doing(act)
    driver.drain()

    assert shop.ledger == ["first", "second"]
    assert story(run) == ["first retried", "first retried", "first success", "second success"]


VERBS: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "skip": (lambda self: self.skip(), ["first", "second"]),
    "finish": (lambda self: self.finish(1), ["first"]),
    "cancel": (lambda self: self.cancel(), ["first"]),
    "pause done": (lambda self: self.pause(done=True), ["first"]),
    "pause": (lambda self: self.pause(), []),
    "retry": (lambda self: self.retry(timedelta(hours=1)), []),
}


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_verb_keeps_and_what_it_undoes(driver: Driver, shop: Shop, verb: str) -> None:
    """A verb that leaves the step behind keeps its writes; ``pause`` and ``retry`` undo them."""
    say, kept = VERBS[verb]

    def act(self: Any) -> None:
        write(self)
        say(self)

    doing(act)
    driver.drain()

    assert shop.ledger == kept


def test_pause_done_in_a_transaction_while_something_comes(driver: Driver, shop: Shop) -> None:
    """A request that arrives meanwhile refuses the first write only: the second one has it all, once."""

    def act(self: Any) -> None:
        write(self)
        if shop.ledger == []:
            run.skip()
        self.pause("look", done=True)

    run = doing(act)
    driver.drain()

    assert (run.state, run.reason) == (RunState.PAUSED, "look")
    assert shop.ledger == ["first"]
    assert story(run) == ["first success"]


def test_a_line_that_is_there_already_is_an_error_of_the_step(driver: Driver, shop: Shop) -> None:
    """A constraint that is broken at the flush after the body is as if the body had raised."""
    shop.add(Entry(text="first"))
    run = doing(lambda self: self.session.add(Entry(text="first")))
    driver.drain()

    row = run.info()
    assert row.state == RunState.FAILED
    assert "IntegrityError" in str(row.error_class)
    assert story(run) == ["first failed"]
    assert "shop_entries" in str(run.steps[0].traceback)


def test_a_flush_that_fails_goes_through_the_policies(driver: Driver, shop: Shop) -> None:
    """Here: skipped, by the name of SQLAlchemy's error, and the next step finds a sound session."""
    shop.add(Entry(text="first"))

    class Careful(Workflow[None]):
        @step(on_exception=Skip("sqlalchemy.exc.IntegrityError"))
        def first(self) -> None:
            self.session.add(Entry(text="first"))

        @step
        def second(self) -> None:
            self.session.add(Entry(text="second"))

    run = Careful.start()
    driver.drain()

    assert story(run) == ["first skipped", "second success"]
    assert shop.ledger == ["first", "second"]


@pytest.mark.parametrize("verb", ["skip", "finish", "cancel", "pause done"])
def test_a_verb_cannot_keep_what_the_database_refuses(driver: Driver, shop: Shop, verb: str) -> None:
    """The flush comes before the verb is followed: the step has failed."""
    shop.add(Entry(text="first"))

    def act(self: Any) -> None:
        self.session.add(Entry(text="first"))
        VERBS[verb][0](self)

    run = doing(act)
    driver.drain()

    assert run.state is RunState.FAILED
    assert story(run) == ["first failed"]


def test_a_value_that_the_mapper_cannot_bind_is_an_error_of_the_step(driver: Driver) -> None:
    """Whatever goes wrong on the way to the database."""
    run = doing(lambda self: self.session.add(Entry(text=object())))
    driver.drain()

    assert run.state is RunState.FAILED
    assert story(run) == ["first failed"]


def test_an_error_of_the_database_that_was_caught_is_not_lost(driver: Driver, shop: Shop) -> None:
    """A flush that failed has undone the step's transaction: a step that goes on regardless has failed."""
    shop.add(Entry(text="there"))

    def act(self: Any) -> None:
        write(self)
        try:
            write(self, "there")
        except Exception:
            pass

    run = doing(act)
    driver.drain()

    assert run.state is RunState.FAILED
    assert story(run) == ["first failed"]
    assert "begin_nested" in str(run.info().error_message)
    assert shop.ledger == ["there"]


def test_a_statement_that_failed_and_was_caught(driver: Driver, shop: Shop) -> None:
    """Where the database goes on after it, the step does; where it does not, the step has failed."""

    def act(self: Any) -> None:
        write(self)
        try:
            self.session.execute(text("SELECT * FROM nowhere"))
        except Exception:
            pass

    run = doing(act)
    driver.drain()

    assert (story(run)[0], shop.ledger) in [
        ("first success", ["first", "second"]),
        ("first failed", []),
    ]
    assert run.state in (RunState.COMPLETED, RunState.FAILED)


def test_what_is_refused_at_the_commit_is_an_error_of_the_step(driver: Driver, shop: Shop) -> None:
    """A constraint that is looked at in the very end, where the database knows such, goes through the policies."""
    kind = shop.engine.dialect.name
    deferred = "" if kind == "mysql" else " DEFERRABLE INITIALLY DEFERRED"
    notes = f"CREATE TABLE shop_notes (entry_id INTEGER REFERENCES shop_entries (id){deferred})"

    class Careful(Workflow[None]):
        @step(on_exception=Skip("sqlalchemy.exc.IntegrityError"))
        def first(self) -> None:
            write(self)
            self.session.execute(text("INSERT INTO shop_notes (entry_id) VALUES (999999)"))

        @step
        def second(self) -> None:
            write(self, "second")

    with shop.engine.begin() as connection:
        connection.exec_driver_sql(notes)
    try:
        run = Careful.start()
        driver.drain()
    finally:
        with shop.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE shop_notes")

    assert story(run) == ["first skipped", "second success"]
    assert shop.ledger == ["second"]


def test_a_connection_goes_back_as_it_came(driver: Driver, well: Stepwell) -> None:
    """A step may wait for locks as long as it likes; who gets its connection next may not."""
    queries = {"postgresql": "SHOW lock_timeout", "mysql": "SELECT @@innodb_lock_wait_timeout"}
    query = queries.get(well.database.engine.dialect.name)

    def limits() -> set[Any]:
        if query is None:
            return set()
        with well.database.engine.connect() as first, well.database.engine.connect() as second:
            return {connection.exec_driver_sql(query).scalar() for connection in (first, second)}

    before = limits()
    for act in (write, raising(ValueError()), raising(OSError())):
        doing(act)
        driver.drain()
        assert limits() == before


def test_begin_nested_undoes_a_part(driver: Driver, shop: Shop) -> None:
    """With a savepoint the error can be caught, and the rest is kept."""
    shop.add(Entry(text="there"))

    def act(self: Any) -> None:
        write(self)
        try:
            with self.session.begin_nested():
                write(self, "lost")
                write(self, "there")
        except Exception:
            write(self, "recovered")
        with self.session.begin_nested():
            write(self, "kept")

    run = doing(act)
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert shop.ledger == ["there", "first", "recovered", "kept", "second"]


CONTROL: dict[str, Callable[[Session], Any]] = {
    "commit": lambda session: session.commit(),
    "rollback": lambda session: session.rollback(),
    "close": lambda session: session.close(),
    "begin": lambda session: session.begin(),
    "reset": lambda session: session.reset(),
    "invalidate": lambda session: session.invalidate(),
    "prepare": lambda session: session.prepare(),
}


@pytest.mark.parametrize("call", CONTROL)
def test_a_step_does_not_end_its_own_transaction(driver: Driver, shop: Shop, call: str) -> None:
    """What would break "once, with the journal entry" is refused, with what to do instead."""
    refused: list[str] = []

    def act(self: Any) -> None:
        write(self)
        try:
            CONTROL[call](self.session)
        except RunError as error:
            refused.append(str(error))

    run = doing(act)
    driver.drain()

    assert refused[0].startswith(f"self.session.{call}() is not for a step to call")
    assert "Use begin_nested() for a partial rollback" in refused[0]
    assert run.state is RunState.COMPLETED
    assert shop.ledger == ["first", "second"]


def test_the_session_is_no_context_manager_of_the_steps(driver: Driver, shop: Shop) -> None:
    """``with self.session:`` would close it: the step fails and says why."""

    def act(self: Any) -> None:
        with self.session as session:
            session.add(Entry(text="first"))

    run = doing(act)
    driver.drain()

    assert run.state is RunState.FAILED
    assert "close() is not for a step to call" in str(run.info().error_message)
    assert shop.ledger == []


def test_a_commit_underneath_is_found_out(driver: Driver, shop: Shop) -> None:
    """Who commits the connection itself has left the step's transaction: the step fails, and says so."""

    def act(self: Any) -> None:
        write(self)
        self.session.connection().commit()

    run = doing(act)
    driver.drain()

    assert run.state is RunState.FAILED
    assert story(run) == ["first failed"]


def test_each_attempt_has_a_session_of_its_own(driver: Driver) -> None:
    """What one attempt had in its session is not in that of the next."""
    sessions: list[Any] = []

    def act(self: Any) -> None:
        self.session.add(Entry(text="first"))
        assert self.session is self.session
        sessions.append(self.session)
        if len(sessions) == 1:
            raise OSError

    doing(act)
    driver.drain()

    assert sessions[0] is not sessions[1]


def test_core_statements_are_part_of_it(driver: Driver, shop: Shop) -> None:
    """Not only mapped objects: any statement through the session."""

    def act(self: Any) -> None:
        self.session.execute(insert(Entry).values(text="core"))
        self.session.execute(text("INSERT INTO shop_entries (text) VALUES ('text')"))
        assert len(self.session.scalars(select(Entry)).all()) == 2

    run = doing(act)
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert shop.ledger == ["core", "text", "second"]


def test_reading_before_writing_sees_the_newest(driver: Driver, shop: Shop) -> None:
    """A step's transaction begins with its first statement and not before."""
    found: list[Any] = []

    def act(self: Any) -> None:
        shop.add(Entry(text="just now"))
        found.extend(self.session.scalars(select(Entry.text)))

    doing(act)
    driver.drain()

    assert found == ["just now"]


def test_what_a_handler_writes_is_undone(driver: Driver, shop: Shop) -> None:
    """A handler runs outside of the body's transaction, can read, and leaves nothing."""
    seen: list[Any] = []

    class Handling(Workflow[None]):
        @handles(ValueError)
        def look(self, error: Exception) -> None:
            seen.extend(self.session.scalars(select(Entry.text)))
            self.session.add(Entry(text="handler"))
            self.session.flush()
            self.skip()

        @step
        def first(self) -> None:
            write(self)
            raise ValueError

    run = Handling.start()
    driver.drain()

    assert story(run) == ["first skipped"]
    assert (seen, shop.ledger) == ([], [])


class Checked(Workflow[Customer]):
    """Looks at the database before each step."""

    workflow_name = "session.Checked"

    @cancel_if
    def is_banned(self) -> bool:
        banned = self.session.scalar(select(Entry).where(Entry.text == f"banned {self.hero.name}"))
        return banned is not None or (self.hero.account is not None and self.hero.account.balance < 0)

    @step(skip_if=lambda self: self.session.scalar(select(Entry).where(Entry.text == "closed")))
    def serve(self) -> None:
        write(self, "served")


def test_conditions_may_read_through_the_session(driver: Driver, shop: Shop) -> None:
    """A query, and a relation that is loaded when it is looked at, are no changes."""
    run = Checked.start(shop.customer("Ada", account=Account(balance=1)))
    driver.drain()
    assert (run.state, story(run)) == (RunState.COMPLETED, ["serve success"])

    run = Checked.start(shop.customer("Bob", account=Account(balance=-1)))
    driver.drain()
    assert (run.state, run.reason) == (RunState.CANCELED, "is_banned")

    shop.add(Entry(text="banned Eve"))
    run = Checked.start(shop.customer("Eve"))
    driver.drain()
    assert (run.state, run.reason) == (RunState.CANCELED, "is_banned")

    shop.add(Entry(text="closed"))
    run = Checked.start(shop.customer("Kim"))
    driver.drain()
    assert story(run) == ["serve skipped"]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a new record": lambda self: self.session.add(Entry(text="condition")),
    "the hero": lambda self: setattr(self.hero, "visits", 9),
    "a start": lambda self: Doing.start(do="act"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_conditions_must_not_write(driver: Driver, shop: Shop, well: Stepwell, change: str) -> None:
    """What they write is not journaled: the step fails, and nothing of it is there."""
    DO["act"] = lambda self: None
    shop.add(Entry(text="condition"))  # so that the database would refuse a second one

    class Writing(Workflow[Customer]):
        @cancel_if
        def writes(self) -> bool:
            CHANGES[change](self)
            return False

        @step
        def serve(self) -> None: ...

    customer = shop.customer()
    run = Writing.start(customer)
    driver.drain()

    assert run.state is RunState.FAILED
    assert "Conditions are looked at, not journaled" in str(run.info().error_message)
    assert shop.ledger == ["condition"]
    assert shop.look(customer).visits == 0
    assert well.runs(Doing).count() == 0


def test_wait_until_may_read_through_the_session(driver: Driver, shop: Shop) -> None:
    """Computing an instant is looking, too."""

    class Waiting(Workflow[Customer]):
        @step(wait_until="agreed")
        def serve(self) -> None: ...

        def agreed(self) -> Any:
            assert self.session.scalars(select(Entry)).all() == []
            return driver.clock.now() - timedelta(days=self.hero.account.balance)

    run = Waiting.start(shop.customer(account=Account(balance=3)))
    driver.drain()
    assert run.state is RunState.COMPLETED
