"""Reading a run's journal for a driver, and showing the body that is running."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Text,
    and_,
    bindparam,
    case,
    exists,
    false,
    insert,
    literal,
    not_,
    or_,
    select,
    type_coerce,
    update,
)

from stepwell.entries import Execution
from stepwell.states import UNFINISHED, ExecutionState, Kind, Outcome, RunState
from stepwell.store.rows import RowShape
from stepwell.store.schema import executions, runs
from stepwell.store.types import UID

__all__ = ["HistoryRow", "histories", "row_mark", "show_body"]


# Not frozen: thousands are made for one replay, and a frozen one takes three times as long to make.
@dataclass(slots=True)
class HistoryRow:
    """What a driver needs of a journal row: no tracebacks."""

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
    started_at: datetime | None
    scheduled_for: datetime | None
    finished_at: datetime | None
    error_class: str | None
    error_message: str | None
    details: str | None


_IS_OPEN: Final = executions.c.state.in_([state.value for state in UNFINISHED])


def _only(condition: ColumnElement[bool], *columns: Column[Any]) -> dict[str, ColumnElement[Any]]:
    return {column.name: case((condition, column)).label(column.name) for column in columns}


# A declared step answers nothing once it is over: what it made is not asked for again.
_DECLARED: Final = RowShape(
    executions,
    HistoryRow,
    **_only(executions.c.kind != Kind.STEP.value, executions.c.result),
    **_only(_IS_OPEN, executions.c.context_delta),
    **_only(false(), executions.c.args_digest, executions.c.error_class, executions.c.error_message),
)
# A replay is answered by every row; how often a step was tried, and why, matters of those that did not succeed.
_REPLAYED: Final = RowShape(
    executions,
    HistoryRow,
    **_only(
        # Which keys are made anew, and when a failed run was resumed, is told by what people did.
        or_(executions.c.state != ExecutionState.COMPLETED.value, executions.c.kind == Kind.COMMAND.value),
        executions.c.details,
    ),
    **_only(
        or_(executions.c.kind != Kind.STEP.value, executions.c.state != ExecutionState.COMPLETED.value),
        executions.c.scheduled_for,
        executions.c.started_at,
    ),
)
# As the driver gives it: the few runs are told apart, not made into UUIDs row by row.
_RUN: Final = type_coerce(executions.c.run_id, Text()).label("run_id")


# What a tick of a repetition knew is known to the next one, which was written with its end.
_IS_PAST_TICK: Final = and_(
    executions.c.kind == Kind.TICK.value,
    executions.c.state.in_((ExecutionState.COMPLETED.value, ExecutionState.SKIPPED.value)),
    executions.c.outcome != Outcome.CONTINUED.value,
)


def _select(shape: RowShape[HistoryRow], *conditions: ColumnElement[bool]) -> Select[Any]:
    return (
        select(_RUN, *shape.columns)
        .where(
            executions.c.run_id.in_(bindparam("ids", expanding=True)),
            executions.c.superseded_at.is_(None),
            *conditions,
        )
        .order_by(executions.c.run_id, executions.c.position)
    )


_SELECT_DECLARED: Final = _select(_DECLARED)
_SELECT_REPLAYED: Final = _select(_REPLAYED, not_(_IS_PAST_TICK))
_MARK: Final = select(executions.c.state, executions.c.result).where(
    executions.c.run_id == bindparam("run"), executions.c.position == bindparam("at")
)


def histories(
    connection: Connection, run_ids: Collection[UUID], replayed: Collection[UUID] = ()
) -> dict[UUID, list[HistoryRow]]:
    """The journals of several runs, each in its order, superseded rows left out.

    One query for the runs of declared workflows and one for those in ``replayed``, which need more of each row.
    """
    found: dict[UUID, list[HistoryRow]] = {run_id: [] for run_id in run_ids}
    for shape, statement, ids in (
        (_DECLARED, _SELECT_DECLARED, [run_id for run_id in found if run_id not in replayed]),
        (_REPLAYED, _SELECT_REPLAYED, [run_id for run_id in found if run_id in replayed]),
    ):
        if ids:
            of: dict[object, list[HistoryRow]] = {run_id.hex: found[run_id] for run_id in ids}
            of |= {run_id: found[run_id] for run_id in ids}
            make = shape.make
            for row in connection.execute(statement, {"ids": ids}):
                run_id, *values = row
                of[run_id].append(make(*values))
    return found


def row_mark(connection: Connection, run_id: UUID, position: int) -> tuple[str, str | None] | None:
    """One row's state, and its result, which tells its checkpoints apart; None if there is no such row."""
    found = connection.execute(_MARK, {"run": run_id, "at": position}).first()
    return None if found is None else (found[0], found[1])


_IS_OURS: Final = exists().where(
    runs.c.id == bindparam("run", type_=UID),
    runs.c.lease_token == bindparam("token", type_=UID),
    runs.c.state == RunState.RUNNING.value,
)
_REFRESH: Final = (
    update(executions)
    .where(
        executions.c.run_id == bindparam("run"),
        executions.c.position == bindparam("at"),
        executions.c.state.in_([state.value for state in UNFINISHED]),
        _IS_OURS,
    )
    .values(
        state="in_progress",
        attempt=bindparam("new_attempt"),
        started_at=bindparam("began"),
        worker=bindparam("by"),
        details=bindparam("told"),
    )
)
_SHOWN: Final[Sequence[str]] = (
    "run_id",
    "position",
    "name",
    "key",
    "kind",
    "args_digest",
    "attempt",
    "state",
    "started_at",
    "cursor",
    "continues_from",
    "worker",
    "details",
)


# In run() nobody knows beforehand which call comes next: the row says where the run was last.
_STANDS_AT: Final = (
    update(runs)
    .where(
        runs.c.id == bindparam("run"),
        runs.c.lease_token == bindparam("token"),
        runs.c.state == RunState.RUNNING.value,
        runs.c.current_step.is_distinct_from(bindparam("step")),
    )
    .values(current_step=bindparam("step"))
)


def show_body(
    connection: Connection,
    run_id: UUID,
    token: UUID,
    row: Execution,
    worker: str,
    details: str | None,
    *,
    is_called: bool = False,
) -> None:
    """Make a long body visible as an ``in_progress`` row at the position that its end will take.

    Nothing is written when the token is no longer the run's, or when the body has ended in the meantime.

    Args:
        connection: An open connection.
        run_id: The run.
        token: Its lease token.
        row: The body's row.
        worker: Who runs it.
        details: How far it has come, as text.
        is_called: It is called from ``run()``: the run is said to stand there. Of a declared workflow this is said by
            the end of each step alone, since the run goes on from there.
    """
    if is_called:
        connection.execute(_STANDS_AT, {"run": run_id, "token": token, "step": row.name})
    # What the next attempt is to know stays, whatever this one tells of itself.
    told = details or row.details
    if details is not None and row.details is not None:
        told = json.dumps({**json.loads(row.details), **json.loads(details)})
    values: dict[str, Any] = {
        "run": run_id,
        "token": token,
        "at": row.position,
        "began": row.started_at,
        "new_attempt": row.attempt,
        "by": worker,
        "told": told,
    }
    if connection.execute(_REFRESH, values).rowcount:
        return
    source = select(
        literal(run_id, UID),
        literal(row.position),
        literal(row.name),
        literal(row.key, executions.c.key.type),
        literal(row.kind.value),
        literal(row.args_digest, executions.c.args_digest.type),
        literal(row.attempt),
        literal("in_progress"),
        literal(row.started_at, executions.c.started_at.type),
        # What an execution took over is lost with it otherwise, should it end before its first checkpoint.
        literal(row.cursor, executions.c.cursor.type),
        literal(row.continues_from, executions.c.continues_from.type),
        literal(worker),
        literal(told, executions.c.details.type),
    ).where(
        exists().where(
            runs.c.id == run_id, runs.c.lease_token == token, runs.c.state == RunState.RUNNING.value
        ),
        ~exists().where(executions.c.run_id == run_id, executions.c.position == row.position),
    )
    connection.execute(insert(executions).from_select(list(_SHOWN), source))
