"""MariaDB (and MySQL 8): short transactions at READ COMMITTED."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final
from uuid import UUID

from sqlalchemy import Connection, Select, Table, bindparam, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from stepwell.entries import JournalEntry, Verdict
from stepwell.errors import UnsupportedDatabase
from stepwell.store.dialects.base import UNFINISHED_LIST, DatabaseOptions, Dialect
from stepwell.store.dialects.rowwise import Rowwise
from stepwell.store.schema import runs

__all__ = ["MariaDBDialect"]

_DUPLICATE: Final = 1062
_DEADLOCK: Final = 1213
_LOCK_TIMEOUT: Final = 1205
_TOO_LARGE: Final = 1153
_ROWS_AT_ONCE: Final = 500
_TAKEN: Final = select(runs.c.active_key).where(
    runs.c.workflow == bindparam("workflow"), runs.c.active_key.in_(bindparam("digests", expanding=True))
)


class MariaDBDialect(Dialect):
    """MariaDB from 10.6, MySQL from 8.0 (SKIP LOCKED)."""

    name: ClassVar[str] = "mariadb"
    updates_return_rows: ClassVar[bool] = False
    groups_commits: ClassVar[bool] = False
    keeps_snapshots: ClassVar[bool] = True

    def __init__(self, options: DatabaseOptions) -> None:
        super().__init__(options)
        self._rows = Rowwise(
            "%s", upsert=_finish_only_unfinished, quote=lambda name: f"`{name}`", returning=""
        )

    def speaks(self, connection: Connection) -> bool:
        return connection.dialect.name in ("mysql", "mariadb")

    def prepare_connection(self, dbapi_connection: Any) -> None:
        self._watch_server(dbapi_connection)
        cursor = dbapi_connection.cursor()
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {max(1, round(self.options.lock_limit))}")
        cursor.execute("SELECT VERSION()")
        if "MariaDB" in cursor.fetchone()[0]:
            # MySQL has no such limit: there the dead peer's locks end with its TCP connection.
            cursor.execute(f"SET SESSION idle_transaction_timeout = {round(self.options.session_idle_limit)}")
        cursor.close()

    def _watch_server(self, dbapi_connection: Any) -> None:
        """A server that died without a word is noticed within one lease.

        By the system, which asks a silent peer for a sign of life: a read timeout would also end a long statement of
        a step's own, of which a living server has nothing to say yet. PyMySQL has no options for it.
        """
        link = getattr(dbapi_connection, "_sock", None)
        if not isinstance(link, socket.socket) or link.family not in (socket.AF_INET, socket.AF_INET6):
            return
        idle, interval, count = self.options.keepalive_seconds()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", idle),
            ("TCP_KEEPALIVE", idle),  # what macOS calls it
            ("TCP_KEEPINTVL", interval),
            ("TCP_KEEPCNT", count),
            ("TCP_USER_TIMEOUT", round(self.options.lease_seconds * 1000)),
        ):
            option = getattr(socket, name, None)
            if option is not None:
                link.setsockopt(socket.IPPROTO_TCP, option, value)

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
        inserted: set[UUID] = set()
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            inserted |= self._insert_free(connection, rows[start : start + _ROWS_AT_ONCE])
        return inserted

    def _insert_free(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
        # Looked at first: an insert that is refused locks what stands against it until the caller's transaction ends,
        # and an upsert would even lock that run's row, and stop its worker.
        taken = _taken_identities(connection, rows)
        free = []
        for row in rows:
            identity = (row["workflow"], row["active_key"])
            if identity not in taken:
                free.append(row)
            if row["active_key"] is not None:
                taken.add(identity)
        try:
            if free:
                connection.execute(insert(runs), free)
        except IntegrityError as error:
            if not _is_duplicate(error):
                raise
            # Another start was quicker with one of them. The statement was undone, the transaction was not.
            free = [row for row in free if self.insert_if_new(connection, runs, row)]
        return {row["id"] for row in free}

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
            if _is_duplicate(error):
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

    def is_answer_lost(self, error: DBAPIError) -> bool:
        # The server may find the time to say why it ends the connection.
        is_too_large = getattr(error.orig, "args", ())[:1] == (_TOO_LARGE,)
        return is_too_large or super().is_answer_lost(error)


def _is_duplicate(error: IntegrityError) -> bool:
    return getattr(error.orig, "args", ())[:1] == (_DUPLICATE,)


def _taken_identities(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Those of the rows' identities that another run is seen to hold."""
    keys: dict[str, list[str]] = {}
    for row in rows:
        if row["active_key"] is not None:
            keys.setdefault(row["workflow"], []).append(row["active_key"])
    taken: set[tuple[str, str]] = set()
    for workflow, digests in keys.items():
        # One list for each class: the planner finds no way into an index by a list of pairs.
        found = connection.execute(_TAKEN, {"workflow": workflow, "digests": digests})
        taken.update((workflow, digest) for digest in found.scalars())
    return taken


def _finish_only_unfinished(names: list[str]) -> str:
    # Assignments run from left to right: `state` decides for the others and so changes last.
    ordered = [name for name in names if name != "`state`"] + ["`state`"]
    return "ON DUPLICATE KEY UPDATE " + ", ".join(
        f"{name} = IF(state IN {UNFINISHED_LIST}, VALUES({name}), {name})" for name in ordered
    )
