"""Who holds an identity, and how a new run takes the place of an open one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, or_, select, update

from stepwell.errors import InvalidTransition
from stepwell.states import Reason, RunState
from stepwell.store.commands import Commands, with_successor
from stepwell.store.dialects import Dialect
from stepwell.store.rows import RUN, RunRow
from stepwell.store.schema import runs

__all__ = ["Replacement", "holder_of", "take_place"]

_HEAL_POLL: Final = timedelta(seconds=30)


def holder_of(
    connection: Connection, dialect: Dialect, run_id: UUID, workflow: str, digest: str | None
) -> RunRow | None:
    """The run with this id, or else the one that holds the identity; None when it is free.

    Reads what is committed now, also in a caller's transaction that began before (MariaDB's REPEATABLE READ).
    """
    is_it = runs.c.id == run_id
    if digest is not None:
        is_it = or_(is_it, (runs.c.workflow == workflow) & (runs.c.active_key == digest))
    question = select(*RUN.columns).where(is_it)
    if dialect.skips_locked_rows:
        question = question.with_for_update(read=True, of=runs)
    found = RUN.all(connection.execute(question))
    return next((run for run in found if run.id == run_id), found[0] if found else None)


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
    if holder.state != RunState.RUNNING:
        commands.cancel(connection, holder_id, now, "replaced", None)
        if holder.after_id is None:
            return Replacement()
        predecessor = holder.after_id
    else:
        predecessor = holder_id
        connection.execute(update(runs).where(runs.c.id == holder_id).values(active_key=None))
    asked = connection.execute(
        update(runs)
        .where(runs.c.id == predecessor, runs.c.finished_at.is_(None))
        .values(stop_request=with_successor(now, newcomer_id), wakeups=runs.c.wakeups + 1)
    )
    # One that is over by now holds nobody up.
    return Replacement(predecessor, now + _HEAL_POLL) if asked.rowcount else Replacement()
