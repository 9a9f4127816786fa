"""SQLite: one writer at a time, in write-ahead mode, durable by default."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import URL, Connection, Engine, Table, event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError

from stepwell.entries import JournalEntry, Verdict
from stepwell.errors import UnsupportedDatabase
from stepwell.store.dialects.base import UNFINISHED_LIST, DatabaseOptions, Dialect
from stepwell.store.dialects.rowwise import Rowwise, as_stored

__all__ = ["SQLiteDialect"]

_BUSY_MILLISECONDS = 30_000
_MOST_VARIABLES = 30_000


class SQLiteDialect(Dialect):
    """SQLite from 3.35 (RETURNING)."""

    name: ClassVar[str] = "sqlite"
    skips_locked_rows: ClassVar[bool] = False
    has_one_writer: ClassVar[bool] = True
    isolation_level: ClassVar[str | None] = None

    def __init__(self, options: DatabaseOptions) -> None:
        super().__init__(options)
        self._rows = Rowwise(
            "?",
            upsert=lambda names: (
                "ON CONFLICT (run_id, position) DO UPDATE SET "
                + ", ".join(f"{name} = excluded.{name}" for name in names)
                + f" WHERE state IN {UNFINISHED_LIST}"
            ),
            quote=lambda name: name,
            returning=" RETURNING wakeups, stop_request",
        )

    def connect_arguments(self, url: URL) -> dict[str, Any]:
        return {"timeout": _BUSY_MILLISECONDS / 1000, "check_same_thread": False}

    def prepare_connection(self, dbapi_connection: Any) -> None:
        # None turns the driver's own transaction control off: it would begin too late, and DEFERRED.
        dbapi_connection.isolation_level = None
        cursor = dbapi_connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
        self._use_wal(cursor)
        # NORMAL may lose the last commits when the power fails; a commit that was acknowledged must stay.
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @staticmethod
    def _use_wal(cursor: Any) -> None:
        """Switch the file to write-ahead mode, which lasts; while somebody writes to it, a later connection will."""
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            with suppress(sqlite3.OperationalError):
                cursor.execute("PRAGMA journal_mode = WAL")

    def configure(self, engine: Engine) -> None:
        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            # IMMEDIATE: a transaction that begins DEFERRED and then writes cannot wait for the lock.
            mode = connection.get_execution_options().get("sqlite_begin", "IMMEDIATE")
            connection.exec_driver_sql(f"BEGIN {mode}")

        @event.listens_for(engine, "invalidate")
        def invalidate(dbapi_connection: Any, _record: Any, _error: BaseException | None) -> None:
            # An interrupt in the middle of a statement. Closed with that statement still open, the connection
            # would live on and keep the write lock.
            dbapi_connection.rollback()

    def check_server(self, connection: Connection) -> None:
        if sqlite3.sqlite_version_info < (3, 35):
            raise UnsupportedDatabase(
                f"Stepwell needs SQLite 3.35 or later; this Python has {sqlite3.sqlite_version}."
            )

    def epoch_seconds(self, connection: Connection) -> float:
        return time.time()

    def apply(self, connection: Connection, entries: Sequence[JournalEntry]) -> list[Verdict]:
        # Straight on the driver: SQLAlchemy's bookkeeping would cost more than SQLite's work.
        cursor = connection.connection.cursor()

        def guard(entry: JournalEntry, sql: str, values: tuple[Any, ...]) -> tuple[int, str | None] | None:
            row = cursor.execute(sql, values).fetchall()
            return row[0] if row else None

        try:
            return self._rows.apply(entries, guard, cursor.execute)
        finally:
            cursor.close()

    def insert_runs(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
        names = tuple(rows[0])
        marks = ", ".join("?" * len(names))
        sql = f"INSERT INTO stepwell_runs ({', '.join(names)}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        if len(rows) == 1:
            values = tuple(as_stored(rows[0][name]) for name in names)
            return {UUID(hex=row[0]) for row in connection.exec_driver_sql(sql + " RETURNING id", values)}
        connection.exec_driver_sql(sql, [tuple(as_stored(row[name]) for name in names) for row in rows])
        return self._existing(connection, [row["id"].hex for row in rows])

    @staticmethod
    def _existing(connection: Connection, ids: list[str]) -> set[UUID]:
        found: set[UUID] = set()
        for start in range(0, len(ids), _MOST_VARIABLES):
            part = tuple(ids[start : start + _MOST_VARIABLES])
            sql = f"SELECT id FROM stepwell_runs WHERE id IN ({', '.join('?' * len(part))})"
            found.update(UUID(hex=row[0]) for row in connection.exec_driver_sql(sql, part))
        return found

    def insert_if_new(self, connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
        statement = insert(table).values(**values).on_conflict_do_nothing()
        return connection.execute(statement.returning(*table.primary_key)).first() is not None

    def is_retryable(self, error: DBAPIError) -> bool:
        return "locked" in str(error.orig) or "busy" in str(error.orig)
