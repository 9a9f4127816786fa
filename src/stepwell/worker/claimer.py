"""The worker's tick: look, promote, recover, claim. Every worker does it; nobody schedules it."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection

from stepwell.clock import SystemClock
from stepwell.engine.activation import replayed
from stepwell.engine.engine import Stepwell
from stepwell.engine.leases import Lease
from stepwell.ids import new_token
from stepwell.logs import facts_logger
from stepwell.observer import EventKind
from stepwell.states import RunState
from stepwell.store.claims import Look
from stepwell.store.database import AnswerLost
from stepwell.store.journal import HistoryRow, histories
from stepwell.store.mailbox import PENDING_AFTER, sweep_pending
from stepwell.store.recovery import Recovered, recover_expired
from stepwell.store.rows import RunRow
from stepwell.worker.contact import Contact

__all__ = ["Claimed", "Claimer"]

_log = facts_logger(__name__)
_LOOK_SECONDS: Final = 0.25
_OVERDUE_SECONDS: Final = 0.25
_CONTENDED_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that is ours to drive."""

    run: RunRow
    lease: Lease
    history: Sequence[HistoryRow]


class Claimer:
    """Finds work and takes it.

    Args:
        engine: The engine.
        queues: The queues to claim from, in the order of preference.
        worker: The worker's name.
        contact: Says whether leases may be taken from others.
        poll_seconds: The longest time between two looks.
    """

    def __init__(
        self, engine: Stepwell, queues: Sequence[str], worker: str, contact: Contact, poll_seconds: float
    ) -> None:
        self._engine = engine
        self._queues = tuple(queues)
        self._worker = worker
        self._contact = contact
        self._poll_seconds = poll_seconds
        self._looked_at = 0.0
        self._lost_claims: dict[UUID, float] = {}
        self._held: list[Claimed] = []
        self.has_backlog = False

    def tick(self, room: int) -> tuple[list[Claimed], float]:
        """Take up to ``room`` runs; answer them, and for how many seconds there is nothing to do.

        What was claimed before an error is handed over by the next tick, or by :meth:`take_held`: its leases
        are renewed, so that nobody else would ever take it.

        Raises:
            AnswerLost: The database cannot be reached.
        """
        self._find_lost_claims()
        look = self._look()
        has_changed = look is not None and self._housekeep(look)
        if look is None or look.has_ready or has_changed:
            self._claim(room)
        else:
            # No write for nothing: on SQLite an idle worker would take everybody's write lock at each look.
            self.has_backlog = False
        claimed = self.take_held()
        if claimed or look is None or has_changed:
            return claimed, 0.0
        return claimed, self._idle_seconds(look)

    def take_held(self) -> list[Claimed]:
        """The runs that are ours and that no tick has handed over yet."""
        held, self._held = self._held, []
        return held

    def _look(self) -> Look | None:
        """The cheap read; under load it is left out most of the time."""
        now = time.monotonic()
        if self.has_backlog and now - self._looked_at < _LOOK_SECONDS:
            return None
        self._looked_at = now
        with self._engine.database.read() as connection:
            return self._engine.claims.look(connection, self._queues)

    def _idle_seconds(self, look: Look) -> float:
        if look.has_ready:
            # Somebody else holds them just now, or they came after the claim.
            return _CONTENDED_SECONDS
        now = self._engine.now()
        nearest = min((at for at in (look.next_wake_at, look.next_expiry_at) if at is not None), default=None)
        idle = self._poll_seconds * random.uniform(0.8, 1.0)
        if self._lost_claims:
            idle = min(idle, _OVERDUE_SECONDS)
        if nearest is None:
            return idle
        if nearest > now:
            return min(idle, (nearest - now).total_seconds())
        # Overdue, and not for us to take just now: locked, or a lease while our contact is unproven.
        return min(idle, _OVERDUE_SECONDS)

    # -- other people's work ---------------------------------------------------------------------------------

    def _housekeep(self, look: Look) -> bool:
        """Do what is overdue; answer whether the tables have changed since the look."""
        engine, now = self._engine, self._engine.now()
        changed = 0
        if look.next_wake_at is not None and look.next_wake_at <= now:
            changed += engine.database.repeating(lambda connection: engine.claims.promote(connection, now))
        if look.next_expiry_at is not None and look.next_expiry_at <= now and self._contact.is_proven():
            changed += self._recover(now)
        if look.oldest_pending_at is not None and look.oldest_pending_at <= now - PENDING_AFTER:
            changed += engine.database.repeating(lambda connection: sweep_pending(connection, now))
        return changed > 0

    def _recover(self, now: datetime) -> int:
        engine = self._engine

        def recover(connection: Connection) -> list[Recovered]:
            # Asked again: waiting for SQLite's write lock may have been an outage too.
            if not self._contact.is_proven():
                return []
            return recover_expired(
                connection,
                engine.database.dialect,
                now,
                max_recoveries=engine.max_recoveries,
                random=engine.chance,
            )

        taken = engine.database.repeating(recover)
        for recovered in taken:
            _log.warning(
                "a run was taken from a lost worker",
                extra={
                    "action": "claim.recover",
                    "run_id": str(recovered.run_id),
                    "workflow": recovered.workflow,
                    "owner": recovered.owner,
                    "recoveries": recovered.recoveries,
                    "has_failed": recovered.has_failed,
                },
            )
            engine.observe(
                EventKind.RECOVER,
                recovered.run_id,
                recovered.workflow,
                worker=recovered.owner,
                recoveries=recovered.recoveries,
                has_failed=recovered.has_failed,
            )
            if recovered.has_failed:
                engine.children.ended(recovered.run_id, recovered.parent_id, RunState.FAILED)
        return len(taken)

    # -- claiming --------------------------------------------------------------------------------------------

    def _claim(self, room: int) -> None:
        for queue in self._queues:
            wanted = room - len(self._held)
            if wanted <= 0:
                break
            self._claim_from(queue, wanted)
        self.has_backlog = len(self._held) >= room

    def _claim_from(self, queue: str, wanted: int) -> None:
        engine, token = self._engine, new_token()
        now, asked_at = engine.now(), engine.clock.monotonic()
        # On a clock that a test moves, a run may be claimed twice at one instant.
        first_at = now if isinstance(engine.clock, SystemClock) else None

        def claim(connection: Connection) -> tuple[list[RunRow], dict[UUID, list[HistoryRow]]]:
            runs = engine.claims.claim(
                connection, queue, wanted, owner=self._worker, token=token, now=now, until=now + engine.lease
            )
            return runs, _histories(connection, runs, first_at)

        try:
            runs, known = engine.database.retrying(claim, is_single=True)
        except AnswerLost:
            # It may have been committed: the token is ours, so that we find the runs again by it.
            self._lost_claims[token] = asked_at + engine.lease.total_seconds()
            raise
        self._hold(runs, known, asked_at)

    def _find_lost_claims(self) -> None:
        """Hold what the claims took whose answers were lost; one may still be under way, and is looked for again."""
        for token, expires_at in list(self._lost_claims.items()):
            with self._engine.database.read() as connection:
                runs = self._engine.claims.taken(connection, token)
                known = histories(connection, [run.id for run in runs], replayed(runs))
            if runs or self._engine.clock.monotonic() > expires_at:
                del self._lost_claims[token]
            # How long ago the claim was done is not known: the first body asks for a renewal.
            self._hold(runs, known, asked_at=-self._engine.lease.total_seconds())

    def _hold(self, runs: Sequence[RunRow], known: dict[UUID, list[HistoryRow]], asked_at: float) -> None:
        for run in runs:
            token: Any = run.lease_token
            lease = Lease(run.id, token, asked_at + self._engine.lease.total_seconds())
            self._engine.leases.add(lease)
            self._held.append(Claimed(run, lease, known.get(run.id, ())))
            self._engine.observe(EventKind.CLAIM, run.id, run.workflow, worker=self._worker, queue=run.queue)


def _histories(
    connection: Connection, runs: Sequence[RunRow], first_at: datetime | None
) -> dict[UUID, list[HistoryRow]]:
    """The journals of the runs in one query; one whose first claim is this, at ``first_at``, has none."""
    begun = [run.id for run in runs if run.started_at != first_at or run.wakeups]
    return histories(connection, begun, replayed(runs))
