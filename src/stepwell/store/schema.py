"""The three tables. Which index serves which question is said beside it.

A run can be found through one of three nullable columns, each set only in the state that needs it: ``lane``
while ``ready``, ``wake_at`` while parked until an instant, ``lease_expires_at`` while ``running``.
So every hot index stays as small as the work at hand; where the database can, the index itself is partial.

There are no foreign keys to ``runs``: on MariaDB each insert would share-lock the run and stop its worker.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import DDL, Column, Index, Integer, MetaData, Table, Text, event, text
from sqlalchemy.dialects import mysql

from stepwell.states import ATTENTION, TERMINAL
from stepwell.store.types import DIGEST, ROW_ID, UID, JSONText, Micros, name_of

__all__ = ["executions", "metadata", "runs", "signals"]

metadata: Final = MetaData()

_INNODB: Final[dict[str, Any]] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}
_LONG_TEXT: Final = Text().with_variant(
    mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)

runs: Final = Table(
    "stepwell_runs",
    metadata,
    Column("id", UID, primary_key=True),
    Column("workflow", name_of(), nullable=False),
    Column("version", Integer, nullable=False, default=1),
    Column("key", name_of(255)),
    Column("active_key", DIGEST),
    Column("hero_type", name_of()),
    Column("hero_id", name_of()),
    Column("state", name_of(16), nullable=False),
    Column("reason", _LONG_TEXT),
    Column("args", JSONText, nullable=False),
    Column("context", JSONText),
    Column("result", JSONText),
    Column("queue", name_of(), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("lane", name_of()),
    Column("due_at", Micros),
    Column("wake_at", Micros),
    Column("lease_expires_at", Micros),
    Column("lease_token", UID),
    Column("lease_owner", name_of()),
    Column("wakeups", Integer, nullable=False, default=0),
    Column("stop_request", JSONText),
    Column("current_step", name_of()),
    Column("recoveries", Integer, nullable=False, default=0),
    Column("error_class", name_of(255)),
    Column("error_message", _LONG_TEXT),
    Column("parent_id", UID),
    Column("branch", name_of()),
    Column("child_key", name_of(255)),
    Column("open_branch", name_of()),
    Column("after_id", UID),
    Column("continues_from", UID),
    Column("definition", DIGEST),
    Column("options", JSONText),
    Column("details", JSONText),
    Column("created_at", Micros, nullable=False),
    Column("started_at", Micros),
    Column("changed_at", Micros, nullable=False),
    Column("finished_at", Micros),
    **_INNODB,
)

# Room on each page for the next version of a row: a step's update stays HOT (no index is touched).
# A statement of its own, since SQLAlchemy 2.0 has no storage parameters on tables.
_storage: Final = DDL(  # type: ignore[no-untyped-call]  # SQLAlchemy has no types here
    "ALTER TABLE stepwell_runs SET ("
    "fillfactor = 70, "
    "autovacuum_vacuum_scale_factor = 0.02, "
    "autovacuum_vacuum_cost_delay = 1, "
    "autovacuum_analyze_scale_factor = 0.05)"
)
event.listen(runs, "after_create", _storage.execute_if(dialect="postgresql"))


def _where_set(name: str, *columns: str, unique: bool = False) -> Index:
    """An index over the rows that have a value in its first column; partial where the database can."""
    condition = text(f"{columns[0]} IS NOT NULL")
    return Index(
        name,
        *(runs.c[column] for column in columns),
        unique=unique,
        postgresql_where=condition,
        sqlite_where=condition,
    )


def _listed(states: frozenset[Any]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


# Claims, in the order in which they are claimed.
_where_set("ix_stepwell_runs_lane", "lane", "priority", "due_at", "id")
# Sleepers to promote.
_where_set("ix_stepwell_runs_wake", "wake_at")
# Leases to recover.
_where_set("ix_stepwell_runs_lease", "lease_expires_at")
# Runs about a record.
_where_set("ix_stepwell_runs_hero", "hero_id", "hero_type")
# Children of a branch that are not over.
_where_set("ix_stepwell_runs_open_branch", "open_branch")
# One open run per identity. Not partial: it is the arbiter of ON CONFLICT, and NULLs do not collide.
Index("ux_stepwell_runs_identity", runs.c.workflow, runs.c.active_key, unique=True)
# Lists of what needs attention, and retention.
_settled: Final = text(f"state IN ({_listed(ATTENTION | TERMINAL)})")
Index(
    "ix_stepwell_runs_settled",
    runs.c.state,
    runs.c.changed_at,
    postgresql_where=_settled,
    sqlite_where=_settled,
)

executions: Final = Table(
    "stepwell_step_executions",
    metadata,
    # A run's journal, in its order: the natural key serves every question that the engine asks.
    Column("run_id", UID, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("name", name_of(), nullable=False),
    Column("key", name_of(255)),
    Column("kind", name_of(16), nullable=False),
    Column("attempt", Integer, nullable=False, default=1),
    Column("state", name_of(16), nullable=False),
    Column("outcome", name_of(16)),
    Column("args_digest", DIGEST),
    Column("result", JSONText),
    Column("context_delta", JSONText),
    Column("cursor", JSONText),
    Column("continues_from", Integer),
    Column("superseded_at", Micros),
    Column("scheduled_for", Micros),
    Column("started_at", Micros),
    Column("finished_at", Micros),
    Column("error_class", name_of(255)),
    Column("error_message", _LONG_TEXT),
    Column("traceback", _LONG_TEXT),
    Column("worker", name_of()),
    Column("details", JSONText),
    **_INNODB,
)

signals: Final = Table(
    "stepwell_signals",
    metadata,
    Column("id", ROW_ID, primary_key=True, autoincrement=True),
    Column("run_id", UID, nullable=False),
    Column("name", name_of()),
    Column("idempotency_key", name_of()),
    Column("payload", JSONText),
    Column("sent_at", Micros, nullable=False),
    Column("pending_at", Micros),
    Column("consumed_at", Micros),
    Column("consumed_by", Integer),
    **_INNODB,
    sqlite_autoincrement=True,
)
# A run's mailbox, in the order of sending.
Index("ix_stepwell_signals_mailbox", signals.c.run_id, signals.c.name, signals.c.id)
# A webhook delivered twice counts once.
Index(
    "ux_stepwell_signals_idempotency",
    signals.c.run_id,
    signals.c.name,
    signals.c.idempotency_key,
    unique=True,
)
# Signals whose wake has not happened yet.
Index(
    "ix_stepwell_signals_pending",
    signals.c.pending_at,
    postgresql_where=text("pending_at IS NOT NULL"),
    sqlite_where=text("pending_at IS NOT NULL"),
)
