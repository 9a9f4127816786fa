"""Connections that the server has ended: what the library sends by itself is sent again, on another one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from stepwell import Fail, Retry, Stepwell, Workflow, cancel_if, step
from stepwell.states import RunState
from tests.integration.declared.shop import Account, Base, Customer, Entry, Shop, story
from tests.support.driving import Driver

DO: dict[str, Callable[[Any], Any]] = {}


class Serve(Workflow[Customer]):
    """No policy of its steps may hear of a lost connection."""

    workflow_name = "lost_connections.Serve"

    policies = [Fail("sqlalchemy.exc.DBAPIError"), Retry(attempts=99, wait=timedelta())]

    @cancel_if
    def left(self) -> bool:
        DO.get("before the condition", lambda self: None)(self)
        return self.hero.name == "left"

    @step
    def serve(self) -> None:
        DO["serve"](self)


@pytest.fixture(autouse=True)
def _nothing_to_do() -> None:
    DO.clear()


@pytest.fixture(scope="session")
def shop_url(common_server_engine: Engine) -> str:
    """The shop, where there is a server to lose."""
    Base.metadata.create_all(common_server_engine)
    return common_server_engine.url.render_as_string(hide_password=False)


@pytest.fixture
def shared_url(shared_server_url: str) -> str:
    """The same, with empty tables."""
    return shared_server_url


@pytest.fixture
def cut(shop: Shop) -> Callable[[], None]:
    """Ends all of the engine's connections, as a restart of the server does."""
    name = shop.engine.url.database

    def end_them() -> None:
        with shop.engine.connect() as connection:
            if shop.engine.dialect.name == "postgresql":
                connection.execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE datname = :name AND application_name = 'stepwell'"
                    ),
                    {"name": name},
                )
                return
            found = connection.execute(
                text(
                    "SELECT id FROM information_schema.processlist WHERE db = :name AND id <> connection_id()"
                ),
                {"name": name},
            )
            for (number,) in found.all():
                connection.execute(text(f"KILL {number}"))

    return end_them


def filled(well: Stepwell) -> None:
    """Let the pool have several connections, all of which will be dead."""
    held = [well.database.engine.connect() for _ in range(4)]
    for connection in held:
        connection.close()


def test_the_hero_is_loaded_on_another_connection(
    driver: Driver, shop: Shop, well: Stepwell, cut: Callable[[], None]
) -> None:
    """By a condition, and by the body."""
    names: list[str] = []

    def before(self: Any) -> None:
        filled(well)
        cut()

    def serve(self: Any) -> None:
        filled(well)
        cut()
        names.append(self.hero.name)

    DO.update({"before the condition": before, "serve": serve})
    run = Serve.start(shop.customer("Ada"))
    driver.drain()

    assert story(run) == ["serve success"]
    assert names == ["Ada"]


def test_the_steps_transaction_begins_on_another_connection(
    driver: Driver, shop: Shop, well: Stepwell, cut: Callable[[], None]
) -> None:
    """As long as nothing of the author's was sent, nothing is lost."""

    def serve(self: Any) -> None:
        assert self.hero.name == "Ada"
        filled(well)
        cut()
        self.session.add(Entry(text="served"))
        self.session.flush()
        self.hero.visits += 1

    DO["serve"] = serve
    ada = shop.customer("Ada")
    run = Serve.start(ada)
    driver.drain()

    assert story(run) == ["serve success"]
    assert shop.ledger == ["served"]
    assert shop.look(ada).visits == 1


@pytest.mark.parametrize(("sent", "pending"), [(True, False), (True, True), (False, True)])
def test_a_connection_that_is_lost_before_the_commit_runs_the_step_again(
    driver: Driver, shop: Shop, well: Stepwell, cut: Callable[[], None], sent: bool, pending: bool
) -> None:
    """What the step has sent by then is gone with it, so that the step is simply run again."""
    bodies: list[int] = []

    def serve(self: Any) -> None:
        bodies.append(1)
        if sent:
            self.session.add(Entry(text="sent"))
            self.session.flush()
        if pending:
            self.session.add(Entry(text="pending"))
        if len(bodies) == 1:
            filled(well)
            cut()

    DO["serve"] = serve
    run = Serve.start(shop.customer("Ada"))
    driver.drain()

    assert story(run) == ["serve success"]
    assert len(bodies) == 1 + sent
    assert shop.ledger == ["sent"] * sent + ["pending"] * pending


def test_a_connection_that_is_lost_under_the_authors_own_statement(
    driver: Driver, shop: Shop, cut: Callable[[], None]
) -> None:
    """It is the author's error, whatever its class: nobody repeats other people's statements."""

    def serve(self: Any) -> None:
        self.session.add(Entry(text="served"))
        self.session.flush()
        cut()
        self.session.add(Account(balance=1))
        self.session.flush()

    DO["serve"] = serve
    run = Serve.start(shop.customer("Ada"))
    driver.drain()

    assert run.state is RunState.FAILED
    assert story(run) == ["serve failed"]
    assert shop.ledger == []


def test_a_plain_step_is_recorded_on_another_connection(
    driver: Driver, shop: Shop, well: Stepwell, cut: Callable[[], None]
) -> None:
    """A body that used no session has done its work: it is not run again because of a connection."""
    bodies: list[int] = []

    def serve(self: Any) -> None:
        bodies.append(1)
        filled(well)
        cut()

    DO["serve"] = serve
    run = Serve.start(shop.customer("Ada"))
    driver.drain()

    assert story(run) == ["serve success"]
    assert bodies == [1]
