"""What differs between databases when the schema changes: the transaction, and what tables may be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Engine, func, select, text

from stepwell.errors import StoreError, UnsupportedDatabase

__all__ = ["has_storage_parameters", "schema_transaction"]

_LOCK_KEY: Final = 0x5354_4550_5745_4C4C  # "STEPWELL"
_MOST_WAIT_SECONDS: Final = 600


def has_storage_parameters(dialect: Dialect) -> bool:
    """Whether tables take parameters such as ``fillfactor`` here."""
    return dialect.name == "postgresql"


def schema_transaction(engine: Engine) -> AbstractContextManager[Connection]:
    """A connection in a transaction that no other process's schema change overlaps; it commits at the end.

    The engine may be an application's: nothing is expected of its isolation level or its event listeners.

    Raises:
        UnsupportedDatabase: Stepwell does not run on this database.
    """
    try:
        begin = _BEGIN[engine.dialect.name]
    except KeyError:
        raise UnsupportedDatabase(f"Stepwell has no schema for {engine.dialect.name!r}.") from None
    return begin(engine)


@contextmanager
def _postgresql(engine: Engine) -> Iterator[Connection]:
    # READ COMMITTED: what the holder before us made must be seen once its lock is ours.
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        with connection.begin():
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK_KEY)))
            yield connection


@contextmanager
def _mariadb(engine: Engine) -> Iterator[Connection]:
    # DDL commits by itself here, so the lock is the connection's and not a transaction's.
    name: Any = func.concat("stepwell:", func.sha1(func.database()))
    with engine.connect() as connection:
        if connection.scalar(select(func.get_lock(name, _MOST_WAIT_SECONDS))) != 1:
            raise StoreError(
                f"another process has been changing Stepwell's schema for {_MOST_WAIT_SECONDS} s. "
                "See SHOW PROCESSLIST for what it waits for, then run this again."
            )
        connection.commit()
        try:
            with connection.begin():
                yield connection
        finally:
            if not connection.invalidated:
                connection.execute(select(func.release_lock(name)))


@contextmanager
def _sqlite(engine: Engine) -> Iterator[Connection]:
    with engine.begin() as connection:
        # The driver begins no transaction for DDL, unless the engine's listeners have begun one.
        if not connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]  # it is open
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection


_BEGIN: Final[dict[str, Callable[[Engine], AbstractContextManager[Connection]]]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "mysql": _mariadb,
    "mariadb": _mariadb,
}
