"""Taking runs from workers that died: no one schedules this, every worker's tick does it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, bindparam, func, insert, select, update

from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from stepwell.store.dialects import Dialect
from stepwell.store.rows import RUN, RunRow
from stepwell.store.schema import executions, runs

__all__ = ["Recovered", "recover_expired"]

_AT_ONCE: Final = 100
_LONGEST_BACKOFF: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Recovered:
    """One run that was taken from a lost worker."""

    run_id: UUID
    workflow: str
    owner: str | None
    recoveries: int
    has_failed: bool
    parent_id: UUID | None = None


def recover_expired(
    connection: Connection,
    dialect: Dialect,
    now: datetime,
    *,
    max_recoveries: int,
    random: Callable[[], float],
) -> list[Recovered]:
    """Take up to 100 runs whose lease has expired from their workers.

    A recovered run becomes due again after 2ⁿ seconds (n losses in a row so far, jittered by half, five minutes at
    most), so that one that kills its workers soon dies alone and takes no neighbour with it. Above
    ``max_recoveries`` losses in a row without progress it fails as ``worker_lost``.

    Durability: the token is taken away in the same transaction; what the late worker still writes is refused.
    """
    expired = (
        select(*RUN.columns)
        .where(runs.c.lease_expires_at <= now)
        .order_by(runs.c.lease_expires_at)
        .limit(_AT_ONCE)
    )
    expired = dialect.through(expired, "ix_stepwell_runs_lease")
    if dialect.skips_locked_rows:
        expired = expired.with_for_update(skip_locked=True, of=runs)
    recovered = []
    for run in RUN.all(connection.execute(expired)):
        limit = _own_limit(run, max_recoveries)
        has_failed = run.recoveries + 1 > limit and run.stop_request is None
        change = _next(run, now, random, has_failed, limit)
        connection.execute(
            _TAKE_AWAY, {"run": run.id, "at": now, **{f"new_{name}": change[name] for name in change}}
        )
        _tell_lost(connection, run, now)
        recovered.append(
            Recovered(run.id, run.workflow, run.lease_owner, run.recoveries + 1, has_failed, run.parent_id)
        )
    return recovered


def _own_limit(run: RunRow, default: int) -> int:
    try:
        limit = json.loads(run.options or "{}").get("max_recoveries")
    except (ValueError, AttributeError):
        return default
    return limit if isinstance(limit, int) else default


def _next(
    run: RunRow, now: datetime, random: Callable[[], float], has_failed: bool, limit: int
) -> dict[str, Any]:
    values = {
        "state": RunState.WAITING.value,
        "reason": Reason.RECOVERING.value,
        "wake_at": now + _backoff(run.recoveries, random),
        "recoveries": run.recoveries + 1,
        "error_class": None,
        "error_message": None,
    }
    if run.stop_request is not None:
        # Whoever claims it next only has to honour the request: no body runs, so nothing is put off.
        values["wake_at"] = now
    elif has_failed:
        values.update(
            state=RunState.FAILED.value,
            reason=Reason.WORKER_LOST.value,
            wake_at=None,
            error_class="stepwell.WorkerLost",
            error_message=(
                f"{run.recoveries + 1} workers in a row were lost while they drove this run (limit {limit}); "
                f"the last was {run.lease_owner} at step {run.current_step!r}. "
                "See what kills them (memory, a crash in native code), then run.resume()."
            ),
        )
    return values


def _backoff(losses: int, random: Callable[[], float]) -> timedelta:
    whole = min(timedelta(seconds=2 ** min(losses, 16)), _LONGEST_BACKOFF)
    return whole * (0.5 + random())


_TAKE_AWAY: Final = (
    update(runs)
    .where(runs.c.id == bindparam("run"))
    .values(
        state=bindparam("new_state"),
        reason=bindparam("new_reason"),
        wake_at=bindparam("new_wake_at"),
        recoveries=bindparam("new_recoveries"),
        changed_at=bindparam("at"),
        error_class=bindparam("new_error_class"),
        error_message=bindparam("new_error_message"),
        lease_expires_at=None,
        lease_token=None,
        lease_owner=None,
    )
)
_LOSE_VISIBLE: Final = (
    update(executions)
    .where(executions.c.run_id == bindparam("run"), executions.c.state == ExecutionState.IN_PROGRESS.value)
    .values(
        state=ExecutionState.FAILED.value,
        outcome=Outcome.LOST.value,
        finished_at=bindparam("at"),
        # The mark of its last checkpoint is nobody's result.
        result=None,
        error_class="stepwell.WorkerLost",
        error_message=bindparam("message"),
    )
)
_LAST_POSITION: Final = select(func.coalesce(func.max(executions.c.position), 0)).where(
    executions.c.run_id == bindparam("run")
)


def _tell_lost(connection: Connection, run: RunRow, now: datetime) -> None:
    """Leave a trace in the journal: the row of the long step that was running, or one that says what is known."""
    message = f"worker {run.lease_owner} was lost"
    if connection.execute(_LOSE_VISIBLE, {"run": run.id, "at": now, "message": message}).rowcount:
        return
    position = connection.execute(_LAST_POSITION, {"run": run.id}).scalar_one()
    connection.execute(
        insert(executions).values(
            run_id=run.id,
            position=position + 1,
            name=run.current_step or run.workflow,
            kind=Kind.RECOVERY.value,
            attempt=run.recoveries + 1,
            state=ExecutionState.FAILED.value,
            outcome=Outcome.LOST.value,
            finished_at=now,
            error_class="stepwell.WorkerLost",
            error_message=message,
            worker=run.lease_owner,
        )
    )
