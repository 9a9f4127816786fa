"""What differs between the databases, behind one face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final
from uuid import UUID

from sqlalchemy import URL, Connection, Engine, Select, Table
from sqlalchemy.exc import DBAPIError

from stepwell.entries import JournalEntry, Verdict
from stepwell.states import UNFINISHED
from stepwell.store.schema import executions

__all__ = [
    "CONSUME",
    "EXECUTION_COLUMNS",
    "FINISHED_COLUMNS",
    "UNFINISHED_LIST",
    "DatabaseOptions",
    "Dialect",
]

EXECUTION_COLUMNS: Final = tuple(column.name for column in executions.columns)
CONSUME: Final = """
UPDATE stepwell_signals SET consumed_at = ?, consumed_by = ? WHERE id = ? AND consumed_at IS NULL"""
UNFINISHED_LIST: Final = "(" + ", ".join(f"'{state}'" for state in UNFINISHED) + ")"
"""The states of rows that an entry may finish, as SQL has them."""
FINISHED_COLUMNS: Final = tuple(
    name for name in EXECUTION_COLUMNS if name not in ("run_id", "position", "name", "kind", "key")
)
"""What the entry that finishes a row writes anew; the others say which row it is."""


class DatabaseOptions:
    """Limits that Stepwell sets on the connections that it makes itself.

    Args:
        session_idle_limit: Seconds after which the server ends a transaction that does nothing.
        lock_limit: Seconds that a statement of the engine's own waits for a row.
        lease_seconds: Length of a lease; a dead peer must be noticed within it.
    """

    __slots__ = ("lease_seconds", "lock_limit", "session_idle_limit")

    def __init__(
        self, session_idle_limit: float = 60.0, lock_limit: float = 5.0, lease_seconds: float = 30.0
    ) -> None:
        self.session_idle_limit = session_idle_limit
        self.lock_limit = lock_limit
        self.lease_seconds = lease_seconds

    def keepalive_seconds(self) -> tuple[int, int, int]:
        """After how much silence a peer is asked for a sign of life, how often then, and how often in vain.

        A peer that died without a word is noticed so within one lease, and not after two hours.
        """
        quiet = max(1, round(self.lease_seconds / 3))
        return quiet, max(1, quiet // 3), 3


class Dialect(ABC):
    """One database product: how to connect, what it can, and the statements that are its own."""

    name: ClassVar[str]
    updates_return_rows: ClassVar[bool] = True
    """UPDATE … RETURNING exists."""
    skips_locked_rows: ClassVar[bool] = True
    """FOR UPDATE SKIP LOCKED exists (and is needed: there are row locks)."""
    groups_commits: ClassVar[bool] = True
    """Entries of several threads are written in one commit."""
    commits_alone: ClassVar[bool] = False
    """A statement can cheaply be a transaction of its own (autocommit costs no round trip)."""
    notifies: ClassVar[bool] = False
    """The database can wake a listener."""
    has_one_writer: ClassVar[bool] = False
    """One write transaction at a time in the whole database: writers queue in the write gate."""
    keeps_snapshots: ClassVar[bool] = False
    """A caller's transaction may go on reading what was there when it began, and yet meet what came since."""
    isolation_level: ClassVar[str | None] = "READ COMMITTED"

    def __init__(self, options: DatabaseOptions) -> None:
        self.options = options

    def __str__(self) -> str:
        return self.name

    def speaks(self, connection: Connection) -> bool:
        """The connection is to a database of this product, whatever its driver."""
        return connection.dialect.name == self.name

    def connect_arguments(self, url: URL) -> dict[str, Any]:
        """Arguments for the driver's ``connect`` on engines that Stepwell makes from a URL."""
        return {}

    @abstractmethod
    def prepare_connection(self, dbapi_connection: Any) -> None:
        """Set limits on a new connection of the engine's own."""

    def configure(self, engine: Engine) -> None:
        """Attach further listeners to an engine of Stepwell's own."""

    @abstractmethod
    def check_server(self, connection: Connection) -> None:
        """Raise UnsupportedDatabase for a version or table type that cannot keep the promises."""

    @abstractmethod
    def epoch_seconds(self, connection: Connection) -> float:
        """The database's own time."""

    @abstractmethod
    def apply(self, connection: Connection, entries: Sequence[JournalEntry]) -> list[Verdict]:
        """Write entries, each under its own guard, in the transaction of ``connection``; no run twice."""

    def apply_group(self, connection: Connection, entries: Sequence[JournalEntry]) -> list[Verdict]:
        """Like :meth:`apply`, on the connection of group commits; errors may be the driver's own."""
        return self.apply(connection, entries)

    @abstractmethod
    def insert_runs(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
        """Insert rows whose identity is free (and whose id is new); answer the ids that were inserted."""

    def through(self, question: Select[Any], index: str) -> Select[Any]:
        """The same question about runs, answered through this index whatever the planner thinks of it."""
        return question

    def prepare_hot_connection(self, connection: Connection) -> None:
        """Tune the connection that writes groups of journal entries."""

    @abstractmethod
    def insert_if_new(self, connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert one row unless a unique index is against it; answer whether it was inserted.

        Never raises for that, so that a caller's transaction stays usable.
        """

    def begin_step(self, connection: Connection) -> None:
        """A step's own transaction begins: the user's statements may wait for locks as long as they like."""

    def end_step(self, connection: Connection) -> None:
        """The step's guard follows: an engine's statement again."""

    def abandon_step(self, connection: Connection) -> None:
        """The step's transaction was rolled back; its connection goes back to the pool."""

    def is_retryable(self, error: DBAPIError) -> bool:
        """Whether the database rolled back for a reason of its own (deadlock, serialization, lock limit)."""
        return False

    def is_answer_lost(self, error: DBAPIError) -> bool:
        """Whether the connection broke, so that nobody knows what became of the statement."""
        return bool(error.connection_invalidated)
