"""MariaDB (and MySQL 8): short transactions at READ COMMITTED."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final
from uuid import UUID

from sqlalchemy import Connection, Select, Table, insert, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from stepwell.entries import JournalEntry, Verdict
from stepwell.errors import UnsupportedDatabase
from stepwell.store.dialects.base import DatabaseOptions, Dialect
from stepwell.store.dialects.rowwise import Rowwise, as_stored
from stepwell.store.schema import runs

__all__ = ["MariaDBDialect"]

_DUPLICATE: Final = 1062
_DEADLOCK: Final = 1213
_LOCK_TIMEOUT: Final = 1205
_ROWS_AT_ONCE: Final = 500


class MariaDBDialect(Dialect):
    """MariaDB from 10.6, MySQL from 8.0 (SKIP LOCKED)."""

    name: ClassVar[str] = "mariadb"
    updates_return_rows: ClassVar[bool] = False
    groups_commits: ClassVar[bool] = False

    def __init__(self, options: DatabaseOptions) -> None:
        super().__init__(options)
        self._rows = Rowwise("%s", upsert=_finish_only_unfinished, quote=lambda name: f"`{name}`", returning="")

    def speaks(self, connection: Connection) -> bool:
        return connection.dialect.name in ("mysql", "mariadb")

    def prepare_connection(self, dbapi_connection: Any) -> None:
        cursor = dbapi_connection.cursor()
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {max(1, round(self.options.lock_limit))}")
        cursor.execute("SELECT VERSION()")
        if "MariaDB" in cursor.fetchone()[0]:
            # MySQL has no such limit: there the dead peer's locks end with its TCP connection.
            cursor.execute(f"SET SESSION idle_transaction_timeout = {round(self.options.session_idle_limit)}")
        cursor.close()

    def check_server(self, connection: Connection) -> None:
        version = connection.execute(text("SELECT VERSION()")).scalar_one()
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        needed = (10, 6) if "MariaDB" in version else (8, 0)
        if numbers < needed:
            raise UnsupportedDatabase(
                f"Stepwell needs MariaDB 10.6 or MySQL 8.0 or later; this server says {version}."
            )
        engines = connection.execute(
            text(
                "SELECT table_name, engine FROM information_schema.tables "
                "WHERE table_schema = DATABASE() AND table_name LIKE 'stepwell\\_%' AND engine <> 'InnoDB'"
            )
        ).all()
        if engines:
            listed = ", ".join(f"{table} ({engine})" for table, engine in engines)
            raise UnsupportedDatabase(f"Stepwell's tables must be InnoDB; convert {listed}.")

    def epoch_seconds(self, connection: Connection) -> float:
        return float(connection.exec_driver_sql("SELECT UNIX_TIMESTAMP(SYSDATE(6))").scalar_one())

    def apply(self, connection: Connection, entries: Sequence[JournalEntry]) -> list[Verdict]:
        def guard(entry: JournalEntry, sql: str, values: tuple[Any, ...]) -> tuple[int, str | None] | None:
            # FOUND_ROWS is on: the count is that of the rows matched, changed or not.
            if connection.exec_driver_sql(sql, values).rowcount != 1:
                return None
            found = connection.exec_driver_sql(
                "SELECT wakeups, stop_request FROM stepwell_runs WHERE id = %s", (entry.run_id.hex,)
            )
            wakeups, stop_request = found.one()
            return wakeups, stop_request

        return self._rows.apply(entries, guard, connection.exec_driver_sql)

    def insert_runs(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
        names = tuple(rows[0])
        columns = ", ".join(f"`{name}`" for name in names)
        marks = ", ".join(["%s"] * len(names))
        # INSERT IGNORE would truncate silently; this update of nothing does not.
        sql = f"INSERT INTO stepwell_runs ({columns}) VALUES ({marks}) ON DUPLICATE KEY UPDATE id = id"
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            connection.exec_driver_sql(sql, [tuple(as_stored(row[name]) for name in names) for row in part])
        return self._existing(connection, [row["id"].hex for row in rows])

    @staticmethod
    def _existing(connection: Connection, ids: list[str]) -> set[UUID]:
        found: set[UUID] = set()
        for start in range(0, len(ids), _ROWS_AT_ONCE):
            part = tuple(ids[start : start + _ROWS_AT_ONCE])
            marks = ", ".join(["%s"] * len(part))
            sql = f"SELECT id FROM stepwell_runs WHERE id IN ({marks}) LOCK IN SHARE MODE"
            found.update(UUID(hex=row[0]) for row in connection.exec_driver_sql(sql, part))
        return found

    def through(self, question: Select[Any], index: str) -> Select[Any]:
        # Where a question is for a good part of a table the planner would sort, and a sort locks all it has seen.
        for name in ("mysql", "mariadb"):
            question = question.with_hint(runs, f"FORCE INDEX ({index})", name)
        return question

    def insert_if_new(self, connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
        try:
            connection.execute(insert(table).values(**values))
        except IntegrityError as error:
            # Undoes its own statement and nothing else: the transaction stays usable.
            if getattr(error.orig, "args", ())[:1] == (_DUPLICATE,):
                return False
            raise
        return True

    def begin_step(self, connection: Connection) -> None:
        connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 31536000")

    def end_step(self, connection: Connection) -> None:
        limit = max(1, round(self.options.lock_limit))
        connection.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {limit}")

    def abandon_step(self, connection: Connection) -> None:
        # The limit is the session's, not the transaction's.
        self.end_step(connection)
        connection.rollback()

    def is_retryable(self, error: DBAPIError) -> bool:
        arguments: tuple[object, ...] = getattr(error.orig, "args", ())
        return arguments[:1] in ((_DEADLOCK,), (_LOCK_TIMEOUT,))


def _finish_only_unfinished(names: list[str]) -> str:
    # Assignments run from left to right: `state` decides for the others and so changes last.
    ordered = [name for name in names if name != "`state`"] + ["`state`"]
    return "ON DUPLICATE KEY UPDATE " + ", ".join(
        f"{name} = IF(state IN ('scheduled', 'in_progress'), VALUES({name}), {name})" for name in ordered
    )
