"""Who may drive a run: looking for work, taking it, keeping it, giving it back, and taking it from the dead.

A worker's tick is one cheap read, then at most two bounded writes, then the claims. Every worker does it; there is
no scheduler and no reaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Select, Update, bindparam, case, exists, func, select, update

from stepwell.states import RunState
from stepwell.store.dialects import Dialect
from stepwell.store.rows import RUN, RunRow
from stepwell.store.schema import runs, signals
from stepwell.store.types import UID

__all__ = ["Claims", "Look", "Renewal"]

_SLEEPERS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Look:
    """What one cheap read tells a worker.

    Attributes:
        has_ready: Something is due in one of its lanes.
        next_wake_at: The earliest instant for which a run is parked.
        next_expiry_at: The earliest expiry of a lease.
        oldest_pending_at: The oldest signal whose wake has not happened.
    """

    has_ready: bool
    next_wake_at: datetime | None
    next_expiry_at: datetime | None
    oldest_pending_at: datetime | None


@dataclass(frozen=True, slots=True)
class Renewal:
    """What became of one held lease.

    Attributes:
        is_ours: The token is still the run's (renewed, or locked just now).
        is_renewed: The expiry was moved; a row that was locked is to be tried again.
        stop_request: What somebody asks of the run, as stored text.
    """

    is_ours: bool
    stop_request: str | None = None
    is_renewed: bool = True


class Claims:
    """The statements about leases, built once for a dialect; each method takes an open connection."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._returning = dialect.updates_return_rows
        self._look = _look()
        self._claim = _claim(dialect) if self._returning else _locked(_due(RUN.columns, dialect), dialect)
        self._promote = _promote(dialect)

    # -- taking -------------------------------------------------------------------------------------------------

    def look(self, connection: Connection, lanes: Sequence[str]) -> Look:
        """What there is to do: one read over the heads of four small indexes."""
        row = connection.execute(self._look, {"lanes": list(lanes)}).one()
        return Look(bool(row[0]), row[1], row[2], row[3])

    def promote(self, connection: Connection, now: datetime) -> int:
        """Make runs whose instant has come ready, 500 at most; answer how many."""
        if self._returning:
            return int(connection.execute(self._promote, {"now": now, "limit": _SLEEPERS_AT_ONCE}).rowcount)
        due = _locked(_sleepers(self._dialect), self._dialect)
        ids = list(connection.execute(due, {"now": now, "limit": _SLEEPERS_AT_ONCE}).scalars())
        if ids:
            connection.execute(_WAKE_BY_ID, {"ids": ids, "now": now})
        return len(ids)

    def claim(
        self,
        connection: Connection,
        lane: str,
        limit: int,
        *,
        owner: str,
        token: UUID,
        now: datetime,
        until: datetime,
    ) -> list[RunRow]:
        """Take up to ``limit`` due runs of a lane in their order, under one fresh token.

        Durability: the token is made by the caller, so a claim whose answer was lost is found again by it.
        """
        values = {
            "from_lane": lane,
            "limit": limit,
            "owner": owner,
            "token": token,
            "at": now,
            "until": until,
        }
        if self._returning:
            taken = RUN.all(connection.execute(self._claim, values))
        else:
            taken = RUN.all(connection.execute(self._claim, {"from_lane": lane, "limit": limit}))
            if taken:
                connection.execute(_TAKE_BY_ID, {**values, "ids": [run.id for run in taken]})
                taken = [_as_taken(run, owner, token, now, until) for run in taken]
        # RETURNING has no order.
        return sorted(taken, key=lambda run: (run.priority, run.due_at or now, run.id))

    def claim_one(
        self, connection: Connection, run_id: UUID, *, owner: str, token: UUID, now: datetime, until: datetime
    ) -> RunRow | None:
        """Take this run if it is due; None if it is not, or another has it (foreign executors, tests)."""
        values = {"ids": [run_id], "owner": owner, "token": token, "at": now, "until": until}
        connection.execute(_TAKE_BY_ID, values)
        found = connection.execute(_BY_TOKEN, {"token": token, "id": run_id}).first()
        return RUN.one(found)

    def taken(self, connection: Connection, token: UUID) -> list[RunRow]:
        """The runs that a claim with this token took, for when its answer was lost."""
        return RUN.all(connection.execute(_TAKEN_BY, {"token": token}))

    # -- keeping and giving back --------------------------------------------------------------------------------

    def renew(
        self, connection: Connection, held: Sequence[tuple[UUID, UUID]], until: datetime
    ) -> dict[UUID, Renewal]:
        """Move the expiry of the leases ``(run, token)`` ahead; answer what became of each, by run.

        A locked row is being written by its own activation, most likely: it is passed over, and is not lost.
        """
        if self._dialect.skips_locked_rows:
            locked = _locked(_HELD, self._dialect)
            free = list(connection.execute(locked, _pairs(held)).scalars())
        else:
            free = [run_id for run_id, _ in held]
        if free:
            keep = set(free)
            pairs = _pairs([pair for pair in held if pair[0] in keep])
            connection.execute(_RENEW, {**pairs, "until": until})
        seen = connection.execute(_HELD_NOW, _pairs(held))
        renewed = set(free)
        answers = {row[0]: Renewal(True, row[1], row[0] in renewed) for row in seen}
        return {run_id: answers.get(run_id, Renewal(False, None, False)) for run_id, _ in held}

    def release(
        self, connection: Connection, held: Sequence[tuple[UUID, UUID]], now: datetime, reason: str
    ) -> int:
        """Give leases back, due at once; no attempt and no recovery is counted."""
        return int(connection.execute(_RELEASE, {**_pairs(held), "at": now, "why": reason}).rowcount)

    def put_back(
        self, connection: Connection, held: Sequence[tuple[UUID, UUID]], now: datetime
    ) -> dict[UUID, str]:
        """Give back leases of runs that nobody has begun with: they keep their place in the queue.

        Answers what has been asked of them meanwhile, as stored text, by run.
        """
        values = {**_pairs(held), "at": now}
        connection.execute(_PUT_BACK, values)
        # Asked even if nothing was changed: the first answer may have been lost.
        return {row[0]: row[1] for row in connection.execute(_ASKED, {"ids": values["ids"]})}

    def rotate(self, connection: Connection, run_id: UUID, old: UUID, new: UUID) -> bool:
        """Exchange the token of a lease that is ours; False when it no longer is.

        Waits for the row lock of a transaction whose answer was lost: afterwards that one has either committed or
        never will. Harmless to repeat.
        """
        return connection.execute(_ROTATE, {"run": run_id, "old": old, "new": new}).rowcount == 1

    def standing(self, connection: Connection, run_id: UUID) -> Any:
        """A run's ``lease_token``, ``wakeups`` and ``stop_request`` as they are now; None if it is gone."""
        return connection.execute(_STANDING, {"run": run_id}).first()


# -- statements ---------------------------------------------------------------------------------------------------


def _look() -> Select[Any]:
    ready = exists().where(runs.c.lane.in_(bindparam("lanes", expanding=True)))
    return select(
        ready,
        select(func.min(runs.c.wake_at)).where(runs.c.wake_at.is_not(None)).scalar_subquery(),
        select(func.min(runs.c.lease_expires_at))
        .where(runs.c.lease_expires_at.is_not(None))
        .scalar_subquery(),
        select(func.min(signals.c.pending_at)).where(signals.c.pending_at.is_not(None)).scalar_subquery(),
    )


def _due(columns: Sequence[Any], dialect: Dialect) -> Select[Any]:
    # The order must be the index's, without the column that is given: MariaDB sorts for that, and a sort locks
    # every row that it looks at.
    question = (
        select(*columns)
        .where(runs.c.lane == bindparam("from_lane"))
        .order_by(runs.c.priority, runs.c.due_at, runs.c.id)
        .limit(bindparam("limit"))
    )
    return dialect.through(question, "ix_stepwell_runs_lane")


def _sleepers(dialect: Dialect) -> Select[Any]:
    question = (
        select(runs.c.id)
        .where(runs.c.wake_at <= bindparam("now"))
        .order_by(runs.c.wake_at)
        .limit(bindparam("limit"))
    )
    return dialect.through(question, "ix_stepwell_runs_wake")


def _locked(question: Select[Any], dialect: Dialect) -> Select[Any]:
    return question.with_for_update(skip_locked=True, of=runs) if dialect.skips_locked_rows else question


def _chosen(change: Update, question: Select[Any], dialect: Dialect) -> Update:
    """The change for the rows that a question chooses, locked where there are row locks."""
    if not dialect.skips_locked_rows:
        return change.where(runs.c.id.in_(question.scalar_subquery()))
    chosen = _locked(question, dialect).cte("chosen")
    return change.where(runs.c.id == chosen.c.id)


_TAKEN: Final[dict[str, Any]] = {
    "state": RunState.RUNNING.value,
    "reason": None,
    "lane": None,
    "wake_at": None,
    "lease_expires_at": bindparam("until"),
    "lease_token": bindparam("token"),
    "lease_owner": bindparam("owner"),
    "started_at": func.coalesce(runs.c.started_at, bindparam("at")),
    "changed_at": bindparam("at"),
}
_WOKEN: Final[tuple[tuple[Any, Any], ...]] = (
    # In this order: MariaDB assigns from left to right, and due_at takes the old wake_at.
    (runs.c.state, RunState.READY.value),
    (runs.c.lane, runs.c.queue),
    (runs.c.due_at, runs.c.wake_at),
    (runs.c.wake_at, None),
    (runs.c.changed_at, bindparam("now")),
)
# A token belongs to one claim, so that a run in the one set under a token of the other is a lease that we hold.
_UNDER: Final = runs.c.lease_token.in_(bindparam("tokens", expanding=True))
_AMONG: Final = runs.c.id.in_(bindparam("ids", expanding=True))

_TAKE_BY_ID: Final = update(runs).where(_AMONG, runs.c.lane.is_not(None)).values(_TAKEN)
_WAKE_BY_ID: Final = update(runs).where(_AMONG).ordered_values(*_WOKEN)
_BY_TOKEN: Final = select(*RUN.columns).where(
    runs.c.id == bindparam("id"), runs.c.lease_token == bindparam("token")
)
_TAKEN_BY: Final = select(*RUN.columns).where(
    runs.c.lease_expires_at.is_not(None), runs.c.lease_token == bindparam("token")
)
_HELD: Final = select(runs.c.id).where(_AMONG, _UNDER).order_by(runs.c.id)
_HELD_NOW: Final = select(runs.c.id, runs.c.stop_request).where(_AMONG, _UNDER)
# A renewal that was sent earlier and arrives late must not shorten the lease again.
_UNTIL: Final = bindparam("until", type_=runs.c.lease_expires_at.type)
_RENEW: Final = (
    update(runs)
    .where(_AMONG, _UNDER)
    .values(lease_expires_at=case((runs.c.lease_expires_at > _UNTIL, runs.c.lease_expires_at), else_=_UNTIL))
)
_FREED: Final[dict[str, Any]] = {
    "state": RunState.READY.value,
    "lane": runs.c.queue,
    "changed_at": bindparam("at"),
    "lease_expires_at": None,
    "lease_token": None,
    "lease_owner": None,
}
_FREE: Final = update(runs).where(_AMONG, _UNDER).values(_FREED)
_RELEASE: Final = _FREE.values(reason=bindparam("why"), due_at=bindparam("at"))
_PUT_BACK: Final = _FREE.values(
    due_at=func.coalesce(runs.c.due_at, bindparam("at", type_=runs.c.due_at.type))
)
_ASKED: Final = select(runs.c.id, runs.c.stop_request).where(
    _AMONG, runs.c.lease_token.is_(None), runs.c.stop_request.is_not(None)
)
_STANDING: Final = select(runs.c.lease_token, runs.c.wakeups, runs.c.stop_request).where(
    runs.c.id == bindparam("run")
)
_ROTATE: Final = (
    update(runs)
    .where(
        runs.c.id == bindparam("run"),
        runs.c.lease_token.in_([bindparam("old", type_=UID), bindparam("new", type_=UID)]),
        runs.c.state == RunState.RUNNING.value,
    )
    .values(lease_token=bindparam("new"))
)


def _claim(dialect: Dialect) -> Update:
    return _chosen(update(runs).values(_TAKEN), _due([runs.c.id], dialect), dialect).returning(*RUN.columns)


def _promote(dialect: Dialect) -> Update:
    return _chosen(update(runs).ordered_values(*_WOKEN), _sleepers(dialect), dialect)


def _as_taken(run: RunRow, owner: str, token: UUID, now: datetime, until: datetime) -> RunRow:
    return replace(
        run,
        state=RunState.RUNNING.value,
        reason=None,
        lane=None,
        wake_at=None,
        lease_expires_at=until,
        lease_token=token,
        lease_owner=owner,
        started_at=run.started_at or now,
        changed_at=now,
    )


def _pairs(held: Sequence[tuple[UUID, UUID]]) -> dict[str, Any]:
    return {"ids": [run_id for run_id, _ in held], "tokens": list({token for _, token in held})}
