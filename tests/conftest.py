"""Fixtures for all tests: above all, databases (see ``databases.py``)."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from tests.databases import MariaDB, PostgreSQL, Product, SQLite

# A shared machine may pause at any time: how long an example takes says nothing about it.
hypothesis.settings.register_profile("stepwell", deadline=None)
hypothesis.settings.load_profile("stepwell")

PRODUCTS = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.servers),
    pytest.param("mariadb", marks=pytest.mark.servers),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that name a server's fixture as needing servers; files with slow tests go first.

    Several processes share the files: one that began with a long file last would keep all others waiting.
    """
    for item in items:
        if {"postgresql_url", "mariadb_url"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.servers)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> SQLite:
    """Hands out SQLite files."""
    return SQLite(tmp_path_factory)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """Hands out PostgreSQL databases; skips without a server."""
    server = PostgreSQL()
    yield server
    server.close()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """Hands out MariaDB databases; skips without a server."""
    server = MariaDB()
    yield server
    server.close()


@pytest.fixture(params=PRODUCTS)
def product(request: pytest.FixtureRequest) -> Product:
    """Each database product in turn."""
    chosen: Product = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def database_url(product: Product) -> Iterator[str]:
    """A new database with Stepwell's tables, on each product in turn."""
    with product.database() as url:
        yield url


@pytest.fixture
def empty_database_url(product: Product) -> Iterator[str]:
    """A new database without tables, on each product in turn."""
    with product.database(tables=False) as url:
        yield url


@pytest.fixture
def sqlite_url(sqlite: SQLite) -> Iterator[str]:
    """A new SQLite database with Stepwell's tables."""
    with sqlite.database() as url:
        yield url


@pytest.fixture
def postgresql_url(postgresql: PostgreSQL) -> Iterator[str]:
    """A new PostgreSQL database with Stepwell's tables."""
    with postgresql.database() as url:
        yield url


@pytest.fixture
def mariadb_url(mariadb: MariaDB) -> Iterator[str]:
    """A new MariaDB database with Stepwell's tables."""
    with mariadb.database() as url:
        yield url
