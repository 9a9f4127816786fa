"""Whose transaction a command takes part in: its own, the caller's, or that of the step it is called in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import UUID

from sqlalchemy import Connection, event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction

from stepwell.definition.runtime import current
from stepwell.definition.starting import StartOptions
from stepwell.errors import RunError, StoreError
from stepwell.execution.runtime import ActivationRuntime
from stepwell.logs import facts_logger
from stepwell.serialization.paths import with_article

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["Place", "current_step_scope", "place_of"]

T = TypeVar("T")
_log = facts_logger(__name__)
_CALLS: Final = "stepwell_after_commit"
_COMMITTED: Final = "stepwell_committed"


class Place(Protocol):
    """A transaction to write in."""

    is_callers: bool
    sees_newest: bool
    """Each statement reads what is committed by then."""

    def flush(self) -> None:
        """Send what the caller has pending, so that a new hero has its primary key before the start is encoded."""
        ...

    def do(self, work: Callable[[Connection], T]) -> T:
        """Do it in the transaction."""
        ...

    def inserted(self, run_ids: Sequence[UUID]) -> None:
        """These runs are in the transaction."""
        ...

    def after_commit(self, call: Callable[[], None]) -> None:
        """Do it once what was written is visible to others. A hint: it may never be called."""
        ...


class _Own:
    is_callers = False
    sees_newest = True

    def __init__(self, engine: Stepwell, is_single: bool) -> None:
        self._database = engine.database
        self._is_single = is_single

    def flush(self) -> None:
        """Nobody's records are pending here."""

    def do(self, work: Callable[[Connection], T]) -> T:
        return self._database.repeating(work, is_single=self._is_single)

    def inserted(self, run_ids: Sequence[UUID]) -> None:
        """They are committed."""

    def after_commit(self, call: Callable[[], None]) -> None:
        call()


class _Connections:
    is_callers = True
    sees_newest = False

    def __init__(self, connection: Connection, engine: Stepwell) -> None:
        self._connection = _on_our_database(connection, engine)

    def flush(self) -> None:
        """A connection has no pending records."""

    def do(self, work: Callable[[Connection], T]) -> T:
        if not self._connection.in_transaction():
            # As its first statement would. Ours may go straight to the driver, and then nothing would be committed.
            self._connection.begin()
        return work(self._connection)

    def inserted(self, run_ids: Sequence[UUID]) -> None:
        """The caller knows."""

    def after_commit(self, call: Callable[[], None]) -> None:
        """A connection does not tell when it has committed: the workers find the run at their next look."""


class _Sessions:
    is_callers = True
    sees_newest = False

    def __init__(self, session: Session, engine: Stepwell) -> None:
        self._session = session
        self._engine = engine

    def flush(self) -> None:
        self._session.flush()

    def do(self, work: Callable[[Connection], T]) -> T:
        return work(_session_connection(self._session, self._engine))

    def inserted(self, run_ids: Sequence[UUID]) -> None:
        """The caller knows."""

    def after_commit(self, call: Callable[[], None]) -> None:
        after_commit(self._session, call)


class _Steps:
    is_callers = True
    sees_newest = True

    def __init__(self, scope: Any) -> None:
        self._scope = scope

    def flush(self) -> None:
        self._scope.flush()

    def do(self, work: Callable[[Connection], T]) -> T:
        return work(self._scope.connection)

    def inserted(self, run_ids: Sequence[UUID]) -> None:
        self._scope.started.update(run_ids)

    def after_commit(self, call: Callable[[], None]) -> None:
        self._scope.after_commit.append(call)


def current_step_scope(engine: Stepwell) -> ActivationRuntime | None:
    """The step of this engine that is running here, if one is.

    Raises:
        RunError: It is the body of ``run()`` that runs here, which would do it again at each replay.
    """
    runtime = current.get()
    if not isinstance(runtime, ActivationRuntime) or runtime.starter is not engine:
        return None
    if runtime.is_in_body:
        raise RunError(
            "start(), signal(), wake() and commands to other runs in the body of run() would be repeated by each "
            "replay, and what is read of them there is not journaled. Do it in a step: "
            'self.step("start_shipping", Shipping.start, order_id=7).'
        )
    return runtime if runtime.is_in_step else None


def place_of(engine: Stepwell, options: StartOptions, *, is_single: bool = False) -> Place:
    """Where a start with these options writes.

    Args:
        engine: The engine.
        options: What the start says.
        is_single: One statement will do, if nothing stands against it.

    Raises:
        RunError: The session is an asynchronous one.
    """
    if options.connection is not None:
        return _Connections(options.connection, engine)
    runtime = current_step_scope(engine)
    if options.session is not None and not (runtime and options.session is runtime.scope.session):
        return _Sessions(_synchronous(options.session), engine)
    return _Own(engine, is_single) if runtime is None else _Steps(runtime.scope)


def _synchronous(session: Any) -> Session:
    if isinstance(session, Session):
        return session
    if hasattr(session, "sync_session"):
        raise RunError(
            "an AsyncSession cannot be used from synchronous code. Write: "
            "await session.run_sync(lambda s: MyWorkflow.with_options(session=s).start(...))"
        )
    raise RunError(f"session= takes a SQLAlchemy Session; got {with_article(type(session).__qualname__)}.")


def _session_connection(session: Session, engine: Stepwell) -> Connection:
    try:
        connection = session.connection()
    except UnboundExecutionError as error:
        raise StoreError(
            "the session has a bind for each class and none for all, so that nobody can tell which transaction is "
            'meant. Give it: connection=session.connection(bind_arguments={"mapper": SomeClass}).'
        ) from error
    return _on_our_database(connection, engine)


def _on_our_database(connection: Connection, engine: Stepwell) -> Connection:
    if not engine.database.dialect.speaks(connection):
        raise StoreError(
            f"the caller's database is not a {engine.database.dialect} one, the runs' is: a start can join a "
            "transaction of its own database only."
        )
    return connection


def after_commit(session: Session, call: Callable[[], None]) -> None:
    """Call it once the session's transaction has committed; a rolled back savepoint takes its calls along."""
    if not event.contains(session, "after_transaction_end", _ended):
        event.listen(session, "after_commit", _committed)
        event.listen(session, "after_soft_rollback", _rolled_back)
        event.listen(session, "after_transaction_end", _ended)
    transaction = session.get_nested_transaction() or session.get_transaction()
    session.info.setdefault(_CALLS, []).append((transaction, call))


def _committed(session: Session) -> None:
    # Fires for the release of a savepoint too.
    if session.get_nested_transaction() is None:
        session.info[_COMMITTED] = True


def _rolled_back(session: Session, previous: SessionTransaction) -> None:
    calls = session.info.get(_CALLS, [])
    session.info[_CALLS] = [each for each in calls if not _is_within(each[0], previous)]


def _is_within(transaction: SessionTransaction | None, outer: SessionTransaction) -> bool:
    while transaction is not None:
        if transaction is outer:
            return True
        transaction = transaction.parent
    return False


def _ended(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is not None:
        return
    calls = session.info.pop(_CALLS, [])
    if not session.info.pop(_COMMITTED, False):
        return
    for _, call in calls:
        try:
            call()
        except Exception:
            # The caller's commit has succeeded: a hint that failed is none of its business.
            _log.exception("a wake after commit failed", extra={"action": "start.wake_failed"})
