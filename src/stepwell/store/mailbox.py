"""Signals, wakes and changes of the context: what is sent to a run is a row, kept until somebody reads it.

Inside a caller's transaction a signal only inserts; the wake that follows is a short transaction of its own, and a
signal whose wake never came carries ``pending_at`` and is swept up by any worker's tick.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, bindparam, case, func, insert, select, update

from stepwell.requests import CONTEXT_MAIL
from stepwell.states import TERMINAL, RunState
from stepwell.store.children import successor_of
from stepwell.store.dialects import Dialect
from stepwell.store.rows import RUN, SIGNAL, RunRow, SignalRow
from stepwell.store.schema import runs, signals
from stepwell.store.types import UID, Micros
from stepwell.texts import details_of

__all__ = [
    "PENDING_AFTER",
    "Message",
    "consume",
    "context_and_changes",
    "details_with_unread",
    "find_sent",
    "forward",
    "hand_over",
    "insert_signal",
    "settle_pending",
    "sweep_pending",
    "unread",
    "unread_changes",
    "unread_names",
    "wake",
]

_AT_ONCE: Final = 200
PENDING_AFTER: Final = timedelta(seconds=1)

_IS_AWAITING: Final = runs.c.state == RunState.AWAITING.value
# Inside CASE a parameter does not get its type from the column.
_AT: Final = bindparam("at", type_=Micros())
_WAKE: Final = (
    update(runs)
    .where(runs.c.id.in_(bindparam("ids", expanding=True)))
    .ordered_values(
        # The state changes last: MariaDB assigns from left to right, and the others ask for the old one.
        (runs.c.wakeups, runs.c.wakeups + 1),
        (runs.c.lane, case((_IS_AWAITING, runs.c.queue), else_=runs.c.lane)),
        (runs.c.due_at, case((_IS_AWAITING, _AT), else_=runs.c.due_at)),
        (runs.c.wake_at, case((_IS_AWAITING, None), else_=runs.c.wake_at)),
        (runs.c.changed_at, case((_IS_AWAITING, _AT), else_=runs.c.changed_at)),
        (runs.c.state, case((_IS_AWAITING, RunState.READY.value), else_=runs.c.state)),
    )
)
_INSERT: Final = insert(signals)
_HAS_KEY: Final = select(signals.c.id).where(
    signals.c.run_id == bindparam("run"),
    signals.c.name == bindparam("signal"),
    signals.c.idempotency_key == bindparam("key"),
)
_UNREAD: Final = (
    select(*SIGNAL.columns)
    .where(
        signals.c.run_id == bindparam("run"),
        signals.c.name == bindparam("signal"),
        signals.c.consumed_at.is_(None),
    )
    .order_by(signals.c.id)
    .limit(1)
)
_COUNT_UNREAD: Final = (
    select(signals.c.name, func.count())
    .where(
        signals.c.run_id == bindparam("run"),
        # A wake has none.
        signals.c.name != CONTEXT_MAIL,
        signals.c.consumed_at.is_(None),
    )
    .group_by(signals.c.name)
    .order_by(signals.c.name)
)
_COUNT_CHANGES: Final = select(func.count()).where(
    signals.c.run_id == bindparam("run"), signals.c.name == CONTEXT_MAIL, signals.c.consumed_at.is_(None)
)
_CONTEXT: Final = (
    select(runs.c.context, runs.c.state, signals.c.payload)
    .select_from(
        runs.outerjoin(
            signals,
            (signals.c.run_id == runs.c.id)
            & (signals.c.name == CONTEXT_MAIL)
            & signals.c.consumed_at.is_(None),
        )
    )
    .where(runs.c.id == bindparam("run", type_=UID))
    .order_by(signals.c.id)
)
_CONSUME: Final = (
    update(signals)
    .where(signals.c.id == bindparam("signal_id"), signals.c.consumed_at.is_(None))
    .values(consumed_at=bindparam("at"), consumed_by=bindparam("position"))
)
_FIND: Final = select(*RUN.columns).where(runs.c.id == bindparam("run", type_=UID))
_UNREAD_IDS: Final = select(signals.c.id).where(
    signals.c.run_id == bindparam("run"), signals.c.consumed_at.is_(None)
)
_HAND_OVER: Final = (
    update(signals)
    .where(signals.c.id.in_(bindparam("ids", expanding=True)))
    .values(run_id=bindparam("successor", type_=UID))
)
_PENDING: Final = (
    select(signals.c.id, signals.c.run_id)
    .where(signals.c.pending_at <= bindparam("before"))
    .order_by(signals.c.pending_at)
    .limit(_AT_ONCE)
)
_SETTLE: Final = (
    update(signals).where(signals.c.id.in_(bindparam("ids", expanding=True))).values(pending_at=None)
)


def wake(connection: Connection, run_ids: Iterable[UUID], now: datetime) -> None:
    """Bump the runs' counters and make those ready that wait to be woken; a run that is over does not mind."""
    ids = sorted(run_ids)
    if ids:
        connection.execute(_WAKE, {"ids": ids, "at": now})


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent to a run; without a name it is a wake that must not be lost."""

    run_id: UUID
    name: str | None
    payload: str | None = None
    idempotency_key: str | None = None


def insert_signal(
    connection: Connection,
    dialect: Dialect,
    message: Message,
    now: datetime,
    *,
    is_pending: bool = False,
    is_new: bool = False,
) -> int | None:
    """Put a message into the run's mailbox and answer its id; None if one with this idempotency key is there already.

    Args:
        connection: An open connection.
        dialect: Its dialect.
        message: The message.
        now: When it is sent.
        is_pending: Its wake comes after the caller's commit; until then any worker may do it instead.
        is_new: Its key has just been made: nobody can have sent one with it.
    """
    key = message.idempotency_key
    is_keyed = key is not None and not is_new
    if is_keyed and find_sent(connection, message) is not None:
        return None
    values: dict[str, Any] = {
        "run_id": message.run_id,
        "name": message.name,
        "payload": message.payload,
        "idempotency_key": key,
        "sent_at": now,
        "pending_at": now if is_pending else None,
    }
    if is_keyed and not dialect.insert_if_new(connection, signals, values):
        return None
    if is_keyed:
        return int(connection.execute(_HAS_KEY, _named(message)).scalar_one())
    inserted = connection.execute(_INSERT, values).inserted_primary_key
    return None if inserted is None else int(inserted[0])


def find_sent(connection: Connection, message: Message) -> int | None:
    """The id of the signal of this name with this idempotency key in the run's mailbox; None if there is none."""
    if message.idempotency_key is None:
        return None
    found = connection.execute(_HAS_KEY, _named(message)).scalar()
    return None if found is None else int(found)


def _named(message: Message) -> dict[str, Any]:
    return {"run": message.run_id, "signal": message.name, "key": message.idempotency_key}


def unread(connection: Connection, run_id: UUID, name: str) -> SignalRow | None:
    """The oldest signal of this name that nobody has read."""
    return SIGNAL.one(connection.execute(_UNREAD, {"run": run_id, "signal": name}).first())


def unread_names(connection: Connection, run_id: UUID) -> dict[str, int]:
    """How many signals of each name nobody has read."""
    return {name: int(count) for name, count in connection.execute(_COUNT_UNREAD, {"run": run_id})}


def unread_changes(connection: Connection, run_id: UUID) -> int:
    """How many changes of its context no driver of the run has taken up."""
    return int(connection.execute(_COUNT_CHANGES, {"run": run_id}).scalar_one())


def context_and_changes(connection: Connection, run_id: UUID) -> tuple[str | None, list[str]] | None:
    """A run's context, and the changes of it that no driver has taken up yet; None if there is no such run.

    What has come too late for a run that is over changes nothing.
    """
    # In one query: between two of them a driver could take one up, and change the same value again.
    rows = connection.execute(_CONTEXT, {"run": run_id}).all()
    if not rows:
        return None
    is_over = rows[0].state in TERMINAL
    return rows[0].context, [row.payload for row in rows if row.payload is not None and not is_over]


def details_with_unread(connection: Connection, run: RunRow) -> str | None:
    """The details of a run that ends, with how many signals nobody has read, if there are any."""
    count = sum(unread_names(connection, run.id).values())
    if not count:
        return run.details
    return json.dumps({**details_of(run.details), "unread_signals": count})


def consume(connection: Connection, signal_id: int, position: int, now: datetime) -> bool:
    """Mark a signal as read by the journal row at ``position``; False if it was read already."""
    values = {"signal_id": signal_id, "at": now, "position": position}
    return connection.execute(_CONSUME, values).rowcount == 1


def settle_pending(connection: Connection, signal_ids: Iterable[int]) -> None:
    """Their wake has happened."""
    ids = list(signal_ids)
    if ids:
        connection.execute(_SETTLE, {"ids": ids})


def hand_over(connection: Connection, run_id: UUID, successor_id: UUID) -> int:
    """Give what is unread in a run's mailbox to the one that goes on in its place; answer how much that was."""
    # Read first and without locks: where a transaction is open that has sent something, MariaDB would wait for it.
    ids = list(connection.execute(_UNREAD_IDS, {"run": run_id}).scalars())
    if ids:
        connection.execute(_HAND_OVER, {"ids": ids, "successor": successor_id})
    return len(ids)


def forward(connection: Connection, run_id: UUID, now: datetime) -> UUID:
    """Where the mail of a run goes: to itself, or to the one that goes on in its place, which is woken if some came.

    A transaction that was open while the run was started over may have put something there since.
    """
    reader, successor = run_id, _successor(connection, run_id)
    while successor is not None:
        reader, successor = successor, _successor(connection, successor)
    if reader != run_id and hand_over(connection, run_id, reader):
        wake(connection, [reader], now)
    return reader


def _successor(connection: Connection, run_id: UUID) -> UUID | None:
    run = RUN.one(connection.execute(_FIND, {"run": run_id}).first())
    return None if run is None else successor_of(run)


def sweep_pending(connection: Connection, now: datetime) -> int:
    """Do the wakes of signals whose sender died between its commit and the wake; answer how many."""
    rows = connection.execute(_PENDING, {"before": now - PENDING_AFTER}).all()
    wake(connection, {row.run_id for row in rows}, now)
    settle_pending(connection, [row.id for row in rows])
    for run_id in {row.run_id for row in rows}:
        forward(connection, run_id, now)
    return len(rows)
