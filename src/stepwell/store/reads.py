"""Questions about runs that change nothing: what the run handle, queries and the command line look at.

Every function takes an open connection first. Conditions are written so that the indexes of ``schema`` can
serve them: those are partial where the database can, and a planner uses a partial index only where the
question visibly implies the index's own condition.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, bindparam, func, or_, select

from stepwell.states import ATTENTION, TERMINAL, UNFINISHED, Kind, RunState
from stepwell.store.rows import EXECUTION, RUN, SIGNAL, ExecutionRow, Orphans, QueueDepth, RunRow, SignalRow
from stepwell.store.schema import executions, runs, signals

__all__ = [
    "Order",
    "RunFilter",
    "count_runs",
    "find_by_identity",
    "find_orphans",
    "find_run",
    "history",
    "last_end",
    "list_runs",
    "open_entries",
    "queue_depths",
    "run_ids",
    "signals_of",
]


class Order(StrEnum):
    """In which order runs are listed; a run's id tells the order of creation."""

    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are meant.

    Every field that is not None narrows the choice; an empty collection matches nothing.

    Attributes:
        ids: These runs only.
        workflows: Runs of these workflows, by name.
        states: Runs in these states.
        hero: Runs about this record: its stored type and id.
        step: Runs that stand at this step.
        digest: Runs that hold the identity with this digest.
        key: Runs started with this key, finished ones included. No index serves it: combine it with others.
        changed_before: Runs whose state has not changed since this instant. Finishing a step and going on
            with the next one at once is no change of state.
    """

    ids: Collection[UUID] | None = None
    workflows: Collection[str] | None = None
    states: Collection[str] | None = None
    hero: tuple[str, str] | None = None
    step: str | None = None
    digest: str | None = None
    key: str | None = None
    changed_before: datetime | None = None


_FIND_RUN: Final = select(*RUN.columns).where(runs.c.id == bindparam("id"))
_FIND_BY_IDENTITY: Final = select(*RUN.columns).where(
    runs.c.workflow == bindparam("workflow"), runs.c.active_key == bindparam("digest")
)
_LAST_END: Final = select(func.max(executions.c.finished_at)).where(
    executions.c.run_id == bindparam("id"),
    executions.c.kind.not_in([Kind.COMMAND.value, Kind.RECOVERY.value, Kind.CONTEXT.value]),
)
_HISTORY: Final = (
    select(*EXECUTION.columns).where(executions.c.run_id == bindparam("id")).order_by(executions.c.position)
)
_OPEN_ENTRIES: Final = (
    select(*EXECUTION.columns)
    .where(
        executions.c.run_id.in_(bindparam("ids", expanding=True)),
        executions.c.state.in_([state.value for state in UNFINISHED]),
        executions.c.superseded_at.is_(None),
    )
    .order_by(executions.c.run_id, executions.c.position)
)
_SIGNALS: Final = select(*SIGNAL.columns).where(signals.c.run_id == bindparam("id")).order_by(signals.c.id)
_QUEUE_DEPTHS: Final = (
    select(runs.c.lane, runs.c.priority, func.count(), func.min(runs.c.due_at))
    .where(runs.c.lane.is_not(None))
    .group_by(runs.c.lane, runs.c.priority)
    .order_by(runs.c.lane, runs.c.priority)
)


def find_run(connection: Connection, run_id: UUID) -> RunRow | None:
    """The run with this id, or None."""
    return RUN.one(connection.execute(_FIND_RUN, {"id": run_id}).first())


def find_by_identity(connection: Connection, workflow: str, digest: str) -> RunRow | None:
    """The run that holds this identity now, or None when it is free."""
    return RUN.one(connection.execute(_FIND_BY_IDENTITY, {"workflow": workflow, "digest": digest}).first())


def list_runs(
    connection: Connection,
    wanted: RunFilter,
    order: Order = Order.NEWEST,
    limit: int | None = None,
    offset: int = 0,
) -> list[RunRow]:
    """The runs that are meant, in order of creation.

    Args:
        connection: An open connection.
        wanted: Which runs.
        order: Newest first, by default.
        limit: At most so many; None for all.
        offset: How many to leave out at the beginning.
    """
    question = _narrowed(select(*RUN.columns), wanted).order_by(_by_creation(wanted, order))
    if limit is not None:
        question = question.limit(limit)
    if offset:
        question = question.offset(offset)
    return RUN.all(connection.execute(question))


def count_runs(connection: Connection, wanted: RunFilter) -> int:
    """How many runs are meant."""
    return int(connection.execute(_narrowed(select(func.count()).select_from(runs), wanted)).scalar_one())


def run_ids(connection: Connection, wanted: RunFilter, limit: int, after: UUID | None = None) -> list[UUID]:
    """A page of the ids of the runs that are meant, in ascending order: the order in which runs are locked.

    Args:
        connection: An open connection.
        wanted: Which runs.
        limit: At most so many.
        after: The last id of the page before. Paging by it ends, whatever can be done about the runs.
    """
    question = _narrowed(select(runs.c.id), wanted).order_by(_by_creation(wanted, Order.OLDEST)).limit(limit)
    if after is not None:
        question = question.where(runs.c.id > after)
    return list(connection.execute(question).scalars())


def history(connection: Connection, run_id: UUID) -> list[ExecutionRow]:
    """A run's journal, in its order, superseded entries included."""
    return EXECUTION.all(connection.execute(_HISTORY, {"id": run_id}))


def last_end(connection: Connection, run_id: UUID) -> datetime | None:
    """When a worker last ended a step or a wait of the run; None if none has."""
    found: datetime | None = connection.execute(_LAST_END, {"id": run_id}).scalar_one()
    return found


def open_entries(connection: Connection, run_ids: Collection[UUID]) -> dict[UUID, list[ExecutionRow]]:
    """What these runs are at: the entries of waits and of long bodies that are not over, each run's in its order."""
    found: dict[UUID, list[ExecutionRow]] = {run_id: [] for run_id in run_ids}
    if found:
        for row in EXECUTION.all(connection.execute(_OPEN_ENTRIES, {"ids": list(found)})):
            found[row.run_id].append(row)
    return found


def signals_of(connection: Connection, run_id: UUID) -> list[SignalRow]:
    """A run's mailbox in the order of sending, what was read already included."""
    return SIGNAL.all(connection.execute(_SIGNALS, {"id": run_id}))


def queue_depths(connection: Connection) -> list[QueueDepth]:
    """How many runs wait for a worker, for each queue and priority that has any."""
    return [QueueDepth(*row) for row in connection.execute(_QUEUE_DEPTHS)]


def find_orphans(connection: Connection, limit: int = 1000) -> Orphans:
    """Count the journal entries and signals whose run is gone: without foreign keys, nothing else would tell.

    Reads the whole journal's key once if there are few, so it is for a person's check and not for a worker.

    Args:
        connection: An open connection.
        limit: Stop counting here, for each of the two.
    """

    def count(table: Table) -> int:
        has_run = select(runs.c.id).where(runs.c.id == table.c.run_id).exists()
        found = select(table.c.run_id).where(~has_run).limit(limit).subquery()
        return int(connection.execute(select(func.count()).select_from(found)).scalar_one())

    return Orphans(executions=count(executions), signals=count(signals), limit=limit)


def _by_creation(wanted: RunFilter, order: Order) -> ColumnElement[Any]:
    key: ColumnElement[Any] = runs.c.id
    if wanted.states is not None and _FEW.issuperset(wanted.states):
        # Asked for a few among millions in the order of the primary key, planners like to walk that key
        # through all the finished ones. An expression they cannot walk: they take the other index, and sort.
        key = func.coalesce(key, key)
    return key.desc() if order is Order.NEWEST else key.asc()


def _narrowed(question: Select[Any], wanted: RunFilter) -> Select[Any]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.ids is not None:
        conditions.append(runs.c.id.in_(sorted(wanted.ids)))
    if wanted.workflows is not None:
        conditions.append(runs.c.workflow.in_(sorted(wanted.workflows)))
    if wanted.states is not None:
        conditions.append(_in_states({str(state) for state in wanted.states}))
    if wanted.hero is not None:
        hero_type, hero_id = wanted.hero
        conditions += [runs.c.hero_id == hero_id, runs.c.hero_type == hero_type]
    for column, value in (("current_step", wanted.step), ("active_key", wanted.digest), ("key", wanted.key)):
        if value is not None:
            conditions.append(runs.c[column] == value)
    if wanted.changed_before is not None:
        conditions.append(runs.c.changed_at < wanted.changed_before)
    return question.where(*conditions)


_SETTLED: Final[ColumnElement[bool]] = next(
    index.dialect_options["sqlite"]["where"]
    for index in runs.indexes
    if index.name == "ix_stepwell_runs_settled"
)
"""The condition of the index over runs that are stopped or over, word for word: SQLite compares the words."""

_FEW: Final = ATTENTION | {RunState.READY, RunState.RUNNING}
"""States that few runs are in at any time, next to all that are parked or over."""

_MARKED: Final = {
    RunState.READY.value: runs.c.lane.is_not(None),
    RunState.RUNNING.value: runs.c.lease_expires_at.is_not(None),
    RunState.WAITING.value: runs.c.wake_at.is_not(None),
}
"""The column that is set in a live state, and whose index therefore holds exactly those runs."""


def _in_states(states: set[str]) -> ColumnElement[bool]:
    """The state condition, together with what makes it plain to the planner which index holds the answer."""
    named = runs.c.state.in_(sorted(states))
    settled = states & {str(state) for state in ATTENTION | TERMINAL}
    marks = [_MARKED[state] for state in sorted(states & _MARKED.keys())]
    if settled == states:
        return and_(named, _SETTLED) if states else named
    if len(marks) == len(states):
        return and_(named, or_(*marks))
    return named
