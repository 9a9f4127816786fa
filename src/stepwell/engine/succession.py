"""A run that is started over: its successor is made in the transaction in which it ends.

The successor takes over identity, hero, parent, place in the queues, what is left of the mailbox, and what was said
about the start. Its context, if it is given one, is the first row of its journal.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Connection, bindparam, insert, update

from stepwell.definition.registry import find_workflow
from stepwell.engine.starting import ARGS_LIMIT
from stepwell.execution.journal import Succession
from stepwell.observer import EventKind
from stepwell.states import ExecutionState, Kind, Outcome, RunState
from stepwell.store.mailbox import hand_over
from stepwell.store.reads import find_run
from stepwell.store.rows import RunRow
from stepwell.store.schema import executions, runs
from stepwell.store.types import UID

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["succeed"]

_TAKEN_OVER: Final = (
    "key",
    "active_key",
    "hero_type",
    "hero_id",
    "parent_id",
    "branch",
    "child_key",
    "open_branch",
)
_NAMES_OF_THE_START: Final = ("at", "version")
# Fenced like the settlement that follows: a run that is no longer ours keeps its identity.
_GIVE_UP_IDENTITY: Final = (
    update(runs)
    .where(
        runs.c.id == bindparam("run", type_=UID),
        runs.c.lease_token == bindparam("token", type_=UID),
        runs.c.state == RunState.RUNNING.value,
    )
    .values(active_key=None)
)


def succeed(engine: Stepwell, run_id: UUID, token: UUID, scope: Any, succession: Succession) -> None:
    """Have the successor made when the scope commits, right before the entry that ends the run.

    Raises:
        Unstorable: An argument cannot be stored.
    """
    text = engine.codec.dumps(dict(succession.args), what="arguments of start_over()", limit=ARGS_LIMIT)

    def insert_successor(connection: Connection) -> None:
        run = find_run(connection, run_id)
        if run is None or not connection.execute(_GIVE_UP_IDENTITY, {"run": run_id, "token": token}).rowcount:
            # The guard of the entry that follows refuses the whole.
            return
        row = _row(engine, run, succession, text)
        connection.execute(insert(runs).values(row))
        if succession.context is not None:
            connection.execute(
                insert(executions).values(_context_row(engine, succession.run_id, succession.context[1]))
            )
        hand_over(connection, run_id, succession.run_id)
        scope.after_commit.append(lambda: _tell(engine, row))

    scope.at_commit.append(insert_successor)


def _row(engine: Stepwell, run: RunRow, succession: Succession, args: str) -> dict[str, Any]:
    cls, now = find_workflow(run.workflow), engine.now()
    options = {
        name: value
        for name, value in json.loads(run.options or "{}").items()
        if name not in _NAMES_OF_THE_START
    }
    queue = options.get("queue", cls.queue)
    if cls.version != 1:
        options["version"] = cls.version
    return {
        **{name: getattr(run, name) for name in _TAKEN_OVER},
        "id": succession.run_id,
        "workflow": run.workflow,
        "version": cls.version,
        "state": RunState.READY.value,
        "args": args,
        "context": None if succession.context is None else succession.context[0],
        "queue": queue,
        "priority": options.get("priority", cls.priority),
        "lane": queue,
        "due_at": now,
        # Something may be in its mailbox: whoever ends it looks there.
        "wakeups": 1,
        "recoveries": 0,
        "continues_from": run.id,
        "definition": cls.plan.fingerprint,
        "options": json.dumps(options) if options else None,
        "created_at": now,
        "changed_at": now,
    }


def _context_row(engine: Stepwell, run_id: UUID, delta: str) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "position": 1,
        "name": "start_over",
        "kind": Kind.CONTEXT.value,
        "attempt": 1,
        "state": ExecutionState.COMPLETED.value,
        "outcome": Outcome.SUCCESS.value,
        "context_delta": delta,
        "finished_at": engine.now(),
    }


def _tell(engine: Stepwell, row: dict[str, Any]) -> None:
    engine.wake_queue(row["queue"])
    engine.observe(EventKind.START, row["id"], row["workflow"], queue=row["queue"])
