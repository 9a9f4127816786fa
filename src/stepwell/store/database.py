"""The database as the engine uses it: transactions of the right kind, group commits, and the database's time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from stepwell.clock import Clock, SystemClock
from stepwell.entries import JournalEntry, Verdict
from stepwell.errors import StoreError
from stepwell.logs import facts_logger
from stepwell.shield import shielded
from stepwell.store.dialects import DatabaseOptions, Dialect
from stepwell.store.gate import WriteGate, gate_for
from stepwell.store.group_commit import GroupCommit
from stepwell.store.opening import open_engine, reserve

__all__ = ["AnswerLost", "Database", "WriteLockBusy", "open_database"]

T = TypeVar("T")
_log = facts_logger(__name__)
_MOST_RETRIES: Final = 10


class AnswerLost(StoreError):
    """The database cannot be reached, or the connection broke: nobody knows whether the write was done."""


class WriteLockBusy(StoreError):
    """Somebody else has held SQLite's write lock for longer than the busy timeout."""


class _Alone(Exception):
    """The group's statement failed: each entry is to be written by itself, by its own thread."""


def open_database(target: str | URL | Engine, options: DatabaseOptions, clock: Clock) -> Database:
    """A database from a URL, or beside an application's engine (same server, connections of our own).

    Raises:
        UnsupportedDatabase: Stepwell has no dialect for it.
        StoreError: The URL cannot be read, or its driver is not installed.
    """
    return Database(*open_engine(target, options), clock)


class Database:
    """Transactions on the database that holds the runs.

    Args:
        engine: An engine of Stepwell's own.
        dialect: What is particular about the product.
        clock: Judges time; a SystemClock is kept at the database's time.

    Attributes:
        reserved: Connections for what is urgent. Steps that hold all of the engine's keep no renewal waiting.
    """

    def __init__(self, engine: Engine, dialect: Dialect, clock: Clock) -> None:
        self.engine = engine
        self.dialect = dialect
        self.clock = clock
        self.reserved = reserve(engine, dialect)
        for each in (engine, self.reserved):
            event.listen(each, "connect", lambda connection, _record: dialect.prepare_connection(connection))
            dialect.configure(each)
        # Where a statement can be its own transaction, BEGIN and COMMIT are two round trips saved.
        self._single = (
            engine.execution_options(isolation_level="AUTOCOMMIT") if dialect.commits_alone else None
        )
        self._reader = _reader(engine, dialect)
        self._urgent_reader = _reader(self.reserved, dialect)
        self._gate: WriteGate | None = None
        if dialect.has_one_writer:
            self._gate = gate_for(os.path.realpath(str(engine.url.database)))
        self._group = GroupCommit(self._commit_group)
        self._hot: Connection | None = None
        self._hot_lock = threading.Lock()

    # -- transactions -------------------------------------------------------------------------------------------

    @contextmanager
    def begin(self, *, urgent: bool = False) -> Iterator[Connection]:
        """A write transaction that commits at the end of the block.

        Args:
            urgent: On a reserved connection, and ahead of steps at the write gate (renewals of leases).
        """
        engine = self.reserved if urgent else self.engine
        if self._gate is None:
            with shielded(), engine.begin() as connection:
                yield connection
            return
        gate = self._gate.held(urgent=urgent)
        with shielded(), gate, engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def begin_single(self) -> Iterator[Connection]:
        """Like :meth:`begin`, for a block whose only write is one statement."""
        if self._single is None:
            with self.begin() as connection:
                yield connection
            return
        with shielded(), self._single.connect() as connection:
            yield connection

    @contextmanager
    def read(self, *, urgent: bool = False) -> Iterator[Connection]:
        """A connection for short reads, each by itself; on SQLite they do not queue behind writers.

        Args:
            urgent: On a reserved connection, which steps cannot take.
        """
        if self._single is not None and not urgent:
            with shielded(), self._single.connect() as connection:
                yield connection
            return
        reader = self._urgent_reader if urgent else self._reader
        with shielded(), reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def step(self) -> Iterator[Connection]:
        """A step's own connection; the caller begins and ends its transaction. On SQLite it holds the write gate."""
        if self._gate is None:
            with self.engine.connect() as connection:
                yield connection
            return
        with self._gate.held(), self.engine.connect() as connection:
            yield connection

    def reading(self) -> Connection:
        """A connection for reads that the caller closes."""
        return self._reader.connect()

    def retrying(
        self, work: Callable[[Connection], T], *, urgent: bool = False, is_single: bool = False
    ) -> T:
        """Do ``work`` in a transaction of its own, again when the database rolled it back for its own reasons.

        Args:
            work: What to do.
            urgent: As in :meth:`begin`.
            is_single: Its only write is one statement.

        Raises:
            AnswerLost: The connection broke; the caller decides whether repeating is harmless.
        """
        for attempt in range(_MOST_RETRIES):
            try:
                with self.begin_single() if is_single else self.begin(urgent=urgent) as connection:
                    return work(connection)
            except DBAPIError as error:
                if self._is_locked_file(error):
                    raise WriteLockBusy(
                        "another transaction has held SQLite's write lock for half a minute. If it is one of your own "
                        "that is still open on this thread, join it: with_options(session=session); else see which "
                        "process writes to the file for so long."
                    ) from error
                if not self.dialect.is_retryable(error) or attempt == _MOST_RETRIES - 1:
                    raise self._translated(error) from error
                time.sleep(0.01 * 2**attempt)
        raise AssertionError("unreachable")

    def repeating(
        self, work: Callable[[Connection], T], *, urgent: bool = False, is_single: bool = False
    ) -> T:
        """Like :meth:`retrying` for work that may harmlessly be done twice: a broken connection is made anew once."""
        try:
            return self.retrying(work, urgent=urgent, is_single=is_single)
        except AnswerLost:
            return self.retrying(work, urgent=urgent, is_single=is_single)

    def _is_locked_file(self, error: DBAPIError) -> bool:
        """The busy timeout has passed already: to wait ten times as long would only hide what is wrong."""
        return self.dialect.has_one_writer and self.dialect.is_retryable(error)

    def _translated(self, error: DBAPIError) -> Exception:
        if self.is_connection_error(error):
            return AnswerLost(str(error.orig))
        return error

    def is_connection_error(self, error: BaseException) -> bool:
        """Whether the database could not be reached, or the connection broke on the way."""
        if isinstance(error, AnswerLost):
            return True
        if not isinstance(error, DBAPIError) or self.dialect.has_one_writer:
            return False
        if self.dialect.is_answer_lost(error):
            return True
        # A refused connection is an OperationalError without a statement.
        return isinstance(error, OperationalError | InterfaceError) and error.statement is None

    # -- the journal --------------------------------------------------------------------------------------------

    def write(self, entry: JournalEntry) -> Verdict:
        """Write one entry durably, in a commit shared with other threads where the database gains by it.

        Raises:
            AnswerLost: The connection broke; the entry may have been written.
        """
        if not self.dialect.groups_commits:
            return self._write_alone(entry)
        try:
            with shielded():
                return self._group.write(entry)
        except _Alone:
            return self._write_alone(entry)
        except DBAPIError as error:
            raise self._translated(error) from error

    def _write_alone(self, entry: JournalEntry) -> Verdict:
        return self.retrying(lambda connection: self.dialect.apply(connection, (entry,))[0])

    def _commit_group(self, entries: Sequence[JournalEntry]) -> Sequence[Verdict | BaseException]:
        if self._gate is not None:
            return self._commit_group_through(self._gate, entries)
        hot: Connection | None = None
        try:
            hot = self._hot_connection()
            return self.dialect.apply_group(hot, entries)
        except Exception as error:
            # One that broke with the statement under way may have committed it; so may one that could not connect
            # not, but to ask is harmless.
            is_lost = hot is None or self._is_broken(hot, error)
            self._drop_hot_connection()
            if is_lost:
                return [AnswerLost(str(error))] * len(entries)
            # Perhaps one of them cannot be stored: that is its thread's error and nobody else's.
            return [_Alone()] * len(entries)

    def _is_broken(self, connection: Connection, error: Exception) -> bool:
        if not isinstance(error, self.engine.dialect.loaded_dbapi.Error):
            return self.is_connection_error(error)
        return self.engine.dialect.is_disconnect(error, connection.connection.driver_connection, None)

    def _commit_group_through(
        self, gate: WriteGate, entries: Sequence[JournalEntry]
    ) -> Sequence[Verdict | BaseException]:
        with gate.held():
            hot = self._hot_connection()
            driver: Any = hot.connection.driver_connection
            try:
                # On the driver's own connection: the pool and the events would cost as much as the commit.
                driver.execute("BEGIN IMMEDIATE")
                verdicts = self.dialect.apply_group(hot, entries)
                driver.execute("COMMIT")
                return verdicts
            except BaseException as error:
                # Whatever it was, a value that the driver does not take included: nobody else must find it open.
                if driver.in_transaction:
                    driver.execute("ROLLBACK")
                if not isinstance(error, Exception):
                    raise
                return [_Alone()] * len(entries)

    def _hot_connection(self) -> Connection:
        """The one autocommit connection of the group's leader: no checkout, no BEGIN, no COMMIT on the wire."""
        with self._hot_lock:
            if self._hot is None:
                hot = self.engine.connect()
                if not self.dialect.has_one_writer:
                    hot = hot.execution_options(isolation_level="AUTOCOMMIT")
                self.dialect.prepare_hot_connection(hot)
                self._hot = hot
            return self._hot

    def _drop_hot_connection(self) -> None:
        with self._hot_lock:
            hot, self._hot = self._hot, None
        if hot is not None:
            hot.invalidate()
            hot.close()

    # -- time ---------------------------------------------------------------------------------------------------

    def measure_time(self, *, urgent: bool = False) -> float:
        """Set the clock to the database's time: the midpoint of the quickest of three round trips.

        Args:
            urgent: As in :meth:`read`.

        Returns:
            The jump in seconds; 0.0 when the clock is not ours to set.
        """
        clock = self.clock
        if not isinstance(clock, SystemClock):
            return 0.0
        best: tuple[float, float, float] | None = None
        with self.read(urgent=urgent) as connection:
            for _ in range(3):
                sent = clock.monotonic()
                answer = self.dialect.epoch_seconds(connection)
                received = clock.monotonic()
                if best is None or received - sent < best[0]:
                    best = (received - sent, answer, (sent + received) / 2)
        if best is None:
            return 0.0
        return clock.anchor(best[1], best[2])

    def check_server(self) -> None:
        """Raise UnsupportedDatabase if the server cannot keep the promises."""
        with self.read() as connection:
            self.dialect.check_server(connection)

    def close(self) -> None:
        """Give all connections back."""
        with self._hot_lock:
            hot, self._hot = self._hot, None
        if hot is not None:
            hot.close()
        self.engine.dispose()
        self.reserved.dispose()


def _reader(engine: Engine, dialect: Dialect) -> Engine:
    """For reading: on SQLite a transaction would take the write lock when it begins."""
    return engine.execution_options(sqlite_begin="DEFERRED") if dialect.has_one_writer else engine
