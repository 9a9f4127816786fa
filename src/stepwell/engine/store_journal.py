"""A run's journal in the database, under a lease: where ``execution`` and ``store`` meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from stepwell.engine.children import facts_of
from stepwell.engine.leases import Lease
from stepwell.engine.step_scope import StepScope
from stepwell.engine.succession import succeed
from stepwell.entries import Execution, JournalEntry, Settlement, Verdict
from stepwell.errors import StoreError
from stepwell.execution.journal import (
    Body,
    ChildFacts,
    Fact,
    Letter,
    Scope,
    Succession,
    TransientConflict,
    WritesRefused,
)
from stepwell.execution.suspension import Interrupted, LeaseLost
from stepwell.ids import new_token
from stepwell.logs import facts_logger
from stepwell.observer import Event, EventKind
from stepwell.serialization import RecordRef
from stepwell.states import UNFINISHED, ExecutionState, Kind, RunState
from stepwell.store.claims import Renewal
from stepwell.store.database import AnswerLost, WriteLockBusy
from stepwell.store.journal import row_mark
from stepwell.store.mailbox import details_with_unread, unread
from stepwell.store.reads import find_run

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["Place", "StoreJournal"]

_log = facts_logger(__name__)
_LONGEST_PAUSE: Final = 2.0
_MOST_CUTS: Final = 6
"""So often in a row a write may be cut off while others arrive: then it is the write."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a worker offers to the activations that it runs.

    Attributes:
        worker: The worker's name, for people.
        should_yield: Asked between steps: others wait, or the worker drains.
        is_draining: The worker takes on nothing more.
        is_abandoned: The grace period is over: do not wait for the database any longer.
        run_coroutine: Runs a coroutine on the process's event loop; it hands over what stops it, once that is known.
        run_limited: Runs a function and ends it when its time is up.
        call_home: From a coroutine: calls a function on the thread that waits for it.
    """

    worker: str
    should_yield: Callable[[float, int], bool]
    is_draining: Callable[[], bool]
    is_abandoned: Callable[[], bool]
    run_coroutine: Callable[
        [Coroutine[Any, Any, Any], timedelta | None, Callable[[Callable[[], None]], None]], Any
    ]
    run_limited: Callable[[Callable[[], Any], timedelta], Any]
    call_home: Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]


class StoreJournal:
    """The journal of one claimed run (see ``execution.journal.Journal``).

    Args:
        engine: The engine.
        lease: The run's lease; its token fences every write.
        place: The worker.
        known: The run's history, loaded with the claim.
        hero: The reference to its hero.
        hero_is_optional: The class says so.
        version: The class's version.
        workflow: The workflow's stable name, for observers.
    """

    def __init__(
        self,
        engine: Stepwell,
        lease: Lease,
        place: Place,
        known: Sequence[Fact],
        hero: RecordRef | None,
        hero_is_optional: bool,
        version: int = 1,
        workflow: str | None = None,
    ) -> None:
        self._version = version
        self._workflow = workflow
        self._engine = engine
        self._database = engine.database
        self._lease = lease
        self._place = place
        self._known = known
        self._hero = hero
        self._hero_is_optional = hero_is_optional
        self._scope: StepScope | None = None
        self._began_at = time.monotonic()
        self._written = 0

    # -- reading ------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self._engine.now()

    def history(self) -> Sequence[Fact]:
        return self._known

    def unread_signal(self, name: str) -> Letter | None:
        def look() -> Letter | None:
            with self._database.read() as connection:
                signal = unread(connection, self._lease.run_id, name)
            return None if signal is None else Letter(signal.id, signal.payload)

        letter: Letter | None = self._insist(look)
        return letter

    def child(self, run_id: UUID) -> ChildFacts | None:
        def look() -> ChildFacts | None:
            with self._database.read() as connection:
                return facts_of(connection, run_id)

        facts: ChildFacts | None = self._insist(look)
        return facts

    def succeed(self, scope: Scope, succession: Succession) -> None:
        succeed(self._engine, self._lease.run_id, self._lease.token, scope, succession)

    def details_at_end(self) -> str | None:
        def look() -> str | None:
            with self._database.read() as connection:
                run = find_run(connection, self._lease.run_id)
                return None if run is None else details_with_unread(connection, run)

        details: str | None = self._insist(look)
        return details

    def report(self, error: BaseException) -> None:
        self._engine.report(error)

    def open_scope(self) -> StepScope:
        self._scope = StepScope(
            self._database, self._engine.codec, self._hero, self._hero_is_optional, self._insist
        )
        return self._scope

    @property
    def starter(self) -> Stepwell:
        return self._engine

    @property
    def is_draining(self) -> bool:
        return self._place.is_draining()

    @property
    def stop_requested(self) -> bool:
        return self._lease.stop_requested or self._place.is_draining()

    def should_yield(self) -> bool:
        return self._place.should_yield(time.monotonic() - self._began_at, self._written)

    def call_home(self, work: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        return self._place.call_home(work)

    def run_limited(self, work: Callable[[], Any], timeout: timedelta) -> Any:
        return self._place.run_limited(work, timeout)

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any], timeout: timedelta | None) -> Any:
        lease = self._lease
        around = lease.stop_body

        def keep(stop: Callable[[], None]) -> None:
            lease.stop_body = stop
            if lease.is_lost:
                lease.stop_coroutine()

        try:
            return self._place.run_coroutine(coroutine, timeout, keep)
        except Interrupted:
            if lease.is_lost:
                raise LeaseLost from None
            raise
        finally:
            # An async run() waits for the steps that it calls.
            lease.stop_body = around

    # -- bodies -------------------------------------------------------------------------------------------------

    def body_starts(self, body: Body) -> None:
        self._lease.is_shown = False
        self._lease.progress = None
        self._lease.shown = body

    def body_ends(self) -> None:
        self._lease.shown = None

    def show_progress(self, done: int, total: int | None) -> None:
        self._lease.progress = (done, total)

    def ensure_lease(self) -> None:
        lease, clock = self._lease, self._engine.clock
        if lease.is_lost:
            raise LeaseLost
        if clock.monotonic() < lease.expires_at_monotonic:
            return
        # The process stood still for longer than the lease (a stopped machine, a long pause): ask before acting.
        if not self._insist(self._renew).is_ours:
            raise LeaseLost

    def _renew(self) -> Renewal:
        """Unlike the heartbeat's, this renewal waits for the row: whoever has it may be taking the run away."""
        engine, lease = self._engine, self._lease
        asked_at, until = engine.clock.monotonic(), engine.now() + engine.lease
        pair = (lease.run_id, lease.token)

        def renew(connection: Connection) -> Renewal:
            if not engine.claims.rotate(connection, *pair, lease.token):
                return Renewal(is_ours=False)
            return engine.claims.renew(connection, [pair], until)[lease.run_id]

        renewal: Renewal = self._database.retrying(renew, urgent=True)
        engine.leases.renewed([pair], {lease.run_id: renewal}, asked_at + engine.lease.total_seconds())
        return renewal

    # -- writing ------------------------------------------------------------------------------------------------

    def write(
        self,
        executions: Sequence[Execution],
        *,
        current_step: str | None,
        context: str | None = None,
        settlement: Settlement | None = None,
        scope: Scope | None = None,
        consumes: int | None = None,
    ) -> Verdict:
        lease = self._lease
        if lease.is_lost:
            raise LeaseLost
        entry = JournalEntry(
            lease.run_id,
            lease.token,
            self._engine.now(),
            self._place.worker,
            current_step,
            tuple(executions),
            context,
            settlement,
            self._version,
            consumes,
        )
        if scope is not None and scope.has_changes():
            verdict = self._write_with(scope, entry)
        else:
            verdict = self._write(entry)
            if scope is not None and verdict.accepted:
                scope.committed()
        if not verdict.accepted:
            return self._refused()
        self._written += 1
        # What was asked for may have been withdrawn meanwhile.
        lease.stop_requested = verdict.stop_request is not None
        if settlement is not None:
            self._engine.leases.remove(lease)
        if self._engine.observers:
            self._tell(entry)
        return verdict

    def _tell(self, entry: JournalEntry) -> None:
        """Observers hear of what is durable."""
        worker, workflow = entry.worker, self._workflow
        for row in entry.executions:
            # What a person did was told when it was asked for.
            if row.finished_at is not None and row.kind not in (Kind.COMMAND, Kind.CONTEXT):
                facts = {
                    "kind": row.kind.value,
                    "state": row.state.value,
                    "outcome": None if row.outcome is None else row.outcome.value,
                    "attempt": row.attempt,
                    "error_class": row.error_class,
                    "worker": worker,
                }
                self._engine.observers.tell(
                    Event(EventKind.STEP, entry.at, entry.run_id, workflow, row.name, facts)
                )
        settlement = entry.settlement
        if settlement is not None:
            is_parked = settlement.state in (RunState.WAITING, RunState.AWAITING)
            kind = EventKind.PARK if is_parked else EventKind.SETTLE
            facts = {"state": settlement.state.value, "reason": settlement.reason, "worker": worker}
            self._engine.observers.tell(
                Event(kind, entry.at, entry.run_id, workflow, entry.current_step, facts)
            )

    def _refused(self) -> Verdict:
        """Nothing was written: either a park was refused because something came, or the lease is lost."""
        row = self._insist(self._look)
        if row is None or row.lease_token != self._lease.token:
            self._lease.is_lost = True
            self._engine.leases.remove(self._lease)
            raise LeaseLost
        return Verdict(False, row.wakeups, row.stop_request)

    def _look(self) -> Any:
        writing = None if self._scope is None else self._scope.writing
        if writing is not None:
            # The step's own transaction may have changed the row: a command to its own run, on SQLite.
            return self._engine.claims.standing(writing, self._lease.run_id)
        with self._database.read() as connection:
            return self._engine.claims.standing(connection, self._lease.run_id)

    def _write(self, entry: JournalEntry) -> Verdict:
        cut_off = 0
        while True:
            try:
                return self._database.write(entry)
            except DBAPIError as error:
                # Somebody holds the run's row for long: the lease is ours, and so is the patience.
                if not self._database.dialect.is_retryable(error) or self._place.is_abandoned():
                    raise
            except WriteLockBusy:
                if self._place.is_abandoned():
                    raise
            except AnswerLost as lost:
                cut_off += 1
                token = self._rotate(entry.token)
                if self._is_there(entry):
                    return Verdict(True, *self._look_at_requests())
                if self._place.is_abandoned():
                    raise LeaseLost from lost
                if cut_off >= _MOST_CUTS:
                    raise WritesRefused(_cut_off(lost)) from lost
                # It can no longer arrive late: the old token is gone. Say it again under the new one.
                entry = replace(entry, token=token)
                time.sleep(0.02 * 2**cut_off)

    def _write_with(self, scope: Scope, entry: JournalEntry) -> Verdict:
        try:
            return scope.commit(entry)
        except AnswerLost as lost:
            self._rotate(entry.token)
            if self._is_there(entry):
                scope.committed()
                return Verdict(True, *self._look_at_requests())
            conflict = TransientConflict()
            conflict.is_cut_off = True
            raise conflict from _cut_off(lost)

    def _rotate(self, old: UUID) -> UUID:
        """Exchange the token, so that a write whose answer was lost has either happened or never will.

        Raises:
            LeaseLost: The run was settled by that very write, or belongs to another: either way we are done.
        """
        lease, claims = self._lease, self._engine.claims
        new = new_token()
        rotated = self._insist(
            lambda: self._database.retrying(
                lambda connection: claims.rotate(connection, lease.run_id, old, new)
            )
        )
        if not rotated:
            lease.is_lost = True
            self._engine.leases.remove(lease)
            raise LeaseLost
        lease.token = new
        return new

    def _is_there(self, entry: JournalEntry) -> bool:
        """The entry was written before its answer was lost. One that settles is gone with its token, if it was."""
        if entry.settlement is not None or not entry.executions:
            return False
        row = entry.executions[0]

        def find() -> tuple[str, str | None] | None:
            with self._database.read() as connection:
                return row_mark(connection, entry.run_id, row.position)

        found = self._insist(find)
        if row.state is ExecutionState.IN_PROGRESS:
            # A checkpoint: the row may be there from the one before.
            return bool(found == (row.state, row.result))
        return found is not None and found[0] not in UNFINISHED

    def _look_at_requests(self) -> tuple[int, str | None]:
        row = self._insist(self._look)
        return (0, None) if row is None else (row.wakeups, row.stop_request)

    def _insist(self, work: Callable[[], Any]) -> Any:
        """Do it, waiting as long as the database cannot be reached and the worker's grace lasts."""
        pause = 0.02
        while True:
            try:
                return work()
            except (AnswerLost, WriteLockBusy, DBAPIError) as error:
                if not isinstance(error, WriteLockBusy) and not self._database.is_connection_error(error):
                    raise
                if self._place.is_abandoned():
                    raise LeaseLost from error
                _log.warning(
                    "the database cannot be reached; waiting",
                    extra={"action": "journal.wait", "run_id": str(self._lease.run_id)},
                )
                time.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)


def _cut_off(lost: AnswerLost) -> StoreError:
    return StoreError(
        f"the database ends the connection at this write, again and again, and takes others: {lost}. Perhaps it is "
        "larger than the server allows (max_allowed_packet on MariaDB): store less, or raise that limit."
    )
