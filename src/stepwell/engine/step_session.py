"""A step's own session: what it writes commits with the journal entry, or not at all.

What the library loads (the hero) is read in a short transaction that is ended before the body goes on, so that no
transaction is open while a body talks to a mail server. A transaction opens with the body's own first statement and
lasts to the end of the step; on SQLite it holds the write lock, so slow work goes first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, NoReturn, TypeVar

from sqlalchemy import Connection, Select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, SessionTransaction

from stepwell.engine.keyset import Keyset
from stepwell.entries import JournalEntry, Verdict
from stepwell.errors import HeroGone, RecordGone, RunError
from stepwell.execution.journal import TransientConflict
from stepwell.serialization import Codec, RecordRef
from stepwell.store.database import AnswerLost, Database

__all__ = ["StepScope", "StepSession"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
_LONG_ON_SQLITE: Final = 1.0


class StepSession(Session):
    """A SQLAlchemy session whose transaction ends with the step.

    ``begin_nested()`` is there for partial rollback; ``commit()``, ``rollback()`` and ``close()`` are the step's.
    """

    def __init__(self, scope: StepScope) -> None:
        super().__init__(expire_on_commit=False)
        self._scope = scope

    def get_bind(self, *_arguments: Any, **_named: Any) -> Connection:
        return self._scope.connection

    def begin(self, nested: bool = False) -> SessionTransaction:
        if not nested:
            _refuse("begin")
        return super().begin(nested=True)

    def commit(self) -> None:
        _refuse("commit")

    def rollback(self) -> None:
        _refuse("rollback")

    def close(self) -> None:
        _refuse("close")

    def end_read(self) -> None:
        """End the transaction in which something was loaded; the objects stay attached."""
        Session.commit(self)

    def discard(self) -> None:
        """Forget everything."""
        Session.close(self)


def _refuse(verb: str) -> NoReturn:
    raise RunError(
        f"self.session.{verb}() is not for a step to call: its writes commit together with the journal entry when "
        "the step returns, and are undone when it raises. Use begin_nested() for a partial rollback."
    )


class StepScope:
    """The surroundings of one attempt; nothing is opened before it is used.

    Args:
        database: Where the runs are.
        codec: Loads the hero.
        hero: The reference to the record that the run is about; None for a run without one.
        hero_is_optional: A record that is gone reads as None instead of raising.
    """

    def __init__(self, database: Database, codec: Codec, hero: RecordRef | None, hero_is_optional: bool) -> None:
        self._database = database
        self._codec = codec
        self._hero_ref = hero
        self._hero_is_optional = hero_is_optional
        self._hero: Any = None
        self._hero_is_loaded = False
        self._session: StepSession | None = None
        self._reading: Connection | None = None
        self._writing: Connection | None = None
        self._stack = ExitStack()
        self._began_at = 0.0
        self._thread = threading.get_ident()
        self.after_commit: list[Callable[[], None]] = []
        self.at_commit: list[Callable[[Connection], object]] = []

    # -- what a body uses ---------------------------------------------------------------------------------------

    @property
    def session(self) -> StepSession:
        self._check_thread()
        if self._session is None:
            self._session = StepSession(self)
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
                f"the hero of this run, {ref.type} {ref.key}, no longer exists. Say hero_optional = True in the "
                "class if its steps can do without."
            ) from gone

    def load(self, ref: RecordRef) -> Any:
        """The record that a reference points to, attached to the session; read in a transaction that ends at once."""
        if self.has_changes():
            # Ending a read transaction now would flush them outside of the step's own.
            return self._codec.load_record(ref, self.session)
        with self._database.reading() as connection:
            self._reading = connection
            try:
                return self._codec.load_record(ref, self.session)
            finally:
                self.session.end_read()
                self._reading = None

    @property
    def connection(self) -> Connection:
        """The connection of the step's transaction, which begins here at the latest."""
        self._check_thread()
        if self._reading is not None:
            return self._reading
        if self._writing is None:
            connection = self._stack.enter_context(self._database.step())
            connection.begin()
            self._database.dialect.begin_step(connection)
            self._writing = connection
            self._began_at = time.monotonic()
        return self._writing

    def has_changes(self) -> bool:
        if self._writing is not None or self.at_commit:
            return True
        session = self._session
        return session is not None and bool(session.new or session.deleted or self._is_modified(session))

    @staticmethod
    def _is_modified(session: StepSession) -> bool:
        return any(session.is_modified(record) for record in session.dirty)

    # -- how it ends --------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send pending changes of mapped objects.

        Raises:
            TransientConflict: The database undid the transaction for reasons of its own.
        """
        if self._session is not None and self.has_changes():
            self._guarded(self._session.flush)

    def commit(self, entry: JournalEntry) -> Verdict:
        """Commit the step's writes with its journal entry, the token's guard last.

        Returns:
            Not accepted: the token is gone, and everything was rolled back.

        Raises:
            TransientConflict: The database undid the transaction for reasons of its own.
            AnswerLost: The connection broke: committed or not, nobody knows yet.
        """
        return self._guarded(lambda: self._commit(entry))

    def _commit(self, entry: JournalEntry) -> Verdict:
        self.session.flush()
        connection = self.connection
        for put in self.at_commit:
            put(connection)
        self._database.dialect.end_step(connection)
        verdict = self._database.dialect.apply(connection, [entry])[0]
        transaction = connection.get_transaction()
        if not verdict.accepted or transaction is None:
            return Verdict(accepted=False)
        # The session's own transaction ends first: its objects stay attached, for what comes after a checkpoint.
        self.session.end_read()
        transaction.commit()
        self._warn_if_long()
        self._writing = None
        self._stack.close()
        self.committed()
        return verdict

    def committed(self) -> None:
        """The entry is durable: do what was put off until then, such as waking workers."""
        calls, self.after_commit = self.after_commit, []
        self.at_commit = []
        for call in calls:
            call()

    def pages(self) -> Keyset:
        return Keyset(self)

    def read(self, query: Select[Any]) -> Sequence[Any]:
        """The entities that a select finds, attached to the session; in a transaction that ends at once, if it can."""
        if self.has_changes():
            return self.session.scalars(query).all()
        with self._database.reading() as connection:
            self._reading = connection
            try:
                return self.session.scalars(query).all()
            finally:
                self.session.end_read()
                self._reading = None

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

    def close(self) -> None:
        session, self._session = self._session, None
        connection, self._writing = self._writing, None
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
