"""SQLAlchemy engines of Stepwell's own: from a URL, or beside the engine of an application."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import StaticPool

from stepwell.errors import StoreError
from stepwell.store.dialects import DatabaseOptions, Dialect, dialect_named

__all__ = ["open_engine", "reserve"]

_DRIVERS: Final = frozenset({"psycopg", "pymysql", "pysqlite"})
_ASYNCHRONOUS: Final = frozenset({"aiomysql", "aiosqlite", "asyncmy", "asyncpg", "psycopg_async"})
_MOST_CONNECTIONS: Final = 64


def open_engine(target: str | URL | Engine | AsyncEngine, options: DatabaseOptions) -> tuple[Engine, Dialect]:
    """An engine of our own on this database, and what is particular about the product.

    Raises:
        UnsupportedDatabase: Stepwell has no dialect for it.
        StoreError: The URL cannot be read, its driver is not installed, or the database is one in memory.
    """
    if isinstance(target, AsyncEngine):
        raise _asynchronous(target.url)
    if isinstance(target, Engine) and target.dialect.is_async:
        raise _asynchronous(target.url)
    if isinstance(target, Engine):
        dialect = dialect_named(target.url.get_backend_name(), options)
        _refuse_memory(target.url, dialect)
        if isinstance(target.pool, StaticPool):
            raise StoreError(
                "the engine's pool has one connection for all threads (StaticPool), and steps need connections of "
                "their own: give Stepwell the URL, Stepwell(engine.url)."
            )
        # Own connections, made the application's way: limits that we set must not reach the application's.
        return reserve(target, dialect), dialect
    try:
        url = make_url(target)
    except Exception as error:
        raise StoreError(f"{target!r} is no database URL; write one such as sqlite:///app.db") from error
    dialect = dialect_named(url.get_backend_name(), options)
    _refuse_memory(url, dialect)
    if url.get_driver_name() in _ASYNCHRONOUS:
        raise _asynchronous(url)
    return _make_engine(_with_driver(url), dialect), dialect


def reserve(engine: Engine, dialect: Dialect) -> Engine:
    """A second engine on the same database, with connections that nobody else can take."""
    return create_engine(engine.url, pool=engine.pool.recreate(), **_engine_arguments(dialect))


def _refuse_memory(url: URL, dialect: Dialect) -> None:
    """Such a database is its connection's own: a worker's threads, and other processes, would never see a run."""
    is_in_memory = ":memory:" in (url.database or ":memory:") or url.query.get("mode") == "memory"
    if dialect.has_one_writer and is_in_memory:
        raise StoreError(
            "a SQLite database in memory belongs to one connection, and nobody else would find the runs in it. "
            'Use a file, such as Stepwell("sqlite:///app.db"); in tests the fixture `stepwell`, or Workbench(), '
            "brings a database of its own."
        )


def _with_driver(url: URL) -> URL:
    """The driver that Stepwell's extras install, where the URL names none."""
    drivers = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
    return url.set(drivername=drivers.get(url.drivername, url.drivername))


def _asynchronous(url: URL) -> StoreError:
    ours = _with_driver(url.set(drivername=url.get_backend_name())).drivername
    return StoreError(
        f"Stepwell uses a synchronous driver: give it a URL that begins with {ours}:// and not {url.drivername}://. "
        "The application may go on using its own."
    )


def _engine_arguments(dialect: Dialect) -> dict[str, Any]:
    return {} if dialect.isolation_level is None else {"isolation_level": dialect.isolation_level}


def _make_engine(url: URL, dialect: Dialect) -> Engine:
    try:
        return create_engine(
            url,
            connect_args=dialect.connect_arguments(url),
            pool_size=8,
            max_overflow=_MOST_CONNECTIONS,
            pool_timeout=60,
            **_engine_arguments(dialect),
        )
    except ImportError as error:
        if url.get_driver_name() not in _DRIVERS:
            raise _asynchronous(url) from error
        raise StoreError(
            f"the driver for {url.drivername} is not installed ({error.name}). "
            f"Run: pip install 'stepwell[{'postgres' if 'postgres' in url.drivername else 'mariadb'}]'"
        ) from error
