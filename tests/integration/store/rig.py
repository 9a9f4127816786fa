"""A database with a clock that is moved by hand, and short ways to put runs into any state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, Final, NoReturn, TypeVar
from uuid import UUID

from sqlalchemy import Column, Connection, Integer, MetaData, Table, event, insert, update

from stepwell.clock import Clock, ManualClock
from stepwell.engine.store_journal import Place
from stepwell.entries import Execution, JournalEntry, Settlement, Verdict
from stepwell.ids import new_run_id, new_token
from stepwell.states import ExecutionState, Kind, Outcome
from stepwell.store import reads
from stepwell.store.claims import Claims
from stepwell.store.commands import Commands
from stepwell.store.database import Database, open_database
from stepwell.store.dialects import DatabaseOptions
from stepwell.store.rows import ExecutionRow, RunRow
from stepwell.store.schema import executions, runs

__all__ = [
    "LEASE",
    "NOON",
    "SECOND",
    "Held",
    "Rig",
    "Statements",
    "at_once",
    "done",
    "ledger",
    "quiet_place",
    "start_together",
    "wait_until",
]

NOON: Final = datetime(2030, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
LEASE: Final = timedelta(seconds=30)

ledger: Final = Table("ledger", MetaData(), Column("n", Integer))
"""An application's table, for what a step writes besides its journal entry."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held:
    """A run that somebody drives, and the token that proves it."""

    id: UUID
    token: UUID


class Rig:
    """One database for a test of the store.

    Args:
        url: Where.
        clock: What time it is; noon of a day to come, moved by hand, by default.
        options: Limits on connections.
    """

    def __init__(self, url: str, clock: Clock | None = None, options: DatabaseOptions | None = None) -> None:
        self.url = url
        self.clock: Any = clock or ManualClock(NOON)
        self.database: Database = open_database(url, options or DatabaseOptions(), self.clock)
        self.dialect = self.database.dialect
        self.claims = Claims(self.dialect)
        self.commands = Commands(self.dialect)

    def close(self) -> None:
        self.database.close()

    @property
    def now(self) -> datetime:
        now: datetime = self.clock.now()
        return now

    # -- runs -----------------------------------------------------------------------------------------------

    def least(self, **values: Any) -> dict[str, Any]:
        """The row of a run that is due, with what is given in place of its values."""
        row: dict[str, Any] = {
            "id": new_run_id(),
            "workflow": "Onboarding",
            "version": 1,
            "active_key": None,
            "state": "ready",
            "args": "{}",
            "queue": "default",
            "lane": "default",
            "priority": 100,
            "due_at": self.now,
            "wakeups": 0,
            "recoveries": 0,
            "current_step": "greet",
            "created_at": self.now,
            "changed_at": self.now,
        }
        return row | values

    def add(self, **values: Any) -> UUID:
        """A run that is due."""
        row = self.least(**values)
        self.do(lambda connection: connection.execute(insert(runs), row))
        run_id: UUID = row["id"]
        return run_id

    def add_many(self, count: int, **values: Any) -> list[UUID]:
        """So many runs that are due."""
        rows = [self.least(**values) for _ in range(count)]
        self.do(lambda connection: connection.execute(insert(runs), rows))
        return [row["id"] for row in rows]

    def add_parked(self, state: str = "waiting", **values: Any) -> UUID:
        """A run that waits."""
        return self.add(**{"state": state, "lane": None, "due_at": None, **values})

    def hold(self, **values: Any) -> Held:
        """A run that is being driven."""
        return self.hold_many(1, **values)[0]

    def hold_many(self, count: int, **values: Any) -> list[Held]:
        """So many runs that are being driven, each under a token of its own."""
        rows = [
            self.least(
                **{
                    "state": "running",
                    "lane": None,
                    "lease_token": new_token(),
                    "lease_owner": "first",
                    "lease_expires_at": self.now + LEASE,
                    "started_at": self.now,
                    **values,
                }
            )
            for _ in range(count)
        ]
        self.do(lambda connection: connection.execute(insert(runs), rows))
        return [Held(row["id"], row["lease_token"]) for row in rows]

    def set(self, run_id: UUID, **values: Any) -> None:
        """Change columns of a run by hand."""
        self.do(lambda connection: connection.execute(update(runs).where(runs.c.id == run_id).values(values)))

    def row(self, run_id: UUID) -> RunRow:
        """The run's row as it is now."""
        with self.database.read() as connection:
            found = reads.find_run(connection, run_id)
        assert found is not None
        return found

    def journal(self, run_id: UUID) -> list[ExecutionRow]:
        """The run's journal."""
        with self.database.read() as connection:
            return reads.history(connection, run_id)

    def add_execution(self, run_id: UUID, position: int, **values: Any) -> None:
        """A row in a run's journal."""
        row = {"run_id": run_id, "position": position, "name": "greet", "kind": "step", "attempt": 1}
        self.do(
            lambda connection: connection.execute(insert(executions), row | {"state": "completed"} | values)
        )

    # -- statements -----------------------------------------------------------------------------------------

    def do(self, work: Callable[[Connection], T]) -> T:
        """Do something in a write transaction."""
        with self.database.begin() as connection:
            return work(connection)

    def claim(
        self,
        limit: int = 1,
        lane: str = "default",
        *,
        token: UUID | None = None,
        owner: str = "first",
        on: Connection | None = None,
    ) -> list[RunRow]:
        """Take due runs."""
        token = token or new_token()

        def take(connection: Connection) -> list[RunRow]:
            return self.claims.claim(
                connection, lane, limit, owner=owner, token=token, now=self.now, until=self.now + LEASE
            )

        return self.database.retrying(take) if on is None else take(on)

    def entry(
        self,
        held: Held,
        *rows: Execution,
        settlement: Settlement | None = None,
        step: str | None = "next",
        context: str | None = None,
    ) -> JournalEntry:
        """What an activation writes."""
        return JournalEntry(held.id, held.token, self.now, "first", step, rows, context, settlement)

    def write(self, held: Held, *rows: Execution, **more: Any) -> Verdict:
        """Write an entry as an activation does."""
        return self.database.write(self.entry(held, *rows, **more))

    @contextmanager
    def counting(self) -> Iterator[Statements]:
        """What is sent to the database in the block."""
        statements = Statements(self.database)
        try:
            yield statements
        finally:
            statements.stop()


class Statements:
    """The statements and commits that a database's engines send while this listens.

    SQLite is asked itself, since the engine writes some statements past SQLAlchemy there.

    Args:
        database: Whose engines.
        thread: Only what a thread with a name that begins like this sends; None counts all.
    """

    def __init__(self, database: Database, thread: str | None = None) -> None:
        self.sent: list[str] = []
        self.commits = 0
        self._thread = thread
        engines = (database.engine, database.reserved)
        if database.dialect.has_one_writer:
            self._listeners: dict[str, Callable[..., None]] = {
                "checkout": self._trace,
                "checkin": self._untrace,
            }
            self._targets: Any = [engine.pool for engine in engines]
        else:
            self._listeners = {"before_cursor_execute": self._executed, "commit": self._committed}
            self._targets = engines
        for target, (name, listener) in product(self._targets, self._listeners.items()):
            event.listen(target, name, listener)

    def stop(self) -> None:
        for target, (name, listener) in product(self._targets, self._listeners.items()):
            event.remove(target, name, listener)

    def _counts(self) -> bool:
        return self._thread is None or threading.current_thread().name.startswith(self._thread)

    def _executed(self, _connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if self._counts():
            self.sent.append(statement)

    def _committed(self, connection: Connection) -> None:
        if self._counts():
            self.commits += 1

    def _trace(self, dbapi_connection: Any, *_more: Any) -> None:
        dbapi_connection.set_trace_callback(self._traced)

    def _untrace(self, dbapi_connection: Any, *_more: Any) -> None:
        dbapi_connection.set_trace_callback(None)

    def _traced(self, statement: str) -> None:
        if not self._counts():
            return
        if statement.startswith("COMMIT"):
            self.commits += 1
        elif not statement.startswith(("BEGIN", "ROLLBACK")):
            self.sent.append(statement)


def done(position: int, name: str = "greet", **values: Any) -> Execution:
    """The row of a step that went well."""
    least: dict[str, Any] = {
        "kind": Kind.STEP,
        "state": ExecutionState.COMPLETED,
        "outcome": Outcome.SUCCESS,
        "finished_at": NOON,
        "result": "null",
    }
    return Execution(position, name, **(least | values))


def start_together(works: Sequence[Callable[[], T]]) -> list[T | BaseException]:
    """Do each work in a thread of its own, all let go at one moment; answer what each returned or raised."""
    answers: list[Any] = [None] * len(works)
    barrier = threading.Barrier(len(works))

    def do(number: int) -> None:
        barrier.wait()
        try:
            answers[number] = works[number]()
        except BaseException as error:
            answers[number] = error

    threads = [threading.Thread(target=do, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Do ``work(number)`` in so many threads at one moment; raise the first error."""
    answers = start_together([lambda number=number: work(number) for number in range(count)])  # type: ignore[misc]
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers  # type: ignore[return-value]


def wait_until(is_so: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for what another thread or a server is about to do."""
    limit = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < limit, "it did not come to pass"
        time.sleep(0.001)


def quiet_place() -> Place:
    """A worker without a thread of its own, which never stops."""

    def refused(*_: object) -> NoReturn:
        raise AssertionError("neither coroutines nor time limits here")

    return Place(
        "first", lambda _seconds, _steps: False, lambda: False, lambda: False, refused, refused, refused
    )
