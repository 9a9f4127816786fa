"""What a command on a run changes in its journal. Each function takes the run's locked row."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, insert, select, update

from stepwell.errors import ResumeRefused
from stepwell.states import UNFINISHED, ExecutionState, Kind, Outcome, Reason, RunState
from stepwell.store.rows import RunRow
from stepwell.store.schema import executions
from stepwell.texts import details_of

__all__ = ["call_off", "is_just_rewound", "move_scheduled", "note", "supersede", "try_escaped_anew"]

_OPEN_STATES: Final = [state.value for state in UNFINISHED]
_NOWHERE: Final = 2**31 - 1
_OPEN: Final = (executions.c.run_id == bindparam("run"), executions.c.state.in_(_OPEN_STATES))
_CANCEL_OPEN: Final = (
    update(executions)
    .where(*_OPEN)
    .values(
        state=ExecutionState.CANCELED.value,
        outcome=Outcome.CANCELED.value,
        finished_at=bindparam("at"),
        result=None,
    )
)
_LOOKED_AT: Final = frozenset({Kind.SIGNAL, Kind.GATE, Kind.POLL})
_LAST: Final = (
    select(executions.c.kind, executions.c.name, executions.c.details)
    .where(executions.c.run_id == bindparam("run"))
    .order_by(executions.c.position.desc())
    .limit(1)
)
_SCHEDULED: Final = select(executions.c.position, executions.c.kind, executions.c.details).where(
    executions.c.run_id == bindparam("run"), executions.c.state == ExecutionState.SCHEDULED.value
)
_MOVE: Final = (
    update(executions)
    .where(executions.c.run_id == bindparam("run"), executions.c.position == bindparam("place"))
    .values(scheduled_for=bindparam("instant"), details=bindparam("told"))
)
_COUNTING: Final = (
    executions.c.run_id == bindparam("run"),
    executions.c.superseded_at.is_(None),
    # What a person did, or another run has handed over.
    executions.c.kind.not_in((Kind.COMMAND.value, Kind.CONTEXT.value)),
)
_FIRST_POSITION: Final = select(func.min(executions.c.position)).where(
    *_COUNTING, executions.c.name == bindparam("step")
)
_SUPERSEDE: Final = (
    update(executions)
    .where(*_COUNTING, executions.c.position >= bindparam("first"))
    .values(superseded_at=bindparam("at"))
)

_SUPERSEDE_ONE: Final = (
    update(executions)
    .where(*_COUNTING, executions.c.position == bindparam("place"))
    .values(superseded_at=bindparam("at"))
)
_ONE: Final = select(
    executions.c.kind,
    executions.c.name,
    executions.c.key,
    executions.c.args_digest,
    executions.c.details,
    executions.c.cursor,
    executions.c.context_delta,
).where(*_COUNTING, executions.c.position == bindparam("place"))
_CALLED_AFTER: Final = (
    select(executions.c.name)
    .where(
        *_COUNTING,
        executions.c.position > bindparam("place"),
        executions.c.kind.not_in([Kind.BODY.value, Kind.RECOVERY.value, Kind.CONTEXT.value]),
    )
    .order_by(executions.c.position)
)
_LAST_BODY_ERROR: Final = (
    select(executions.c.details)
    .where(
        *_COUNTING, executions.c.kind == Kind.BODY.value, executions.c.state == ExecutionState.FAILED.value
    )
    .order_by(executions.c.position.desc())
    .limit(1)
)


def note(connection: Connection, run: RunRow, verb: str, now: datetime, by: str | None, **more: Any) -> None:
    """A person did this to the run, just now."""
    connection.execute(
        insert(executions).values(
            run_id=run.id,
            position=_next_position(connection, run),
            name=verb,
            kind=Kind.COMMAND.value,
            attempt=1,
            state=ExecutionState.COMPLETED.value,
            outcome=Outcome.SUCCESS.value,
            finished_at=now,
            details=json.dumps({"by": by, "from": run.state, **more}),
        )
    )


def _next_position(connection: Connection, run: RunRow) -> int:
    last = select(func.coalesce(func.max(executions.c.position), 0)).where(executions.c.run_id == run.id)
    return int(connection.execute(last).scalar_one()) + 1


def call_off(connection: Connection, run: RunRow, now: datetime) -> None:
    """Nothing is waited for any more.

    A row in progress is left behind by a worker that gave the run back in the middle of a body.
    """
    connection.execute(_CANCEL_OPEN, {"run": run.id, "at": now})


def supersede(connection: Connection, run: RunRow, step: str, now: datetime) -> None:
    """What is recorded of a step, and of all that came after it began, counts no more; what people did stays."""
    first = connection.execute(_FIRST_POSITION, {"run": run.id, "step": step}).scalar()
    connection.execute(_SUPERSEDE, {"run": run.id, "at": now, "first": _NOWHERE if first is None else first})


def try_escaped_anew(connection: Connection, run: RunRow, now: datetime, verb: str) -> str | None:
    """If a recorded error has left ``run()`` and failed the run, its row counts no more: that call is made again.

    Returns:
        The name of that call.

    Raises:
        ResumeRefused: Others were called after it.
    """
    if run.state != RunState.FAILED:
        return None
    details = connection.execute(_LAST_BODY_ERROR, {"run": run.id}).scalar()
    escaped = details_of(details).get("escaped")
    if not isinstance(escaped, int):
        return None
    row = connection.execute(_ONE, {"run": run.id, "place": escaped}).first()
    later = list(connection.execute(_CALLED_AFTER, {"run": run.id, "place": escaped}).scalars())
    if row is not None and later:
        raise ResumeRefused(run.id, verb, row.name, later)
    connection.execute(_SUPERSEDE_ONE, {"run": run.id, "at": now, "place": escaped})
    told = {} if row is None or row.kind != Kind.CALL else details_of(row.details)
    former = told if "failure" in told else told.get("former")
    if row is not None and (former is not None or row.cursor is not None):
        # The call is made once more, and knows whom it called (somebody may have helped that one since), or how far
        # it had come, and what its checkpoints had changed.
        is_under_way = row.cursor is not None
        connection.execute(
            insert(executions).values(
                run_id=run.id,
                position=_next_position(connection, run),
                name=row.name,
                key=row.key,
                kind=row.kind,
                args_digest=row.args_digest,
                attempt=1,
                state=ExecutionState.SCHEDULED.value,
                details=None if former is None else json.dumps({"former": former}),
                cursor=row.cursor,
                continues_from=escaped if is_under_way else None,
                context_delta=row.context_delta if is_under_way else None,
            )
        )
    return None if row is None else str(row.name)


def is_just_rewound(connection: Connection, run: RunRow, step: str) -> bool:
    """The last thing in the journal is that the run goes on from this step: the command is said again."""
    last = connection.execute(_LAST, {"run": run.id}).first()
    if last is None or (last.kind, last.name) != (Kind.COMMAND, "resume"):
        return False
    return run.current_step == step and details_of(last.details).get("from_step") == step


def move_scheduled(connection: Connection, run: RunRow, instant: datetime) -> None:
    """Move what the run is parked for, and mark it: an instant that a person has set is not computed anew.

    An instant that is behind it, such as the wait of a step that polls by now, stays where it is.
    """
    rows = connection.execute(_SCHEDULED, {"run": run.id}).all()
    polls = [row for row in rows if row.kind == Kind.POLL] if run.reason in (Reason.POLL, None) else []
    for position, _, details in polls or [row for row in rows if row.kind not in _LOOKED_AT]:
        told = json.dumps({**details_of(details), "rescheduled": True})
        values = {"run": run.id, "place": position, "instant": instant, "told": told}
        connection.execute(_MOVE, values)
