"""The worker's tick: look, promote, recover, claim. Every worker does it; nobody schedules it."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection

from stepwell.engine.engine import Stepwell
from stepwell.engine.leases import Lease
from stepwell.ids import new_token
from stepwell.store.claims import Look
from stepwell.store.database import AnswerLost
from stepwell.store.journal import HistoryRow, histories
from stepwell.store.mailbox import PENDING_AFTER, sweep_pending
from stepwell.store.recovery import Recovered, recover_expired
from stepwell.store.rows import RunRow
from stepwell.worker.contact import Contact

__all__ = ["Claimed", "Claimer"]

_log = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 0.25


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
        self._lost_claims: list[UUID] = []
        self.has_backlog = False

    def tick(self, room: int) -> tuple[list[Claimed], float]:
        """Take up to ``room`` runs; answer them, and for how many seconds there is nothing to do.

        Raises:
            AnswerLost: The database cannot be reached.
        """
        claimed = self._find_lost_claims()
        look = self._look()
        if look is not None:
            self._housekeep(look)
        if room > len(claimed):
            claimed += self._claim(room - len(claimed))
        self._contact.made()
        if claimed or look is None:
            return claimed, 0.0
        return claimed, self._idle_seconds(look)

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
            return 0.02
        now = self._engine.now()
        nearest = min((at for at in (look.next_wake_at, look.next_expiry_at) if at is not None), default=None)
        idle = self._poll_seconds * random.uniform(0.8, 1.0)
        if nearest is None:
            return idle
        until = (nearest - now).total_seconds()
        # An expired lease that we may not take yet is no reason to spin.
        return min(idle, max(until, 0.001)) if until > -1 else idle

    # -- other people's work ------------------------------------------------------------------------------------

    def _housekeep(self, look: Look) -> None:
        engine, now = self._engine, self._engine.now()
        if look.next_wake_at is not None and look.next_wake_at <= now:
            engine.database.repeating(lambda connection: engine.claims.promote(connection, now))
        if look.next_expiry_at is not None and look.next_expiry_at <= now and self._contact.is_proven():
            self._recover(now)
        if look.oldest_pending_at is not None and look.oldest_pending_at <= now - PENDING_AFTER:
            engine.database.repeating(lambda connection: sweep_pending(connection, now))

    def _recover(self, now: datetime) -> None:
        engine = self._engine

        def recover(connection: Connection) -> list[Recovered]:
            return recover_expired(
                connection,
                engine.database.dialect,
                now,
                max_recoveries=engine.max_recoveries,
                random=random.random,
            )

        for recovered in engine.database.repeating(recover):
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

    # -- claiming -----------------------------------------------------------------------------------------------

    def _claim(self, room: int) -> list[Claimed]:
        claimed: list[Claimed] = []
        for queue in self._queues:
            wanted = room - len(claimed)
            if wanted <= 0:
                break
            claimed += self._claim_from(queue, wanted)
        self.has_backlog = len(claimed) >= room
        return claimed

    def _claim_from(self, queue: str, wanted: int) -> list[Claimed]:
        engine, token = self._engine, new_token()
        now, asked_at = engine.now(), engine.clock.monotonic()

        def claim(connection: Connection) -> tuple[list[RunRow], dict[UUID, list[HistoryRow]]]:
            runs = engine.claims.claim(
                connection, queue, wanted, owner=self._worker, token=token, now=now, until=now + engine.lease
            )
            return runs, _histories(connection, runs, now)

        try:
            runs, known = engine.database.retrying(claim, is_single=True)
        except AnswerLost:
            # It may have been committed: the token is ours, so that we find the runs again by it.
            self._lost_claims.append(token)
            raise
        return self._hold(runs, known, asked_at)

    def _find_lost_claims(self) -> list[Claimed]:
        found: list[Claimed] = []
        while self._lost_claims:
            asked_at = self._engine.clock.monotonic()
            with self._engine.database.read() as connection:
                runs = self._engine.claims.taken(connection, self._lost_claims[-1])
                known = histories(connection, [run.id for run in runs])
            self._lost_claims.pop()
            # How long ago the claim was is not known: the first body asks for a renewal.
            found += self._hold(runs, known, asked_at - self._engine.lease.total_seconds())
        return found

    def _hold(
        self, runs: Sequence[RunRow], known: dict[UUID, list[HistoryRow]], asked_at: float
    ) -> list[Claimed]:
        claimed = []
        for run in runs:
            token: Any = run.lease_token
            lease = Lease(run.id, token, asked_at + self._engine.lease.total_seconds())
            self._engine.leases.add(lease)
            claimed.append(Claimed(run, lease, known.get(run.id, ())))
        return claimed


def _histories(
    connection: Connection, runs: Sequence[RunRow], now: datetime
) -> dict[UUID, list[HistoryRow]]:
    """The journals of the runs that have one, in one query: a run that was just claimed for the first time has none."""
    begun = [run.id for run in runs if run.started_at != now or run.wakeups]
    return histories(connection, begun)


