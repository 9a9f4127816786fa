"""A worker's hands on the current thread: they claim what is due and drive it, one run after the other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

from sqlalchemy import Connection

from stepwell.engine.activation import activate, replayed
from stepwell.engine.engine import Stepwell
from stepwell.engine.leases import Lease
from stepwell.engine.store_journal import Place, StoreJournal
from stepwell.execution.outcome import Activated
from stepwell.ids import new_token
from stepwell.store.journal import HistoryRow, histories
from stepwell.store.mailbox import PENDING_AFTER, sweep_pending
from stepwell.store.reads import queue_depths
from stepwell.store.rows import RunRow
from stepwell.testing.crashes import MortalJournal, Trap, WorkerDied
from stepwell.worker.claimer import Claimed, Claimer
from stepwell.worker.contact import Contact
from stepwell.worker.loop_thread import LoopThread
from stepwell.worker.watchdog import Watchdog

__all__ = ["Hands"]

_NAME: Final = "workbench"
_INTERVAL: Final = 10.0
_POLL: Final = 1.0


class _Proven(Contact):
    """Time stands still between two calls, so the database has always answered: leases may be taken."""

    def is_proven(self) -> bool:
        return True


class Hands:
    """Claims and drives the runs of an engine, of whatever queue.

    Args:
        engine: The engine.

    Attributes:
        trap: Where the worker dies.
    """

    def __init__(self, engine: Stepwell) -> None:
        self._engine = engine
        self._contact = _Proven(_INTERVAL)
        self._loop = LoopThread()
        self._watchdog = Watchdog()
        self.trap: Trap | None = None

    def close(self) -> None:
        """End the threads that asynchronous steps and limits have started."""
        self._loop.close()
        self._watchdog.close()

    # -- claiming -----------------------------------------------------------------------------------

    def claim_next(self) -> Claimed | None:
        """Claim the run that is due first; None if none is due now."""
        claimed = self._tick(1)
        return claimed[0] if claimed else None

    def claim(self, run_id: UUID) -> Claimed | None:
        """Claim this run; None if it is not due now."""
        self._tick(0)
        engine, token, now = self._engine, new_token(), self._engine.now()

        def take(connection: Connection) -> tuple[RunRow | None, Sequence[HistoryRow]]:
            row = engine.claims.claim_one(
                connection, run_id, owner=_NAME, token=token, now=now, until=now + engine.lease
            )
            return row, histories(connection, [run_id], replayed([row] if row else []))[run_id]

        row, history = engine.database.retrying(take)
        if row is None:
            return None
        lease = Lease(run_id, token, engine.clock.monotonic() + engine.lease.total_seconds())
        engine.leases.add(lease)
        return Claimed(row, lease, history)

    def next_instant(self) -> datetime | None:
        """When the next run wakes, or a dead worker's next lease runs out; None if nothing lies ahead."""
        with self._engine.database.read() as connection:
            look = self._engine.claims.look(connection, [_NAME])
        return min((at for at in (look.next_wake_at, look.next_expiry_at) if at is not None), default=None)

    def _tick(self, room: int) -> list[Claimed]:
        """Do what is overdue and claim, until there is something or nothing is left to do."""
        while True:
            claimer = Claimer(self._engine, self._queues(), _NAME, self._contact, _POLL)
            claimed, idle_seconds = claimer.tick(room)
            if claimed or idle_seconds > 0:
                return claimed

    def _queues(self) -> Sequence[str]:
        """The queues that have something to do; before that, what was sent without a wake is delivered."""
        engine = self._engine
        with engine.database.read() as connection:
            is_pending = engine.claims.look(connection, [_NAME]).oldest_pending_at is not None
            queues = [depth.queue for depth in queue_depths(connection)]
        if is_pending:
            # A worker leaves it to the sender for a second; here nobody else will do it.
            at = engine.now() + PENDING_AFTER
            engine.database.repeating(lambda connection: sweep_pending(connection, at))
            return self._queues()
        return list(dict.fromkeys(queues)) or [_NAME]

    # -- driving ------------------------------------------------------------------------------------

    def drive(self, claimed: Claimed, *, is_one_step: bool = False) -> Activated | None:
        """Drive a claimed run until it parks or ends.

        Args:
            claimed: The run.
            is_one_step: Give it back after one attempt at a step.

        Raises:
            WorkerDied: The trap has sprung.
        """
        place = Place(
            worker=_NAME,
            should_yield=lambda _seconds, _steps: is_one_step,
            is_draining=lambda: False,
            is_abandoned=lambda: False,
            run_coroutine=self._loop.run,
            run_limited=self._watchdog.run,
            call_home=self._loop.call_home,
        )
        trap = self.trap
        make = StoreJournal if trap is None else partial(MortalJournal, trap)
        activated = activate(self._engine, claimed.run, claimed.lease, place, claimed.history, make)
        if trap is not None and trap.is_sprung:
            raise WorkerDied(trap)
        return activated
