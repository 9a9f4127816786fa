"""The surroundings of an attempt: what a step writes commits with the journal entry, or not at all.

What the library loads (the hero) and what conditions look at is read in a short transaction that is ended
before the body goes on, so that no transaction is open while a body talks to a mail server. A transaction
opens with the body's own first statement and lasts to the end of the step; on SQLite it holds the write lock,
so slow work goes first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar
from uuid import UUID

from sqlalchemy import Connection, RootTransaction, Select
from sqlalchemy.exc import DBAPIError

from stepwell.engine.keyset import Keyset
from stepwell.engine.step_session import StepSession
from stepwell.entries import JournalEntry, Verdict
from stepwell.errors import HeroGone, RecordGone, RunError
from stepwell.execution.journal import TransientConflict, WritesRefused
from stepwell.logs import facts_logger
from stepwell.serialization import Codec, RecordRef
from stepwell.shield import shielded
from stepwell.store.database import AnswerLost, Database

__all__ = ["StepScope"]

T = TypeVar("T")
_log = facts_logger(__name__)
_LONG_ON_SQLITE: Final = 1.0


class StepScope:
    """The surroundings of one attempt; nothing is opened before it is used.

    Args:
        database: Where the runs are.
        codec: Loads the hero.
        hero: The reference to the record that the run is about; None for a run without one.
        hero_is_optional: A record that is gone reads as None instead of raising.
        insist: Does something of the library's own again for as long as the database cannot be reached.
    """

    def __init__(
        self,
        database: Database,
        codec: Codec,
        hero: RecordRef | None,
        hero_is_optional: bool,
        insist: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self._database = database
        self._codec = codec
        self._hero_ref = hero
        self._hero_is_optional = hero_is_optional
        self._insist = insist
        self._hero: Any = None
        self._hero_is_loaded = False
        self._session: StepSession | None = None
        self._is_looking = False
        self._reading: Connection | None = None
        self._writing: Connection | None = None
        self._transaction: RootTransaction | None = None
        self._stack = ExitStack()
        self._began_at = 0.0
        self._thread = threading.get_ident()
        self.started: set[UUID] = set()
        self.sent: set[tuple[UUID, str | None, str]] = set()
        self.after_commit: list[Callable[[], None]] = []
        self.at_commit: list[Callable[[Connection], object]] = []

    # -- what a body uses --------------------------------------------------------------------------

    @property
    def session(self) -> StepSession:
        self._check_thread()
        if self._session is None:
            self._session = StepSession(self._bind)
        return self._session

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise RunError(
                "the step's session belongs to the thread that runs the step. In an async step write: "
                "await self.in_session(lambda session: ...)"
            )

    def preload(self) -> None:
        """Load the hero now: what follows runs on another thread."""
        _ = self.hero

    @property
    def hero(self) -> Any:
        if not self._hero_is_loaded:
            self._hero = self._load_hero()
            self._hero_is_loaded = True
        return self._hero

    def _load_hero(self) -> Any:
        ref = self._hero_ref
        if ref is None:
            return None
        try:
            return self.load(ref)
        except RecordGone as gone:
            if self._hero_is_optional:
                return None
            raise HeroGone(
                f"the hero of this run, {ref.type} {ref.key}, no longer exists. Say hero_optional = True in "
                "the class if its steps can do without."
            ) from gone

    def load(self, ref: RecordRef) -> Any:
        """The record that a reference points to, attached to the session."""
        return self._look_up(lambda: self._codec.load_record(ref, self.session))

    @property
    def is_here(self) -> bool:
        return threading.get_ident() == self._thread

    def pages(self) -> Keyset:
        return Keyset(self)

    def read(self, query: Select[Any]) -> Sequence[Any]:
        """The entities that a select finds, attached to the session."""
        found: Sequence[Any] = self._look_up(lambda: self.session.scalars(query).unique().all())
        return found

    # -- looking -----------------------------------------------------------------------------------

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Read without beginning the step's transaction; objects stay attached after the block.

        Where something was written already it is read in the step's own transaction: ending another one now
        would flush what is pending outside of it.
        """
        if self._is_looking or self.has_changes():
            yield
            return
        self._is_looking = True
        try:
            yield
        finally:
            self._is_looking = False
            self._end_look(keeps=not self.has_changes())

    def _look_up(self, read: Callable[[], T]) -> T:
        """Something that the library reads by itself: an outage of the database is not the author's error."""

        def look() -> T:
            try:
                return read()
            except DBAPIError:
                self._end_look(keeps=False)
                raise

        with shielded(), self.looking():
            if not self._is_looking:
                return read()
            answer: T = self._insist(look)
            return answer

    def _end_look(self, *, keeps: bool) -> None:
        connection, self._reading = self._reading, None
        if connection is None:
            return
        try:
            if self._session is not None:
                self._session.end_look(keeps=keeps)
            connection.rollback()
        except DBAPIError:
            connection.invalidate()
        finally:
            connection.close()

    def _bind(self) -> Connection:
        """What the session's statements go to."""
        if not self._is_looking:
            return self.connection
        if self._reading is None:
            self._reading = self._database.reading()
            self._reading.begin()
        return self._reading

    # -- the step's transaction --------------------------------------------------------------------

    @property
    def connection(self) -> Connection:
        """The connection of the step's transaction, which begins here at the latest."""
        self._check_thread()
        if self._is_looking:
            raise RunError("Conditions are looked at, not journaled: move what is written into the step.")
        if self._writing is None:
            with shielded():
                self._writing = self._insist(self._begin)
            self._began_at = time.monotonic()
        return self._writing

    def _begin(self) -> Connection:
        with ExitStack() as stack:
            connection = stack.enter_context(self._database.step())
            transaction = connection.begin()
            self._database.dialect.begin_step(connection)
            self._transaction = transaction
            self._stack = stack.pop_all()
        return connection

    def has_changes(self) -> bool:
        if self._writing is not None or self.at_commit:
            return True
        session = self._session
        return session is not None and bool(session.new or session.deleted or self._is_modified(session))

    @staticmethod
    def _is_modified(session: StepSession) -> bool:
        return any(session.is_modified(record) for record in session.dirty)

    # -- how it ends -------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send pending changes of mapped objects.

        Raises:
            TransientConflict: The database undid the transaction for reasons of its own.
            RunError: The transaction is over already.
        """
        if not self.has_changes():
            return
        if self._session is not None:
            try:
                self._guarded(self._session.flush)
            except AnswerLost as lost:
                # Nothing was committed yet, so there is nothing to find out.
                raise TransientConflict from lost
        self._check_transaction()

    def _check_transaction(self) -> None:
        if self._transaction is not None and not self._transaction.is_active:
            raise RunError(
                "the step's transaction was over before the step was: an error of the database undid it, or "
                "the step ended it by itself. To go on after such an error, put what may fail into a "
                "`with self.session.begin_nested():` block."
            )

    def commit(self, entry: JournalEntry) -> Verdict:
        """Commit the step's writes with its journal entry, the token's guard last.

        Returns:
            Not accepted: a park was refused, or the token is gone. Nothing was committed.

        Raises:
            TransientConflict: The database undid the transaction for reasons of its own.
            AnswerLost: The connection broke: committed or not, nobody knows yet.
            WritesRefused: The database refuses what the step wrote.
        """
        try:
            with shielded():
                return self._guarded(lambda: self._commit(entry))
        except (TransientConflict, AnswerLost):
            raise
        except Exception as error:
            raise WritesRefused(error) from error

    def _commit(self, entry: JournalEntry) -> Verdict:
        self.session.flush()
        connection = self.connection
        self._check_transaction()
        while self.at_commit:
            # Once: an entry that is refused, since something came, is tried again in this transaction.
            self.at_commit.pop(0)(connection)
        self._database.dialect.end_step(connection)
        verdict = self._database.dialect.apply(connection, [entry])[0]
        transaction = self._transaction
        if not verdict.accepted or transaction is None:
            return Verdict(accepted=False)
        # The session's own transaction ends first: its objects stay attached for what follows a checkpoint.
        self.session.end_look(keeps=True)
        transaction.commit()
        self._warn_if_long()
        self._writing = self._transaction = None
        self._stack.close()
        self.committed()
        return verdict

    def committed(self) -> None:
        """The entry is durable: do what was put off until then, such as waking workers."""
        if self._writing is not None:
            # Its commit was done, and the answer was lost with the connection.
            self._writing.invalidate()
            self._writing = self._transaction = None
            self._stack.close()
        self.started.clear()
        self.sent.clear()
        calls, self.after_commit = self.after_commit, []
        self.at_commit = []
        for call in calls:
            try:
                call()
            except Exception:
                # A hint that failed changes nothing about what is durable.
                _log.exception("a wake after a step's commit failed", extra={"action": "step.wake_failed"})

    @property
    def writing(self) -> Connection | None:
        """The connection of the step's transaction, if that is open, on the step's own thread."""
        connection = self._writing
        if connection is None or connection.invalidated or threading.get_ident() != self._thread:
            return None
        return connection

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except DBAPIError as error:
            if self._database.is_connection_error(error):
                raise AnswerLost(str(error.orig)) from error
            if self._database.dialect.is_retryable(error):
                raise TransientConflict from error
            raise

    def _warn_if_long(self) -> None:
        took = time.monotonic() - self._began_at
        if self._database.dialect.has_one_writer and took > _LONG_ON_SQLITE:
            _log.warning(
                "a step held SQLite's write lock for long: do slow work before the first use of self.session",
                extra={"action": "step.long_transaction", "seconds": round(took, 3)},
            )

    def abandon(self) -> None:
        """Undo all, of a body that was ended in the middle of anything: its connection is thrown away."""
        if self._writing is not None and not self._database.dialect.has_one_writer:
            # Nobody knows how far it came with the server; SQLite has none, and must hear of the rollback.
            self._writing.invalidate()
        self.close()

    def close(self) -> None:
        """Undo what is not committed, and give everything back; used again, it begins anew."""
        session, self._session = self._session, None
        connection, self._writing = self._writing, None
        self._hero, self._hero_is_loaded = None, False
        self._transaction = None
        self.at_commit, self.after_commit = [], []
        self.started.clear()
        self.sent.clear()
        try:
            if connection is not None and not connection.invalidated:
                connection.rollback()
                self._database.dialect.abandon_step(connection)
        except DBAPIError:
            # It is broken: whatever was open on it ends with it.
            if connection is not None:
                connection.invalidate()
        finally:
            self._stack.close()
            if session is not None:
                session.discard()
