"""Databases for tests: each one new, and dropped afterwards, on SQLite, PostgreSQL or MariaDB.

Making the tables takes longer than most tests do, so every session makes them once, in a template, and each
test gets a copy.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn, Protocol

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from stepwell.store import migrating

__all__ = ["MariaDB", "PostgreSQL", "Product", "SQLite", "new_name", "unavailable"]

POSTGRES_URL: Final = "postgresql+psycopg://postgres@127.0.0.1:5432/postgres"
MARIADB_URL: Final = "mysql+pymysql://root@127.0.0.1:3306/mysql"

_PREFIX: Final = "stepwell_test_"
_LEFTOVER_SECONDS: Final = 6 * 3600


class Product(Protocol):
    """A database product that hands out databases."""

    def database(self, *, tables: bool = True) -> AbstractContextManager[str]:
        """The URL of a new database, dropped at the end; with Stepwell's tables or with none."""
        ...

    def close(self) -> None:
        """Drop the template."""
        ...


def make_tables(url: str | URL) -> None:
    """Make Stepwell's tables in an empty database."""
    engine = create_engine(url, poolclass=NullPool)
    migrating.upgrade(engine)
    engine.dispose()


def new_name(born: float | None = None) -> str:
    """A database's name; it tells its age, so that what a killed session left behind can be swept."""
    seconds = int(time.time() if born is None else born)
    return f"{_PREFIX}{seconds:x}_{os.getpid()}_{secrets.token_hex(4)}"


def is_leftover(name: str) -> bool:
    """Whether a session that cannot be running any more made this database."""
    if not name.startswith(_PREFIX):
        return False
    born = int(name.removeprefix(_PREFIX).split("_")[0], 16)
    return time.time() - born > _LEFTOVER_SECONDS


def unavailable(product: str, url: URL, error: Exception) -> NoReturn:
    """Skip the test, or fail it where servers are required."""
    cause = str(error).splitlines()[0]
    message = f"no {product} server at {url.render_as_string(hide_password=True)}: {cause}"
    if os.environ.get("STEPWELL_REQUIRE_SERVERS") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


class SQLite:
    """A file for each test.

    Args:
        folders: Where the files lie; pytest keeps those of the last sessions.
    """

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._template = self._new_file()
        make_tables(_sqlite_url(self._template))

    @contextmanager
    def database(self, *, tables: bool = True) -> Iterator[str]:
        file = self._new_file()
        if tables:
            shutil.copyfile(self._template, file)
        yield _sqlite_url(file)

    def close(self) -> None:
        self._template.unlink()

    def _new_file(self) -> Path:
        return self._folders.mktemp("sqlite") / "stepwell.db"


def _sqlite_url(file: Path) -> str:
    return URL.create("sqlite", database=str(file)).render_as_string()


class _Server:
    """What the two servers have in common."""

    product: str

    def __init__(self, url: str, **connect_args: object) -> None:
        self._url = make_url(url)
        try:
            self._admin = self._connect(connect_args)
        except (SQLAlchemyError, ImportError) as error:
            unavailable(self.product, self._url, error)
        self._sweep()
        self._template = new_name()
        self._create(self._template)
        make_tables(self._url_of(self._template))

    @contextmanager
    def database(self, *, tables: bool = True) -> Iterator[str]:
        name = new_name()
        self._create(name, template=self._template if tables else None)
        try:
            yield self._url_of(name)
        finally:
            self._drop(name)

    def close(self) -> None:
        self._drop(self._template)
        self._admin.dispose()

    def names(self) -> list[str]:
        """The names of all databases on the server."""
        raise NotImplementedError

    def _create(self, name: str, *, template: str | None = None) -> None:
        raise NotImplementedError

    def _drop(self, name: str) -> None:
        raise NotImplementedError

    def _connect(self, connect_args: dict[str, object]) -> Engine:
        # A test may stop the server, or cut its connections: so the pool checks before it hands one out.
        engine = create_engine(
            self._url,
            isolation_level="AUTOCOMMIT",
            pool_pre_ping=True,
            connect_args={"connect_timeout": 3, **connect_args},
        )
        engine.connect().close()
        return engine

    def _run(self, *statements: str) -> None:
        with self._admin.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def _column(self, query: str) -> list[str]:
        with self._admin.connect() as connection:
            return [str(value) for value in connection.exec_driver_sql(query).scalars()]

    def _sweep(self) -> None:
        for name in filter(is_leftover, self.names()):
            self._drop(name)

    def _url_of(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)


class PostgreSQL(_Server):
    """A database for each test, copied by the server."""

    product = "PostgreSQL"

    def __init__(self) -> None:
        super().__init__(os.environ.get("STEPWELL_TEST_POSTGRES_URL", POSTGRES_URL))

    def names(self) -> list[str]:
        return self._column("SELECT datname FROM pg_database")

    def _create(self, name: str, *, template: str | None = None) -> None:
        self._run(f"CREATE DATABASE {name} TEMPLATE {template or 'template0'}")

    def _drop(self, name: str) -> None:
        self._run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


class MariaDB(_Server):
    """A database for each test; MariaDB has no templates, but copies empty tables quickly."""

    product = "MariaDB"

    def __init__(self) -> None:
        url = os.environ.get("STEPWELL_TEST_MARIADB_URL", MARIADB_URL)
        super().__init__(url, init_command="SET lock_wait_timeout = 30")

    def names(self) -> list[str]:
        return self._column("SELECT schema_name FROM information_schema.schemata")

    def _create(self, name: str, *, template: str | None = None) -> None:
        self._run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        for table in self._column(f"SHOW TABLES IN {template}") if template else ():
            self._run(
                f"CREATE TABLE {name}.{table} LIKE {template}.{table}",
                f"INSERT INTO {name}.{table} SELECT * FROM {template}.{table}",
            )

    def _drop(self, name: str) -> None:
        # A connection that a test left in a transaction holds locks that would keep DROP waiting.
        query = f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"
        for connection in self._column(query):
            with suppress(DBAPIError):  # it ended by itself
                self._run(f"KILL {connection}")
        self._run(f"DROP DATABASE IF EXISTS {name}")
