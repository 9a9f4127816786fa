"""``Stepwell``: the engine. It joins the author's classes, the drivers and the store."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from stepwell.clock import Clock, SystemClock, require_duration
from stepwell.definition.finding import IfMissing, Wanted
from stepwell.definition.starting import Call, Parentage, StartOptions, set_default_engine
from stepwell.definition.workflow import Workflow
from stepwell.engine import checked
from stepwell.engine.children import Children
from stepwell.engine.finding import find_open
from stepwell.engine.hub import Hub
from stepwell.engine.leases import Lease, LeaseBook
from stepwell.engine.queries import RunQuery
from stepwell.engine.records import SQLAlchemyRecords
from stepwell.engine.run import Run
from stepwell.engine.signalling import Signals
from stepwell.engine.starting import Starts
from stepwell.engine.transactions import current_step_scope
from stepwell.errors import RunNotFound, StoreError
from stepwell.execution.recorder import RESULT_LIMIT
from stepwell.logs import facts_logger
from stepwell.observer import Event, EventKind, Observer, Observers
from stepwell.serialization import Codec, RecordAdapter
from stepwell.states import OPEN, RunState
from stepwell.store import migrating
from stepwell.store.claims import Claims, Renewal
from stepwell.store.commands import Answer, Commands, Done
from stepwell.store.database import Database, open_database
from stepwell.store.dialects import DatabaseOptions
from stepwell.store.mailbox import wake
from stepwell.store.notifications import Notifier
from stepwell.store.reads import find_run

__all__ = ["Stepwell"]

_log = facts_logger(__name__)
_LEASE: Final = timedelta(seconds=30)
_RENEWAL_TRIES: Final = 25
_UNKNOWN_GRACE: Final = timedelta(hours=1)
_IDLE_LIMIT: Final = timedelta(seconds=60)


class Stepwell:
    """The engine: durable workflows in a SQL database.

    Args:
        database: A URL such as ``sqlite:///app.db``, ``postgresql://host/name`` or ``mariadb://host/name``; or an
            existing SQLAlchemy ``Engine``, beside which Stepwell opens connections of its own. Not a SQLite database
            in memory, which has only one connection.
        lease: For how long a worker may be silent before its runs are taken over; renewed every third of it.
            30 seconds by default, at least one.
        max_recoveries: After so many lost workers in a row, without progress, a run fails as ``worker_lost``.
        unknown_grace: For how long runs wait for a worker that knows their class, step or version.
        session_idle_limit: After how long the server ends a transaction that does nothing (a stopped process);
            at least two leases.
        result_limit: The most bytes of a step's result, encoded; 1 MiB by default.
        records: Further adapters for records of other mappers.
        observers: Who sees what happens (see ``Observer``).
        report_error: Called with the errors of steps, as their policies' ``report`` says, such as
            ``sentry_sdk.capture_exception``; None reports nothing.
        clock: Where the time comes from; a ``ManualClock`` in tests. By default the database's time.
        default: Become the engine that ``Workflow.start`` uses when no other is named.

    Raises:
        TypeError: A duration is no timedelta, or a count no int.
        ValueError: A duration is too short, or a count too small.
        StoreError: The URL cannot be read, its driver is not installed, or the database is one in memory.
        UnsupportedDatabase: Stepwell does not run on it.

    Example:
        >>> well = Stepwell("sqlite:///app.db")
        >>> well.migrate()
        >>> well.runs().count()
        0
    """

    def __init__(  # noqa: PLR0913 - settings, each with a default and by keyword
        self,
        database: str | URL | Engine,
        *,
        lease: timedelta = _LEASE,
        max_recoveries: int = 5,
        unknown_grace: timedelta = _UNKNOWN_GRACE,
        session_idle_limit: timedelta = _IDLE_LIMIT,
        result_limit: int = RESULT_LIMIT,
        records: Sequence[RecordAdapter] = (),
        observers: Iterable[Observer] = (),
        report_error: Callable[[BaseException], object] | None = None,
        clock: Clock | None = None,
        default: bool = True,
    ) -> None:
        if require_duration(lease, "lease") < timedelta(seconds=1):
            raise ValueError(f"lease must be at least one second; got {lease}")
        idle_limit = max(checked.duration(session_idle_limit, "session_idle_limit"), 2 * lease)
        options = DatabaseOptions(
            session_idle_limit=idle_limit.total_seconds(), lease_seconds=lease.total_seconds()
        )
        self.clock: Clock = clock or SystemClock()
        self.codec = Codec(records=[SQLAlchemyRecords(), *records])
        self.lease = lease
        self.max_recoveries = checked.whole(max_recoveries, "max_recoveries", least=0)
        self.unknown_grace = checked.duration(unknown_grace, "unknown_grace", zero=True)
        self.result_limit = checked.whole(result_limit, "result_limit", least=1)
        self.observers = Observers(observers)
        self.report_error = report_error
        # What jitter is drawn from; tests do without chance.
        self.chance: Callable[[], float] = random.random
        self.database: Database = open_database(database, options, self.clock)
        self.claims = Claims(self.database.dialect)
        self.commands = Commands(self.database.dialect)
        self.leases = LeaseBook(lease)
        self.hub = Hub()
        self._notifier = Notifier(self.database.engine) if self.database.dialect.notifies else None
        self.starts = Starts(self)
        self.children = Children(self)
        self.signals = Signals(self)
        self._connecting = threading.Lock()
        self._is_connected = False
        if default:
            set_default_engine(self)

    def __repr__(self) -> str:
        return f"Stepwell({self.database.engine.url!r})"

    # -- the schema ---------------------------------------------------------------------------------------------

    def migrate(self) -> None:
        """Bring the tables to the shape that this version needs; harmless to repeat, and in several processes."""
        self.connect()
        migrating.upgrade(self.database.engine)

    def check(self) -> list[migrating.Finding]:
        """Look at the server and the tables; answer what is worth knowing.

        Raises:
            UnsupportedDatabase: The server cannot keep the promises.
            SchemaOutdated: The tables are missing or old; the message says what to run.
        """
        self.connect()
        self.database.check_server()
        return migrating.check(self.database.engine)

    def connect(self) -> None:
        """Check the server and learn its time, once; called by whatever uses the database first."""
        if self._is_connected:
            return
        with self._connecting:
            if not self._is_connected:
                self._reach()
                self._is_connected = True

    def _reach(self) -> None:
        try:
            self.database.check_server()
            self.database.measure_time()
        except DBAPIError as error:
            why = str(error.orig).strip().rstrip(".?")
            raise StoreError(
                f"the database at {self.database.engine.url!r} cannot be opened: {why}. "
                "Check the URL, and that the server runs or the folder exists."
            ) from error

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """An error of the database may mean that its tables are missing or old: then say so."""
        try:
            yield
        except DBAPIError:
            migrating.check(self.database.engine)
            raise

    def close(self) -> None:
        """Give all connections back."""
        if self._notifier is not None:
            self._notifier.close()
        self.database.close()

    # -- time ---------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The time by which leases, waits and deadlines are judged: the database's."""
        return self.clock.now()

    # -- runs ---------------------------------------------------------------------------------------------------

    def start(self, call: Call, options: StartOptions) -> Run:
        """Start one run; authors write ``MyWorkflow.start(...)``."""
        self.connect()
        with self._explaining():
            return self.starts.one(call, options)

    def start_many(self, calls: Iterable[Call], options: StartOptions) -> list[Run]:
        """Start many runs in one transaction; authors write ``MyWorkflow.start_many(...)``."""
        self.connect()
        with self._explaining():
            return self.starts.many(calls, options)

    def find(self, wanted: Wanted, options: StartOptions, missing: IfMissing = "raise") -> Run | None:
        """The open run that is meant; authors write ``MyWorkflow.find(key=...)``."""
        return find_open(self, wanted, options, missing)

    def start_child(self, call: Call, options: StartOptions, parentage: Parentage) -> Run:
        """Start a run for the one whose call is active here; authors write ``self.call(...)``."""
        return self.children.start(call, options, parentage)

    def run(self, run_id: UUID | str) -> Run:
        """A handle on the run with this id.

        Raises:
            RunNotFound: There is none.
        """
        try:
            found = UUID(str(run_id))
        except ValueError:
            raise RunNotFound(f"{run_id!r} is no run id: a run id is a UUID.") from None
        run = Run(self, found, created=False)
        run.info()
        return run

    def runs(self, workflow: type[Workflow[Any]] | str | None = None) -> RunQuery:
        """A query over the runs, of one workflow or of all.

        Example:
            >>> well = Stepwell("sqlite:///app.db")
            >>> well.migrate()
            >>> well.runs().live().newest().limit(10).all()
            []
        """
        self.connect()
        if isinstance(workflow, type) and not issubclass(workflow, Workflow):
            raise TypeError(f"runs() takes a workflow class or its name; {workflow.__qualname__} is no workflow. "
                            "For the runs about a record write runs().for_hero(record).")  # fmt: skip
        name = workflow if isinstance(workflow, str) or workflow is None else workflow.workflow_name
        return RunQuery(self, workflows=None if name is None else (name,))

    def is_open(self, run_id: UUID) -> bool:
        """The run exists and is not over."""
        with self.reading() as connection:
            row = find_run(connection, run_id)
        return row is not None and row.state in OPEN

    def observe(self, kind: EventKind, run_id: UUID, workflow: str | None = None, **facts: Any) -> None:
        """Tell the observers, if there are any."""
        if self.observers:
            self.observers.tell(Event(kind, self.now(), run_id, workflow, facts=facts))

    def report(self, error: BaseException) -> None:
        """Hand an error of a step to the application's reporter; what that one raises is logged."""
        if self.report_error is None:
            return
        try:
            self.report_error(error)
        except BaseException:
            _log.exception("the error reporter raised", extra={"action": "report.failed"})

    # -- transactions -------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read with: inside a step whose transaction is open, that one."""
        self.connect()
        scope = self._open_scope()
        if scope is not None and scope.is_here:
            # What the step has started is there, and nowhere else yet.
            yield scope.connection
            return
        with self._explaining(), self.database.read() as connection:
            yield connection

    def command(self, run_id: UUID, verb: str, work: Callable[[Connection, datetime], Done]) -> Answer:
        """Do something to a run from outside, in a transaction of its own, and wake whom it concerns.

        Inside a step on SQLite, where there is one writer, it takes part in the step's transaction if one is open; so
        it does everywhere for a run that this step has started, which is nowhere else yet.
        """
        self.connect()
        scope = self._open_scope()
        if scope is not None and (self.database.dialect.has_one_writer or run_id in scope.started):
            done = work(scope.connection, self.now())
            scope.after_commit.append(lambda: self._follow(run_id, verb, done))
        else:
            done = self.database.repeating(lambda connection: work(connection, self.now()))
            self._follow(run_id, verb, done)
        return done.answer

    def _open_scope(self) -> Any:
        """The scope of the step that is running here, if its transaction is open."""
        runtime = current_step_scope(self)
        scope: Any = None if runtime is None else runtime.scope
        return None if scope is None or scope.writing is None else scope

    def _follow(self, run_id: UUID, verb: str, done: Done) -> None:
        self.observe(EventKind.COMMAND, run_id, verb=verb, answer=done.answer.value)
        self.hub.run_ended()
        if done.ready_in is not None:
            self.wake_queue(done.ready_in)
        if done.successor is not None:
            self.wake_runs([done.successor])
        if verb == "cancel" and done.answer is Answer.DONE:
            self.children.ended(run_id, done.parent, RunState.CANCELED)

    # -- waking -------------------------------------------------------------------------------------------------

    def wake_queue(self, queue: str) -> None:
        """A queue has something to do: tell the workers. Only ever after the commit."""
        self.hub.wake(queue)
        if self._notifier is not None:
            self._notifier.notify(queue)

    def wake_runs(self, run_ids: Sequence[UUID]) -> None:
        """Make runs that wait to be woken look again."""
        self.database.repeating(lambda connection: wake(connection, run_ids, self.now()))
        self.hub.wake("")

    # -- leases -------------------------------------------------------------------------------------------------

    def renew_leases(self, leases: Sequence[Lease]) -> dict[UUID, Renewal]:
        """Renew leases of this process in one statement, ahead of steps; note what was lost.

        A run whose row is locked at that moment is tried again at once: a step that checkpoints all the time has its
        row locked half of the time, and must not lose its lease for that.
        """
        answers: dict[UUID, Renewal] = {}
        left = [(lease.run_id, lease.token) for lease in leases]
        for attempt in range(_RENEWAL_TRIES):
            pairs = left
            asked_at, until = self.clock.monotonic(), self.now() + self.lease
            # To say it twice is harmless; a connection that broke since the last beat costs no lease.
            found = self.database.repeating(
                lambda connection, pairs=pairs, until=until: self.claims.renew(connection, pairs, until),  # type: ignore[misc]  # bound now
                urgent=True,
            )
            self.leases.renewed(pairs, found, asked_at + self.lease.total_seconds())
            answers.update(found)
            left = [pair for pair in pairs if found[pair[0]].is_ours and not found[pair[0]].is_renewed]
            if not left:
                break
            time.sleep(0.005 * (attempt + 1))
        return answers
