"""Databases that tests share.

There are many laws and each is quickly shown: making a database for it would take longer than the test. So
the tests that use these fixtures share one database for each product, and each begins with empty tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, create_engine, text

from stepwell.store.schema import metadata
from tests.databases import Product
from tests.integration.store.rig import ledger
from tests.integration.town import Base, Town, town_on

SERVERS = [pytest.param(name, marks=pytest.mark.servers) for name in ("postgresql", "mariadb")]
TABLES = [*metadata.sorted_tables, *Base.metadata.sorted_tables, ledger]


@pytest.fixture(scope="session", params=["sqlite", *SERVERS])
def common_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database on each product, with an application's tables too, for the whole session."""
    with common_database(request.getfixturevalue(request.param)) as engine:
        yield engine


@pytest.fixture(scope="session", params=SERVERS)
def common_server_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database on each of the two servers, for the whole session."""
    with common_database(request.getfixturevalue(request.param)) as engine:
        yield engine


@pytest.fixture
def shared_url(common_engine: Engine) -> Iterator[str]:
    """A database with empty tables, on each product in turn."""
    yield common_engine.url.render_as_string(hide_password=False)
    wipe(common_engine)


@pytest.fixture
def shared_server_url(common_server_engine: Engine) -> Iterator[str]:
    """The same on the two servers only, for laws about row locks and connections."""
    yield common_server_engine.url.render_as_string(hide_password=False)
    wipe(common_server_engine)


@contextmanager
def common_database(product: Product) -> Iterator[Engine]:
    with product.database() as url:
        engine = create_engine(url, pool_pre_ping=True)
        with engine.begin() as connection:
            Base.metadata.create_all(connection)
            ledger.create(connection)
            if engine.dialect.name == "postgresql":
                # What is durable when is proved elsewhere: here it would only make every commit wait.
                connection.execute(text(f"ALTER DATABASE {engine.url.database} SET synchronous_commit = off"))
        yield engine
        engine.dispose()


def wipe(engine: Engine) -> None:
    with engine.begin() as connection:
        for table in TABLES:
            connection.execute(table.delete())


@pytest.fixture
def town(shared_url: str) -> Iterator[Town]:
    """A small application and an engine beside it, on each product in turn."""
    with town_on(shared_url) as town:
        yield town


@pytest.fixture
def server_town(shared_server_url: str) -> Iterator[Town]:
    """The same on the two servers."""
    with town_on(shared_server_url) as town:
        yield town
