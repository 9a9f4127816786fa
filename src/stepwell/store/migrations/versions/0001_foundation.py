"""The three tables: runs, their journal, and their mailbox."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Column, Integer, String, Text, Uuid
from sqlalchemy.dialects import mysql, postgresql

from stepwell.store.migrations.tables import Tables

revision = "0001"
down_revision = None

_INNODB: Final[dict[str, Any]] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}

_UID: Final = Uuid(native_uuid=False).with_variant(postgresql.UUID(), "postgresql")
_ROW_ID: Final = BigInteger().with_variant(Integer(), "sqlite")
_MICROS: Final = BigInteger()
_DIGEST: Final = String(64).with_variant(
    mysql.CHAR(64, charset="ascii", collation="ascii_bin"), "mysql", "mariadb"
)
_LONG_TEXT: Final = Text().with_variant(
    mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
_JSON: Final = _LONG_TEXT


def _text(length: int) -> Any:
    binary = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(binary, "mysql", "mariadb")


def upgrade(tables: Tables) -> None:
    _runs(tables)
    _step_executions(tables)
    _signals(tables)


def _runs(tables: Tables) -> None:
    tables.create_table(
        "stepwell_runs",
        Column("id", _UID, primary_key=True),
        Column("workflow", _text(190), nullable=False),
        Column("version", Integer, nullable=False),
        Column("key", _text(255)),
        Column("active_key", _DIGEST),
        Column("hero_type", _text(190)),
        Column("hero_id", _text(190)),
        Column("state", _text(16), nullable=False),
        Column("reason", _LONG_TEXT),
        Column("args", _JSON, nullable=False),
        Column("context", _JSON),
        Column("result", _JSON),
        Column("queue", _text(190), nullable=False),
        Column("priority", Integer, nullable=False),
        Column("lane", _text(190)),
        Column("due_at", _MICROS),
        Column("wake_at", _MICROS),
        Column("lease_expires_at", _MICROS),
        Column("lease_token", _UID),
        Column("lease_owner", _text(190)),
        Column("wakeups", Integer, nullable=False),
        Column("stop_request", _JSON),
        Column("current_step", _text(190)),
        Column("recoveries", Integer, nullable=False),
        Column("error_class", _text(255)),
        Column("error_message", _LONG_TEXT),
        Column("parent_id", _UID),
        Column("branch", _text(190)),
        Column("child_key", _text(255)),
        Column("open_branch", _text(190)),
        Column("after_id", _UID),
        Column("continues_from", _UID),
        Column("definition", _DIGEST),
        Column("options", _JSON),
        Column("details", _JSON),
        Column("created_at", _MICROS, nullable=False),
        Column("started_at", _MICROS),
        Column("changed_at", _MICROS, nullable=False),
        Column("finished_at", _MICROS),
        **_INNODB,
    )
    tables.set_storage(
        "stepwell_runs",
        fillfactor=70,
        autovacuum_vacuum_scale_factor=0.02,
        autovacuum_vacuum_cost_delay=1,
        autovacuum_analyze_scale_factor=0.05,
    )
    for name, columns in {
        "lane": ["lane", "priority", "due_at", "id"],
        "wake": ["wake_at"],
        "lease": ["lease_expires_at"],
        "hero": ["hero_id", "hero_type"],
        "open_branch": ["open_branch"],
    }.items():
        where = f"{columns[0]} IS NOT NULL"
        tables.create_index(f"ix_stepwell_runs_{name}", "stepwell_runs", columns, where=where)
    tables.create_index("ux_stepwell_runs_identity", "stepwell_runs", ["workflow", "active_key"], unique=True)
    tables.create_index(
        "ix_stepwell_runs_settled",
        "stepwell_runs",
        ["state", "changed_at"],
        where="state IN ('canceled', 'completed', 'failed', 'paused')",
    )


def _step_executions(tables: Tables) -> None:
    tables.create_table(
        "stepwell_step_executions",
        Column("run_id", _UID, primary_key=True),
        Column("position", Integer, primary_key=True, autoincrement=False),
        Column("name", _text(190), nullable=False),
        Column("key", _text(255)),
        Column("kind", _text(16), nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("state", _text(16), nullable=False),
        Column("outcome", _text(16)),
        Column("args_digest", _DIGEST),
        Column("result", _JSON),
        Column("context_delta", _JSON),
        Column("cursor", _JSON),
        Column("continues_from", Integer),
        Column("superseded_at", _MICROS),
        Column("scheduled_for", _MICROS),
        Column("started_at", _MICROS),
        Column("finished_at", _MICROS),
        Column("error_class", _text(255)),
        Column("error_message", _LONG_TEXT),
        Column("traceback", _LONG_TEXT),
        Column("worker", _text(190)),
        Column("details", _JSON),
        **_INNODB,
    )


def _signals(tables: Tables) -> None:
    tables.create_table(
        "stepwell_signals",
        Column("id", _ROW_ID, primary_key=True, autoincrement=True),
        Column("run_id", _UID, nullable=False),
        Column("name", _text(190)),
        Column("idempotency_key", _text(190)),
        Column("payload", _JSON),
        Column("sent_at", _MICROS, nullable=False),
        Column("pending_at", _MICROS),
        Column("consumed_at", _MICROS),
        Column("consumed_by", Integer),
        **_INNODB,
        sqlite_autoincrement=True,
    )
    tables.create_index("ix_stepwell_signals_mailbox", "stepwell_signals", ["run_id", "name", "id"])
    tables.create_index(
        "ux_stepwell_signals_idempotency",
        "stepwell_signals",
        ["run_id", "name", "idempotency_key"],
        unique=True,
    )
    tables.create_index(
        "ix_stepwell_signals_pending", "stepwell_signals", ["pending_at"], where="pending_at IS NOT NULL"
    )
