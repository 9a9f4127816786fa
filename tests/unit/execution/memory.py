"""A run whose journal is a dict: what the drivers are tested on, without a database and without waiting.

It keeps the laws of the store that a driver relies on: writes are fenced by the token, a park is refused when
the counter has moved, a row is finished by one of the same position, and what a scope holds is committed with
the rows.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from stepwell import ManualClock, Workflow
from stepwell.entries import Execution, JournalEntry, Settlement, Verdict
from stepwell.errors import HeroGone, RecordGone
from stepwell.execution.journal import Body, Letter, RunFacts, TransientConflict, WritesRefused
from stepwell.execution.linear import LinearDriver
from stepwell.execution.outcome import Activated
from stepwell.execution.recorder import RESULT_LIMIT, Recorder
from stepwell.execution.replay import ReplayDriver
from stepwell.execution.suspension import LeaseLost
from stepwell.requests import CONTEXT_MAIL, ContextChange, StopRequest
from stepwell.serialization import Codec, RecordRef
from stepwell.states import ATTENTION, LIVE, ExecutionState, Kind, Outcome, Reason, RunState
from stepwell.worker.loop_thread import LoopThread
from stepwell.worker.watchdog import Watchdog

__all__ = ["START", "Crash", "Hero", "MemoryRun", "MemoryScope", "Table"]

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
_STRENGTH = {"skip": 1, "pause": 2, "cancel": 3}
_LOOP = LoopThread()
_UNFINISHED = (ExecutionState.SCHEDULED, ExecutionState.IN_PROGRESS)


class Crash(BaseException):
    """The worker dies at this very place."""


@dataclass
class Hero:
    """A record, as a scope loads it."""

    name: str = "Ada"
    is_gone: bool = False


class MemoryScope:
    """The surroundings of one attempt: a list of writes that is committed with the rows, or dropped.

    Attributes:
        session: What a body writes to; anything appended counts as written.
    """

    def __init__(self, run: MemoryRun) -> None:
        self._run = run
        self.session: list[Any] = []
        self.is_closed = False
        self._thread = threading.get_ident()

    @property
    def hero(self) -> Any:
        hero = self._run.hero
        if hero is not None and hero.is_gone:
            raise HeroGone("the hero is gone")
        self._run.heroes_loaded += 1
        return None if hero is None else replace(hero)

    def preload(self) -> None:
        _ = self.hero

    def has_changes(self) -> bool:
        return bool(self.session)

    @contextmanager
    def looking(self) -> Iterator[None]:
        yield

    def load(self, ref: RecordRef) -> Any:
        if ref in self._run.records:
            return self._run.records[ref]
        raise RecordGone(f"there is no {ref.type} {ref.key}")

    @property
    def is_here(self) -> bool:
        return threading.get_ident() == self._thread

    def pages(self) -> MemoryPages:
        return MemoryPages()

    def commit(self, entry: JournalEntry) -> Verdict:
        raise NotImplementedError("the journal in memory commits by itself")

    def committed(self) -> None: ...

    def flush(self) -> None:
        for error in self.session:
            if isinstance(error, Exception):
                raise error

    def abandon(self) -> None:
        self.close()

    def close(self) -> None:
        self.session.clear()
        self.is_closed = True


class Table:
    """What a query over records is to a cursor: rows in the order of their ids.

    Attributes:
        read: The ids that were read, page by page.
    """

    whereclause = None

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)
        self.read: list[list[int]] = []


class MemoryPages:
    """Reads a table in pages (see ``execution.cursor.Pages``)."""

    def rows(self, query: Table, key: Any, after: Any, size: int) -> Iterator[tuple[Any, Any]]:
        for last, page in self.batches(query, key, after, size):
            assert last == page[-1]
            yield from ((row, row) for row in page)

    def batches(self, query: Table, key: Any, after: Any, size: int) -> Iterator[tuple[Any, Sequence[Any]]]:
        while page := [row for row in sorted(query.ids) if after is None or row > after][:size]:
            query.read.append(page)
            after = page[-1]
            yield after, page


class MemoryJournal:
    """The journal of one activation (see ``execution.journal.Journal``)."""

    def __init__(self, run: MemoryRun, token: UUID) -> None:
        self._run = run
        self._token = token
        self._open: MemoryScope | None = None

    def now(self) -> datetime:
        return self._run.clock.now()

    def history(self) -> Sequence[Execution]:
        rows = (row for row in self._run.journal if row.position not in self._run.superseded)
        return [row for row in rows if not _is_past_tick(row)]

    def open_scope(self) -> MemoryScope:
        self._open = MemoryScope(self._run)
        return self._open

    def write(
        self,
        executions: Sequence[Execution],
        *,
        current_step: str | None,
        context: str | None = None,
        settlement: Settlement | None = None,
        scope: MemoryScope | None = None,
        consumes: int | None = None,
    ) -> Verdict:
        run = self._run
        run.boundary("before")
        if scope is None and self._open is not None and self._open.has_changes():
            raise AssertionError("a write beside a transaction that is still open waits for itself on SQLite")
        if run.token != self._token:
            raise LeaseLost
        if scope is not None and run.conflicts > 0:
            run.conflicts -= 1
            raise TransientConflict from RuntimeError("deadlock detected")
        if scope is not None and run.refuses_commit is not None:
            error, run.refuses_commit = run.refuses_commit, None
            raise WritesRefused(error)
        if settlement is not None and settlement.seen_wakeups not in (None, run.wakeups):
            return Verdict(False, run.wakeups, run.stop_request)
        run.keep(*executions)
        if consumes is not None:
            run.read.add(consumes)
        if scope is not None:
            run.ledger += scope.session
            scope.session.clear()
        run.current_step = current_step
        run.context = run.context if context is None else context
        if settlement is not None:
            run.settle(settlement)
        run.boundary("with")
        verdict = Verdict(True, run.wakeups, run.stop_request)
        run.writes += 1
        run.boundary("after")
        return verdict

    def report(self, error: BaseException) -> None:
        self._run.reported.append(error)

    def details_at_end(self) -> str | None:
        sent = [letter for letters in self._run.letters.values() for letter in letters]
        unread = sum(letter.id not in self._run.read for letter in sent)
        return json.dumps({"unread_signals": unread}) if unread else None

    def unread_signal(self, name: str) -> Letter | None:
        return next(
            (letter for letter in self._run.letters.get(name, []) if letter.id not in self._run.read), None
        )

    def call_home(self, work: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        return _LOOP.call_home(work)

    def run_limited(self, work: Callable[[], Any], timeout: timedelta) -> Any:
        return self._run.watchdog.run(work, timeout)

    def ensure_lease(self) -> None:
        if self._run.token != self._token:
            raise LeaseLost

    def body_starts(self, body: Body) -> None:
        self._run.shown = body.shown()

    def show_progress(self, done: int, total: int | None) -> None:
        self._run.progress = (done, total)

    def body_ends(self) -> None:
        self._run.shown = None

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any], timeout: timedelta | None) -> Any:
        return _LOOP.run(coroutine, timeout)

    def should_yield(self) -> bool:
        return self._run.is_draining or self._run.should_yield()

    @property
    def is_draining(self) -> bool:
        return self._run.is_draining

    @property
    def stop_requested(self) -> bool:
        return self._run.is_draining or self._run.stop_request is not None

    @property
    def starter(self) -> Any:
        raise NotImplementedError


@dataclass
class MemoryRun:
    """One run, as a store would keep it, with the commands that a person has.

    Attributes:
        at_boundary: Called with "before" and "after" around each durable write, and "with" it, when what
            comes from outside is still told by the write's answer: the place for commands and crashes.
        conflicts: How often the database undoes the transaction of a step that has a scope.
        refuses_commit: What the database says, once, to a commit of a step's writes.
    """

    workflow: type[Workflow[Any]]
    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    args: dict[str, Any] = field(default_factory=dict)
    hero: Hero | None = None
    options: dict[str, Any] = field(default_factory=dict)
    result_limit: int = RESULT_LIMIT

    rows: dict[int, Execution] = field(default_factory=dict)
    state: RunState = RunState.READY
    reason: str | None = None
    result: Any = None
    error_class: str | None = None
    error_message: str | None = None
    context: str | None = None
    ledger: list[Any] = field(default_factory=list)
    wake_at: datetime | None = None
    wakeups: int = 0
    stop_request: str | None = None
    token: UUID | None = None
    identity_is_free: bool = False

    at_boundary: Callable[[str], None] = lambda moment: None
    conflicts: int = 0
    refuses_commit: Exception | None = None
    should_yield: Callable[[], bool] = lambda: False
    is_draining: bool = False
    shown: Execution | None = None
    progress: tuple[int, int | None] | None = None
    heroes_loaded: int = 0
    writes: int = 0
    activations: int = 0
    handed_to: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.id = uuid4()
        self.codec = Codec()
        first = None if self.workflow.plan.is_procedural else self.workflow.plan.first
        self.current_step: str | None = first.name if first else None
        self.version = self.workflow.version
        self.queue: str = self.options.get("queue") or self.workflow.queue
        self.priority: int = self.options.get("priority") or self.workflow.priority
        self.due_at = self.begins_at = self.clock.now()
        self.reported: list[BaseException] = []
        self.records: dict[RecordRef, Any] = {}
        self.superseded: set[int] = set()
        self.is_dead = False
        self.details: str | None = None
        self.watchdog = Watchdog()
        self.letters: dict[str, list[Letter]] = {}
        self.read: set[int] = set()

    # -- what the journal does ---------------------------------------------------------------------

    def boundary(self, moment: str) -> None:
        if self.is_dead:
            raise LeaseLost
        try:
            self.at_boundary(moment)
        except Crash:
            # Also in the middle of a body: whatever is still done on the way out is done by nobody.
            self.is_dead, self.token = True, None
            raise

    def keep(self, *rows: Execution) -> None:
        for row in rows:
            known = self.rows.get(row.position)
            if known is not None and known.state not in _UNFINISHED:
                raise AssertionError(f"a finished row was written again: {known} {row}")
            self.rows[row.position] = row
        if sorted(self.rows) != list(range(1, len(self.rows) + 1)):
            raise AssertionError(f"a gap in the journal: {sorted(self.rows)}")

    def settle(self, settlement: Settlement) -> None:
        self.state, self.reason = settlement.state, settlement.reason
        self.result = settlement.result if settlement.result is not None else self.result
        self.error_class, self.error_message = settlement.error_class, settlement.error_message
        self.wake_at, self.token = settlement.wake_at, None
        self.details = settlement.details or self.details
        self.due_at = settlement.due_at or self.due_at
        self.queue = settlement.queue or self.queue
        self.priority = self.priority if settlement.priority is None else settlement.priority
        self.identity_is_free = self.identity_is_free or settlement.frees_identity
        if settlement.answers_request:
            self.stop_request = None
        if settlement.state is RunState.READY:
            self.handed_to.append((self.queue, self.priority))

    # -- what a worker does ------------------------------------------------------------------------

    def activate(self) -> Activated | None:
        """Claim the run and drive it; None when the lease was lost on the way."""
        assert self.state is RunState.READY, f"cannot be claimed: {self.state}"
        self.state, self.reason, self.token = RunState.RUNNING, None, uuid4()
        self.activations += 1
        facts = RunFacts(
            id=self.id,
            workflow=self.workflow,
            plan=self.workflow.plan,
            version=self.version,
            args=self.args,
            context=self.context,
            current_step=self.current_step,
            queue=self.queue,
            priority=self.priority,
            begins_at=self.begins_at,
            wakeups=self.wakeups,
            stop_request=self.stop_request,
            options=self.options,
        )
        journal = MemoryJournal(self, self.token)
        recorder = Recorder(journal, facts, self.codec, result_limit=self.result_limit)
        try:
            driver = ReplayDriver if facts.plan.is_procedural else LinearDriver
            return driver(recorder).drive()
        except LeaseLost:
            return None
        finally:
            if self.is_dead:
                self.is_dead = False
                raise Crash

    def lose_worker(self) -> None:
        """The worker is dead and its lease has run out; what is durable stays."""
        assert self.state is RunState.RUNNING
        self.state, self.token = RunState.READY, None
        for position, row in self.rows.items():
            if row.state is ExecutionState.IN_PROGRESS:
                self.rows[position] = replace(
                    row, state=ExecutionState.FAILED, outcome=Outcome.LOST, finished_at=self.clock.now()
                )
                return
        self._note(Kind.RECOVERY, self.current_step or "end", ExecutionState.FAILED, Outcome.LOST)

    def wake(self) -> None:
        """The instant that the run is parked until has come."""
        assert self.state in (RunState.WAITING, RunState.AWAITING), f"not parked: {self.state}"
        assert self.wake_at is not None, "parked until nothing"
        self.clock.travel(max(self.wake_at - self.clock.now(), timedelta()))
        self.due_at, self.state = self.wake_at, RunState.READY

    def drive(self, most: int = 300) -> MemoryRun:
        """Wake and activate until the run is over or wants a person; crashes are survived."""
        for _ in range(most):
            if self.state is RunState.WAITING:
                self.wake()
            elif self.state is not RunState.READY:
                return self
            try:
                self.activate()
            except Crash:
                if self.state is RunState.RUNNING:
                    self.lose_worker()
        raise AssertionError(f"does not come to an end: {self.state} at {self.current_step}")

    # -- what a person does ------------------------------------------------------------------------

    def pause(self, reason: str | None = None) -> None:
        if self.state is RunState.RUNNING:
            self._request("pause", reason)
        elif self.state in LIVE:
            self._command("pause")
            self.state, self.reason, self.wake_at, self.wakeups = (
                RunState.PAUSED,
                reason,
                None,
                self.wakeups + 1,
            )

    def cancel(self, reason: str | None = None) -> None:
        if self.state is RunState.RUNNING:
            self._request("cancel", reason)
        elif self.state in LIVE | ATTENTION:
            self._command("cancel")
            self.state, self.reason, self.wakeups = RunState.CANCELED, reason, self.wakeups + 1

    def skip(self) -> None:
        if self.state is RunState.RUNNING:
            self._request("skip", None)
        elif self.state in LIVE | ATTENTION and self.current_step is not None:
            if self.state in ATTENTION:
                self._command("skip")
            self.stop_request = self._text("skip", None)
            self._make_ready()

    def resume(self) -> None:
        if self.state in ATTENTION:
            self._try_escaped_error_anew()
            self._command("resume")
            self.stop_request = None
            self._make_ready()
        elif json.loads(self.stop_request or "{}").get("verb") == "pause":
            self.stop_request, self.wakeups = None, self.wakeups + 1

    def _try_escaped_error_anew(self) -> None:
        """A recorded error has left ``run()``: the call that it belongs to is made again."""
        last = next((row for row in reversed(self.journal) if row.kind is Kind.BODY), None)
        if self.state is RunState.FAILED and last is not None:
            self.superseded |= {json.loads(last.details or "{}").get("escaped")} - {None}

    def signal(self, name: str, payload: Any = None) -> None:
        """Send the run a signal."""
        text = self.codec.dumps(payload, what="payload")
        number = sum(map(len, self.letters.values())) + 1
        self.letters.setdefault(name, []).append(Letter(number, text))
        self.nudge()

    def change(self, *gone: str, **values: Any) -> None:
        """``run.context.update()`` and ``delete()``."""
        delta = json.dumps({"set": values, "gone": list(gone)})
        number = sum(map(len, self.letters.values())) + 1
        self.letters.setdefault(CONTEXT_MAIL, []).append(Letter(number, ContextChange(delta, "ops").text()))
        self.nudge()

    def nudge(self) -> None:
        """``run.wake()``: have it look again."""
        self.wakeups += 1
        if self.state is RunState.AWAITING:
            self.state, self.wake_at, self.due_at = RunState.READY, None, self.clock.now()

    def _make_ready(self) -> None:
        self.state, self.reason, self.wake_at = RunState.READY, None, None
        self.wakeups, self.due_at = self.wakeups + 1, self.clock.now()

    def _request(self, verb: str, reason: str | None) -> None:
        standing = json.loads(self.stop_request or "{}").get("verb")
        if _STRENGTH.get(standing, 0) < _STRENGTH[verb]:
            self.stop_request, self.wakeups = self._text(verb, reason), self.wakeups + 1

    def _text(self, verb: str, reason: str | None) -> str:
        was = None if self.state is RunState.RUNNING else self.state.value
        request = StopRequest(verb, reason, at=self.clock.now(), step=self.current_step, was=was)
        return request.text()

    def _command(self, verb: str) -> None:
        details = json.dumps({"by": None, "from": self.state})
        self._note(Kind.COMMAND, verb, ExecutionState.COMPLETED, Outcome.SUCCESS, details)

    def _note(
        self, kind: Kind, name: str, state: ExecutionState, outcome: Outcome, details: str | None = None
    ) -> None:
        position = max(self.rows, default=0) + 1
        self.rows[position] = Execution(
            position, name, kind, state, outcome, finished_at=self.clock.now(), details=details
        )

    # -- what tests look at ------------------------------------------------------------------------

    @property
    def journal(self) -> list[Execution]:
        """The rows in their order."""
        return [self.rows[position] for position in sorted(self.rows)]

    @property
    def story(self) -> list[str]:
        """What became of each step, one word for each row: ``"pack retried"``."""
        return [f"{row.name} {row.outcome or row.state}" for row in self.journal if row.kind is Kind.STEP]

    @property
    def memory(self) -> dict[str, Any]:
        """The context, decoded."""
        value: Any = self.codec.loads(self.context, what="context") if self.context else {}
        return dict(value)

    @property
    def waits(self) -> timedelta | None:
        """How long until the run wakes."""
        return None if self.wake_at is None else self.wake_at - self.clock.now()

    def row(self, name: str) -> Execution:
        """The last row of a step."""
        return next(row for row in reversed(self.journal) if row.name == name)

    def is_over_as(self, state: RunState, reason: str | Reason | None = None) -> bool:
        """It stands there, for this reason."""
        return self.state is state and self.reason == reason


def _is_past_tick(row: Execution) -> bool:
    """What it knew is known to the next tick: it is not loaded."""
    is_over = row.state in (ExecutionState.COMPLETED, ExecutionState.SKIPPED)
    return row.kind is Kind.TICK and is_over and row.outcome is not Outcome.CONTINUED


def crash_at(run: MemoryRun, place: int, moment: str) -> None:
    """Let the worker die once: at the ``place``-th durable write from now, before it or after it."""
    counted = count()

    def at_boundary(now: str) -> None:
        if now == moment and next(counted) == place:
            raise Crash

    run.at_boundary = at_boundary
