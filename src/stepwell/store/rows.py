"""Rows of the three tables as plain values, for everything that looks at runs.

Nothing is decoded here: JSON stays text and states stay strings, so a row that this version of the code
cannot understand is still a row, and never breaks the list that it stands in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Table

from stepwell.store.schema import executions, runs, signals

__all__ = [
    "EXECUTION",
    "RUN",
    "SIGNAL",
    "ExecutionRow",
    "Orphans",
    "QueueDepth",
    "RowShape",
    "RunRow",
    "SignalRow",
]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run, as the database has it."""

    id: UUID
    workflow: str
    version: int
    key: str | None
    active_key: str | None
    hero_type: str | None
    hero_id: str | None
    state: str
    reason: str | None
    args: str
    context: str | None
    result: str | None
    queue: str
    priority: int
    lane: str | None
    due_at: datetime | None
    wake_at: datetime | None
    lease_expires_at: datetime | None
    lease_token: UUID | None
    lease_owner: str | None
    wakeups: int
    stop_request: str | None
    current_step: str | None
    recoveries: int
    error_class: str | None
    error_message: str | None
    parent_id: UUID | None
    branch: str | None
    child_key: str | None
    open_branch: str | None
    after_id: UUID | None
    continues_from: UUID | None
    definition: str | None
    options: str | None
    details: str | None
    created_at: datetime
    started_at: datetime | None
    changed_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """One entry of a run's journal, as the database has it."""

    run_id: UUID
    position: int
    name: str
    key: str | None
    kind: str
    attempt: int
    state: str
    outcome: str | None
    args_digest: str | None
    result: str | None
    context_delta: str | None
    cursor: str | None
    continues_from: int | None
    superseded_at: datetime | None
    scheduled_for: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    error_class: str | None
    error_message: str | None
    traceback: str | None
    worker: str | None
    details: str | None


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One message in a run's mailbox, as the database has it."""

    id: int
    run_id: UUID
    name: str | None
    idempotency_key: str | None
    payload: str | None
    sent_at: datetime
    pending_at: datetime | None
    consumed_at: datetime | None
    consumed_by: int | None


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """What waits for a worker in one queue at one priority."""

    queue: str
    priority: int
    ready: int
    oldest_due: datetime | None


@dataclass(frozen=True, slots=True)
class Orphans:
    """How many rows belong to runs that are not there.

    Attributes:
        executions: Entries of the journals of such runs.
        signals: Signals to such runs.
        limit: Where counting stopped: a number as high as this means "at least so many".
    """

    executions: int
    signals: int
    limit: int


class RowShape(Generic[R]):
    """The columns to select for a row class, or to return from an UPDATE, and the way back to a value.

    Columns are taken by name and kept in the order of the class's fields, so that making a value is one call
    with positional arguments: no lookup by name for each cell.

    Attributes:
        columns: What to pass to ``select()`` or ``returning()``.
        make: Makes a value of a row's cells, given in this order.
    """

    def __init__(self, table: Table, cls: type[R], **expressions: ColumnElement[Any]) -> None:
        self.make: Any = cls
        self.columns: Final[tuple[ColumnElement[Any], ...]] = tuple(
            expressions.get(field.name, table.c[field.name])
            for field in fields(cls)  # type: ignore[arg-type]  # a row class is a dataclass
        )

    def one(self, row: Row[Any] | None) -> R | None:
        """The value of a row with exactly these columns, or None."""
        value: R | None = None if row is None else self.make(*row)
        return value

    def all(self, rows: Iterable[Row[Any]]) -> list[R]:
        """The values of rows with exactly these columns."""
        make = self.make
        return [make(*row) for row in rows]


RUN: Final = RowShape(runs, RunRow)
EXECUTION: Final = RowShape(executions, ExecutionRow)
SIGNAL: Final = RowShape(signals, SignalRow)
