"""A run's journal for readers: one value for each entry, with what is stored in it decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from stepwell.errors import Undecodable
from stepwell.serialization import Codec
from stepwell.store.reads import history
from stepwell.store.rows import ExecutionRow
from stepwell.texts import details_of

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["StepExecution", "decoded", "stored_journal"]


@dataclass(frozen=True, slots=True)
class StepExecution:
    """One entry of a run's journal: an attempt at a step, a wait, or a person's command.

    A value that cannot be decoded here (its class is gone, or was never loaded) does not break the journal that it
    stands in: in its place is the ``Undecodable`` error that says why.

    Attributes:
        position: Its number in the run's journal.
        name: The step, or the command.
        key: What tells repeated calls apart; the name of an awaited signal.
        kind: ``step``, ``signal``, ``gate``, ``poll``, ``recovery`` and so on.
        attempt: Which attempt at the step, from 1.
        state: ``scheduled``, ``in_progress``, ``completed``, ``failed``, ``canceled`` or ``skipped``.
        outcome: How it ended, such as ``success`` or ``retried``; None before that.
        result: What the step returned; a signal's payload. Records are ``RecordRef``s.
        cursor: Where a resumable step stood at its last checkpoint.
        continues_from: The position of the entry that it goes on from.
        scheduled_for: The instant that it waits for, or has waited for.
        started_at: When its body began.
        finished_at: When it was over.
        superseded_at: When a rewind took it back; it counts no more.
        error_class: The dotted name of the error's class.
        error_message: The error's text.
        traceback: Where it was raised.
        worker: Who wrote the entry.
        details: What else is known, such as who gave a command (``by``) and why (``reason``).
    """

    position: int
    name: str
    key: str | None
    kind: str
    attempt: int
    state: str
    outcome: str | None
    result: Any
    cursor: Any
    continues_from: int | None
    scheduled_for: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    superseded_at: datetime | None
    error_class: str | None
    error_message: str | None
    traceback: str | None
    worker: str | None
    details: Mapping[str, Any]


def stored_journal(engine: Stepwell, run_id: UUID) -> list[ExecutionRow]:
    """The journal as the database has it, in its order: for those who have not loaded the author's classes."""
    with engine.reading() as connection:
        return history(connection, run_id)


def decoded(row: ExecutionRow, codec: Codec) -> StepExecution:
    """The entry with its values decoded."""
    return StepExecution(
        position=row.position,
        name=row.name,
        key=row.key,
        kind=row.kind,
        attempt=row.attempt,
        state=row.state,
        outcome=row.outcome,
        result=_value(codec, row.result, f"result of {row.kind} {row.name!r}"),
        cursor=_value(codec, row.cursor, f"cursor of {row.kind} {row.name!r}"),
        continues_from=row.continues_from,
        scheduled_for=row.scheduled_for,
        started_at=row.started_at,
        finished_at=row.finished_at,
        superseded_at=row.superseded_at,
        error_class=row.error_class,
        error_message=row.error_message,
        traceback=row.traceback,
        worker=row.worker,
        details=details_of(row.details),
    )


def _value(codec: Codec, text: str | None, what: str) -> Any:
    if text is None:
        return None
    try:
        return codec.loads(text, what=what)
    except Undecodable as error:
        return error
