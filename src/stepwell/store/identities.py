"""Who holds an identity, and how a new run takes the place of an open one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, delete, update

from stepwell.errors import InvalidTransition
from stepwell.requests import StopRequest
from stepwell.states import TERMINAL, Reason, RunState
from stepwell.store.commands import Commands
from stepwell.store.reads import find_by_identity, find_run
from stepwell.store.rows import RunRow
from stepwell.store.schema import runs

__all__ = ["Replacement", "discard", "holder_of", "take_place"]

_HEAL_POLL: Final = timedelta(seconds=30)
_AT_ONCE: Final = 500


def holder_of(connection: Connection, run_id: UUID, workflow: str, digest: str | None) -> RunRow | None:
    """The run with this id, or else the one that holds the identity; None when it is free. Locks nothing."""
    found = find_run(connection, run_id)
    if found is None and digest is not None:
        found = find_by_identity(connection, workflow, digest)
    return found


def discard(connection: Connection, run_ids: Iterable[UUID]) -> None:
    """Take back runs that were inserted in this very transaction."""
    ids = sorted(run_ids)
    for start in range(0, len(ids), _AT_ONCE):
        connection.execute(delete(runs).where(runs.c.id.in_(ids[start : start + _AT_ONCE])))


@dataclass(frozen=True, slots=True)
class Replacement:
    """What the newcomer has to wait for.

    Attributes:
        after_id: The run that must be over first; None if nobody holds it.
        wake_at: When to look by itself whether that is so, should nobody tell.
    """

    after_id: UUID | None = None
    wake_at: datetime | None = None

    def columns(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of the newcomer's row that differ for it."""
        if self.after_id is None:
            return {}
        return {
            "state": RunState.AWAITING.value,
            "reason": Reason.PREDECESSOR.value,
            "lane": None,
            "due_at": None,
            "wake_at": max(self.wake_at or row["created_at"], row["wake_at"] or row["created_at"]),
            "after_id": self.after_id,
        }


def take_place(
    connection: Connection, commands: Commands, holder_id: UUID, newcomer_id: UUID, now: datetime
) -> Replacement:
    """Cancel the holder of an identity, or, while somebody drives it, take the identity and ask it to end.

    The two never execute at the same time: the newcomer waits until the other one is over. A holder that still waits
    for a run before it hands its place in that queue on.
    """
    try:
        holder = commands.lock(connection, holder_id, "cancel")
    except InvalidTransition:
        return Replacement()
    if holder.state in TERMINAL:
        return Replacement()
    if holder.state != RunState.RUNNING:
        commands.cancel(connection, holder_id, now, "replaced", None)
        if holder.after_id is None:
            return Replacement()
        predecessor = holder.after_id
    else:
        predecessor = holder_id
        connection.execute(update(runs).where(runs.c.id == holder_id).values(active_key=None))
    request = StopRequest("cancel", "replaced", at=now, successor=newcomer_id)
    asked = connection.execute(
        update(runs)
        .where(runs.c.id == predecessor, runs.c.finished_at.is_(None))
        .values(stop_request=request.text(), wakeups=runs.c.wakeups + 1)
    )
    # One that is over by now holds nobody up.
    return Replacement(predecessor, now + _HEAL_POLL) if asked.rowcount else Replacement()
