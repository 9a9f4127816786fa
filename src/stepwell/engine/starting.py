"""Starting runs: in a transaction of one's own or in the caller's, one or many, with the identity settled.

A start only inserts (``on_conflict="replace"`` excepted). Two starts of one identity meet in a unique index: the
second waits for the first one's transaction, then finds its run. Nothing is raised by the database on the way, so
that the caller's transaction stays usable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Connection

from stepwell.clock import later, require_aware, to_micros
from stepwell.definition.identity import RunKey, run_key
from stepwell.definition.registry import find_workflow
from stepwell.definition.starting import Call, Parentage, StartOptions
from stepwell.engine.heroes import hero_columns
from stepwell.engine.refusal import refusal
from stepwell.engine.run import Run
from stepwell.engine.transactions import Place, place_of
from stepwell.errors import DefinitionError, RunAlreadyExists, RunError, StoreError
from stepwell.ids import new_run_id
from stepwell.logs import facts_logger
from stepwell.observer import EventKind
from stepwell.states import Reason, RunState
from stepwell.store.identities import discard, holder_of, take_place
from stepwell.store.reads import find_run
from stepwell.store.rows import RunRow
from stepwell.store.schema import runs

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["ARGS_LIMIT", "Starts"]

_log: Final = facts_logger(__name__)
ARGS_LIMIT: Final = 1024 * 1024
_MOST_ROUNDS: Final = 10
_ROWS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class _Start:
    """One start, encoded.

    Attributes:
        replaced: The runs that gave way to it.
    """

    call: Call
    key: RunKey | None
    row: dict[str, Any]
    replaced: list[RunRow] = field(default_factory=list)

    @property
    def id(self) -> UUID:
        run_id: UUID = self.row["id"]
        return run_id


class Starts:
    """Starts runs of one engine."""

    def __init__(self, engine: Stepwell) -> None:
        self._engine = engine

    def one(self, call: Call, options: StartOptions, parentage: Parentage | None = None) -> Run:
        """Start one run (see ``Workflow.start``), maybe as the child of another."""
        mode = options.on_conflict or call.workflow.on_conflict
        place = self._place(options, is_single=mode != "replace")
        start = self._encode(call, options)
        if parentage is not None:
            start.row.update(
                id=parentage.run_id,
                parent_id=parentage.parent_id,
                branch=parentage.branch,
                open_branch=parentage.open_branch,
            )
        return self._all(place, [start], options)[0]

    def many(self, calls: Iterable[Call], options: StartOptions) -> list[Run]:
        """Start many runs in one transaction and few statements."""
        if options.key is not None:
            raise StoreError("start_many() cannot give one key= to many runs; use unique_by in the class.")
        place = self._place(options)
        starts = [self._encode(call, options) for call in calls]
        return self._all(place, starts, options) if starts else []

    def _place(self, options: StartOptions, *, is_single: bool = False) -> Place:
        place = place_of(self._engine, options, is_single=is_single)
        # A pending hero gets its primary key, which is part of the run's identity.
        place.flush()
        return place

    def _all(self, place: Place, starts: list[_Start], options: StartOptions) -> list[Run]:
        for name in {start.row["workflow"] for start in starts}:
            _warn_of_namesakes(name)
        # Repeated in a transaction of one's own when its answer is lost: the ids are ours, so that what was committed
        # after all is found again and not made twice.
        found = place.do(lambda connection: self._insert(connection, place, starts, options))
        ready = {
            run.queue for start, run in zip(starts, found, strict=True) if run.id == start.id and run.lane
        }
        place.inserted([start.id for start in starts])
        place.after_commit(lambda: self._wake(ready))
        replaced = [holder for start in starts for holder in start.replaced]
        if replaced:
            place.after_commit(lambda: self._tell_replaced(replaced))
        for start, run in zip(starts, found, strict=True):
            if run.id == start.id:
                self._engine.observe(EventKind.START, run.id, start.row["workflow"], queue=run.queue)
        return [
            Run(self._engine, run.id, created=run.id == start.id)
            for start, run in zip(starts, found, strict=True)
        ]

    def _wake(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self._engine.wake_queue(queue)

    # -- encoding -----------------------------------------------------------------------------------------------

    def _encode(self, call: Call, options: StartOptions) -> _Start:
        engine, cls = self._engine, call.workflow
        now = engine.now()
        at = _instant(options.at, now)
        key = run_key(call, options, engine.codec)
        hero = (None, None) if call.hero is None else hero_columns(call.hero, engine.codec)
        queue = options.queue or cls.queue
        first = cls.plan.first
        is_due = at is None or at <= now
        row = {
            "id": new_run_id(),
            "workflow": cls.workflow_name,
            "version": cls.version,
            "key": None if key is None else key.text,
            "active_key": None if key is None else key.digest,
            "hero_type": hero[0],
            "hero_id": hero[1],
            "state": (RunState.READY if is_due else RunState.WAITING).value,
            "reason": None if is_due else Reason.TIMER.value,
            "args": "{}"
            if not call.args
            else engine.codec.dumps(call.args, what="arguments", limit=ARGS_LIMIT),
            "queue": queue,
            "priority": cls.priority if options.priority is None else options.priority,
            "lane": queue if is_due else None,
            "due_at": now if is_due else None,
            "wake_at": None if is_due else at,
            "wakeups": 0,
            "current_step": None if cls.plan.is_procedural or first is None else first.name,
            "recoveries": 0,
            "after_id": None,
            "definition": cls.plan.fingerprint,
            "options": _options_text(cls, options, None if is_due else at),
            "created_at": now,
            "changed_at": now,
        }
        return _Start(call, key, row)

    # -- inserting ----------------------------------------------------------------------------------------------

    def _insert(
        self, connection: Connection, place: Place, starts: list[_Start], options: StartOptions
    ) -> list[RunRow]:
        # In the order of their keys, so that two batches with common keys do not wait for each other crosswise.
        ordered = sorted(starts, key=lambda start: (start.row["active_key"] or "", start.id))
        created: set[UUID] = set()
        for begin in range(0, len(ordered), _ROWS_AT_ONCE):
            rows = [start.row for start in ordered[begin : begin + _ROWS_AT_ONCE]]
            created |= self._engine.database.dialect.insert_runs(connection, rows)
        try:
            return [
                _Inserted.of(start.row)
                if start.id in created
                else self._settle(connection, place, start, options)
                for start in starts
            ]
        except RunAlreadyExists:
            # The caller's transaction may go on: a batch is there whole or not at all.
            discard(connection, created)
            raise

    def _settle(self, connection: Connection, place: Place, start: _Start, options: StartOptions) -> Any:
        """The row was not inserted: it is there already (a repeated start), or its identity is taken."""
        dialect = self._engine.database.dialect
        for _ in range(_MOST_ROUNDS):
            holder, row = self._holder(connection, place, start), start.row
            if holder is not None:
                if holder.id == start.id:
                    return holder
                is_content = self._answers(start, holder, options)
                if _is_ancestor(connection, holder, row.get("parent_id")):
                    raise RunError(
                        f"run {holder.id} is called by itself, directly or through others, and would wait for ever: "
                        "call it with other arguments, or begin anew with self.start_over(...)."
                    )
                if is_content:
                    return holder
                row = self._row_instead_of(connection, start, holder)
            # Whoever held the identity has finished since the insert, or gives way to us.
            if dialect.insert_if_new(connection, runs, row):
                return _Inserted.of(row)
        raise StoreError(
            f"could not settle the identity of {start.row['workflow']} {start.row['key']}: try again."
        )

    def _holder(self, connection: Connection, place: Place, start: _Start) -> RunRow | None:
        """Who stands against the insert, as it is now."""
        database = self._engine.database
        wanted = (start.id, start.row["workflow"], None if start.key is None else start.key.digest)
        found = holder_of(connection, *wanted)
        if place.sees_newest or not database.dialect.keeps_snapshots:
            return found
        # The caller's transaction may show what was there when it began. To lock the row would show the newest one,
        # and keep its worker waiting for as long as the caller likes.
        with database.read() as newest:
            committed = holder_of(newest, *wanted)
            if committed is None and found is not None and find_run(newest, found.id) is None:
                # The caller's own, of a moment ago.
                return found
        return committed

    def _answers(self, start: _Start, holder: RunRow, options: StartOptions) -> bool:
        """The start is content with the holder; False if the holder has to give way.

        Raises:
            RunAlreadyExists: Neither.
        """
        mode = options.on_conflict or start.call.workflow.on_conflict
        if mode == "skip" and (not options.same_args or self._same_args(holder, start)):
            return True
        if mode == "replace" and holder.finished_at is None:
            return False
        raise RunAlreadyExists(
            refusal(start.call, options, start.row, holder, mode), Run(self._engine, holder.id, created=False)
        )

    def _same_args(self, holder: RunRow, start: _Start) -> bool:
        codec = self._engine.codec
        return holder.args == start.row["args"] or codec.canonical(
            codec.loads(holder.args, what="arguments")
        ) == codec.canonical(codec.loads(start.row["args"], what="arguments"))

    def _row_instead_of(self, connection: Connection, start: _Start, holder: RunRow) -> dict[str, Any]:
        """Take the identity over. Two runs of one identity never execute at the same time."""
        replacement = take_place(connection, self._engine.commands, holder.id, start.id, self._engine.now())
        start.replaced.append(holder)
        return {**start.row, **replacement.columns(start.row)}

    def _tell_replaced(self, replaced: Iterable[RunRow]) -> None:
        """Of those that are over by now; whoever drives another one ends it, and tells."""
        for holder in replaced:
            with self._engine.database.read() as connection:
                run = find_run(connection, holder.id)
            if run is not None and run.state == RunState.CANCELED:
                self._engine.children.ended(run.id, run.parent_id, run.state)


def _is_ancestor(connection: Connection, holder: RunRow, parent_id: UUID | None) -> bool:
    """The run is the parent, or one that the parent was called by."""
    seen: set[UUID] = set()
    while parent_id is not None and parent_id not in seen:
        if parent_id == holder.id:
            return True
        seen.add(parent_id)
        parent = find_run(connection, parent_id)
        parent_id = None if parent is None else parent.parent_id
    return False


@dataclass(frozen=True, slots=True)
class _Inserted:
    """As much of a row that was just inserted as its caller looks at."""

    id: UUID
    queue: str
    lane: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Any:
        return cls(row["id"], row["queue"], row["lane"])


def _warn_of_namesakes(name: str) -> None:
    """No worker that knows both classes of one name will drive the run: it must not guess."""
    try:
        find_workflow(name)
    except DefinitionError as error:
        _log.warning(
            "a run was started that no worker will drive which knows both classes of its name",
            extra={"action": "start.ambiguous", "workflow": name, "why": str(error)},
        )


def _instant(at: datetime | timedelta | None, now: datetime) -> datetime | None:
    if at is None:
        return None
    return later(now, at) if isinstance(at, timedelta) else require_aware(at, "at")


def _options_text(cls: Any, options: StartOptions, at: datetime | None) -> str | None:
    said: dict[str, Any] = {}
    if at is not None:
        said["at"] = to_micros(at)
    if options.queue is not None:
        said["queue"] = options.queue
    if options.priority is not None:
        said["priority"] = options.priority
    if cls.version != 1:
        # The column holds the highest version that has driven the run; this is the one at which it started.
        said["version"] = cls.version
    if cls.unique_for != "run":
        said["unique_for"] = cls.unique_for
    if cls.max_recoveries is not None:
        said["max_recoveries"] = cls.max_recoveries
    return json.dumps(said) if said else None
