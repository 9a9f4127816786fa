"""``self.hero``: the record as it is now, attached, without a transaction for as long as none is needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from stepwell import Retry, Stepwell, Workflow, cancel_if, handles, step
from stepwell.states import Reason, RunState
from tests.integration.declared.shop import Account, Customer, Entry, Shop, story
from tests.support.driving import Driver

NOW = timedelta()
DO: dict[str, Callable[[Any], Any]] = {}


class Visit(Workflow[Customer]):
    """Its first step does what the test says."""

    workflow_name = "hero.Visit"

    @step
    def enter(self) -> Any:
        return DO["enter"](self)

    @step
    def leave(self) -> Any:
        return DO.get("leave", lambda self: None)(self)


@pytest.fixture(autouse=True)
def _nothing_to_do() -> None:
    DO.clear()


def visit(customer: Customer, **acts: Callable[[Any], Any]) -> Any:
    DO.update(acts)
    return Visit.start(customer)


def test_the_hero_is_loaded_afresh_for_each_step(driver: Driver, shop: Shop) -> None:
    """What somebody else changes between two steps of one activation is there in the second one."""
    ada = shop.customer("Ada")
    names: list[str] = []

    def enter(self: Any) -> None:
        names.append(self.hero.name)
        assert self.hero is self.hero
        with shop.session() as session:
            session.get(Customer, ada.id).name = "Ada Lovelace"
            session.commit()

    visit(ada, enter=enter, leave=lambda self: names.append(self.hero.name))
    assert driver.drain() == 1

    assert names == ["Ada", "Ada Lovelace"]


def test_the_hero_belongs_to_the_steps_session(driver: Driver, shop: Shop) -> None:
    """One can go on from it to whatever it is related to, and query beside it."""
    ada = shop.customer("Ada", account=Account(balance=7))
    found: list[Any] = []

    def enter(self: Any) -> None:
        found.append(self.hero in self.session)
        found.append(self.hero.account.balance)
        found.append(self.session.get(Customer, ada.id) is self.hero)

    visit(ada, enter=enter)
    driver.drain()

    assert found == [True, 7, True]


def test_a_changed_hero_is_saved_with_the_step(driver: Driver, shop: Shop) -> None:
    """``self.hero.visits += 1`` is enough: it is committed with the journal entry without more ado."""
    ada = shop.customer("Ada")
    seen: list[int] = []

    def enter(self: Any) -> None:
        self.hero.visits += 1
        seen.append(shop.look(ada).visits)

    visit(ada, enter=enter, leave=lambda self: seen.append(self.hero.visits))
    driver.drain()

    assert seen == [0, 1]
    assert shop.look(ada).visits == 1


def test_a_failed_step_leaves_the_hero_as_it_was(driver: Driver, shop: Shop) -> None:
    """Its changes are the attempt's, and each attempt begins with the record as it is in the database."""
    ada = shop.customer("Ada")
    seen: list[int] = []

    class Retried(Workflow[Customer]):
        @step(on_exception=Retry(attempts=3, wait=NOW))
        def enter(self) -> None:
            self.hero.visits += 1
            seen.append(self.hero.visits)
            if len(seen) < 3:
                raise ValueError

    Retried.start(ada)
    driver.drain()

    assert seen == [1, 1, 1]
    assert shop.look(ada).visits == 1


def test_what_is_pending_when_the_hero_is_loaded_waits_for_the_end(driver: Driver, shop: Shop) -> None:
    """Loading ends a transaction of its own: what the step has added by then is not committed with it."""
    ada = shop.customer("Ada")

    def enter(self: Any) -> None:
        self.session.add(Entry(text="pending"))
        assert self.hero.name == "Ada"
        assert shop.ledger == []
        raise ValueError

    run = visit(ada, enter=enter)
    driver.drain()

    assert run.state is RunState.FAILED
    assert shop.ledger == []


def test_what_is_pending_when_the_hero_is_loaded_is_kept(driver: Driver, shop: Shop) -> None:
    """And it is not forgotten either: a step that succeeds has written it."""

    def enter(self: Any) -> None:
        self.session.add(Entry(text="pending"))
        self.hero.visits += 1

    ada = shop.customer("Ada")
    visit(ada, enter=enter)
    driver.drain()

    assert shop.ledger == ["pending"]
    assert shop.look(ada).visits == 1


def test_a_handler_has_the_hero_as_it_is_in_the_database(driver: Driver, shop: Shop) -> None:
    """Loaded afresh after what the body did to it was undone, and attached: its relations can be followed."""
    seen: list[Any] = []

    class Handled(Workflow[Customer]):
        @handles(ValueError)
        def look(self, error: Exception) -> None:
            seen.append((self.hero.name, self.hero.account.balance))
            self.skip()

        @step
        def enter(self) -> None:
            self.hero.name = "changed"
            self.session.flush()
            raise ValueError

    run = Handled.start(shop.customer("Ada", account=Account(balance=7)))
    driver.drain()

    assert story(run) == ["enter skipped"]
    assert seen == [("Ada", 7)]


def test_a_hero_that_is_gone_fails_the_run(driver: Driver, shop: Shop) -> None:
    """It says so as its reason, whatever policies there are; nothing that the step did is kept."""
    ada = shop.customer("Ada")
    run = visit(ada, enter=lambda self: (self.session.add(Entry(text="enter")), self.hero))
    shop.remove(ada)
    driver.drain()

    row = run.info()
    assert (row.state, row.reason) == (RunState.FAILED, Reason.HERO_GONE)
    assert "no longer exists. Say hero_optional = True" in str(row.error_message)
    assert shop.ledger == []


def test_a_run_whose_hero_is_gone_fails_where_it_looks(driver: Driver, shop: Shop) -> None:
    """A step that never asks for its hero does not miss it."""
    ada = shop.customer("Ada")
    run = visit(ada, enter=lambda self: None, leave=lambda self: self.hero)
    shop.remove(ada)
    driver.drain()

    assert story(run) == ["enter success", "leave failed"]
    assert run.reason == Reason.HERO_GONE


def test_an_optional_hero_reads_as_none(driver: Driver, shop: Shop) -> None:
    """A class that says so goes on without it, and may be started without one."""
    seen: list[Any] = []

    class Optional(Workflow[Customer]):
        hero_optional = True

        @cancel_if
        def never(self) -> bool:
            return self.hero is not None and self.hero.name == "nobody"

        @step
        def enter(self) -> None:
            seen.append(self.hero)

    ada = shop.customer("Ada")
    with_hero, without = Optional.start(ada), Optional.start()
    shop.remove(ada)
    driver.drain()

    assert seen == [None, None]
    assert with_hero.state is without.state is RunState.COMPLETED


def test_a_hero_that_comes_back_can_be_resumed(driver: Driver, shop: Shop) -> None:
    """``hero_gone`` is a stop for a person, and no end."""
    ada = shop.customer("Ada")
    run = visit(ada, enter=lambda self: self.hero.name)
    shop.remove(ada)
    driver.drain()
    shop.add(Customer(id=ada.id, name="Ada again"))
    run.resume()
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert run.steps[-2].result == "Ada again"


@contextmanager
def watched(shop: Shop, well: Stepwell) -> Iterator[Callable[[], bool]]:
    """Answers whether a connection of the engine's is in a transaction just now, as an outsider sees it."""
    dialect = shop.engine.dialect.name
    queries = {
        "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND backend_type = 'client backend'",
        "mysql": "SELECT count(*) FROM information_schema.innodb_trx t "
        "JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.db = database()",
    }

    def is_open() -> bool:
        if dialect == "sqlite":
            gate = well.database._gate
            assert gate is not None
            return gate._holder is not None
        if dialect == "mysql":
            time.sleep(0.12)  # InnoDB shows a picture of its transactions that may be a tenth of a second old
        with shop.engine.connect() as connection:
            return bool(connection.execute(text(queries[dialect])).scalar())

    yield is_open


def test_no_transaction_is_open_while_the_body_talks(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """Before its first own statement a body holds nothing, although its hero is loaded and attached."""
    ada = shop.customer("Ada", account=Account(balance=7))
    states: list[bool] = []

    class Watched(Workflow[Customer]):
        @cancel_if
        def looks(self) -> bool:
            return self.hero.account.balance < 0

        @step
        def enter(self) -> None:
            states.append(is_open())
            assert self.hero.name == "Ada"
            states.append(is_open())
            self.hero.visits += 1
            states.append(is_open())
            self.session.add(Entry(text="enter"))
            states.append(is_open())
            self.session.flush()
            states.append(is_open())

    with watched(shop, well) as is_open:
        Watched.start(ada)
        driver.drain()
        states.append(is_open())

    assert states == [False, False, False, False, True, False]
    assert shop.look(ada).visits == 1


def test_a_lazy_load_opens_the_steps_transaction(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """A statement is a statement: what it reads belongs to the step's own transaction from then on."""
    ada = shop.customer("Ada", account=Account(balance=7))
    states: list[bool] = []

    def enter(self: Any) -> None:
        hero = self.hero
        states.append(is_open())
        assert hero.account.balance == 7
        states.append(is_open())

    with watched(shop, well) as is_open:
        run = visit(ada, enter=enter)
        driver.drain()

    assert states == [False, True]
    assert run.state is RunState.COMPLETED


def test_a_hero_with_a_conflict_is_an_error_of_the_step(driver: Driver, shop: Shop) -> None:
    """A change of the hero that breaks a constraint is found when the step ends, and fails it."""
    shop.customer("Bob", email="taken@example.org")
    ada = shop.customer("Ada", email="ada@example.org")
    run = visit(ada, enter=lambda self: setattr(self.hero, "email", "taken@example.org"))
    driver.drain()

    assert run.state is RunState.FAILED
    assert "IntegrityError" in str(run.info().error_class)
    assert shop.look(ada).email == "ada@example.org"


def test_the_session_belongs_to_the_steps_thread(driver: Driver, shop: Shop) -> None:
    """Another thread would write into a transaction that may be over: it is refused there."""
    refused: list[str] = []

    def enter(self: Any) -> None:
        def aside() -> None:
            try:
                self.session.add(Entry(text="aside"))
            except Exception as error:
                refused.append(str(error))

        thread = threading.Thread(target=aside)
        thread.start()
        thread.join()

    run = visit(shop.customer(), enter=enter)
    driver.drain()

    assert "belongs to the thread that runs the step" in refused[0]
    assert (run.state, shop.ledger) == (RunState.COMPLETED, [])
