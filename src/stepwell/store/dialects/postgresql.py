"""PostgreSQL through psycopg 3: a group of journal entries is one statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final
from uuid import UUID

from sqlalchemy import URL, Connection, Table, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from stepwell.clock import to_micros
from stepwell.entries import Execution, JournalEntry, Verdict
from stepwell.errors import UnsupportedDatabase
from stepwell.states import TERMINAL, RunState
from stepwell.store.dialects.base import EXECUTION_COLUMNS, FINISHED_COLUMNS, UNFINISHED_LIST, Dialect

__all__ = ["PostgreSQLDialect"]

_COLUMNS: Final = ", ".join(EXECUTION_COLUMNS)
_FINISH: Final = ", ".join(f"{name} = excluded.{name}" for name in FINISHED_COLUMNS)

# An UPDATE that gives an indexed column the value it has is still HOT, so that steps and settlements share one
# statement. Each row is fenced by its own token; the answer names the accepted ones, the others wrote nothing.
_APPLY: Final = f"""
WITH entry AS (
    SELECT * FROM json_to_recordset(CAST(%s AS json)) AS _(
        run_id uuid, token uuid, at bigint, current_step text, context text, version int, progress boolean,
        settles boolean, state text, reason text, queue text, priority int, ready boolean, over boolean,
        due_at bigint, wake_at bigint, result text, error_class text, error_message text, frees boolean,
        answers boolean, details text, seen int, consumes bigint, position int)
), accepted AS (
    UPDATE stepwell_runs run SET
        current_step = entry.current_step,
        context = COALESCE(entry.context, run.context),
        version = GREATEST(entry.version, run.version),
        recoveries = CASE WHEN entry.progress THEN 0 ELSE run.recoveries END,
        state = CASE WHEN entry.settles THEN entry.state ELSE run.state END,
        reason = CASE WHEN entry.settles THEN entry.reason ELSE run.reason END,
        queue = COALESCE(entry.queue, run.queue),
        priority = COALESCE(entry.priority, run.priority),
        lane = CASE WHEN entry.ready THEN COALESCE(entry.queue, run.queue) WHEN NOT entry.settles THEN run.lane END,
        due_at = CASE WHEN entry.settles THEN entry.due_at ELSE run.due_at END,
        wake_at = CASE WHEN entry.settles THEN entry.wake_at ELSE run.wake_at END,
        result = COALESCE(entry.result, run.result),
        error_class = CASE WHEN entry.settles THEN entry.error_class ELSE run.error_class END,
        error_message = CASE WHEN entry.settles THEN entry.error_message ELSE run.error_message END,
        active_key = CASE WHEN entry.frees THEN NULL ELSE run.active_key END,
        open_branch = CASE WHEN entry.over THEN NULL ELSE run.open_branch END,
        stop_request = CASE WHEN entry.answers THEN NULL ELSE run.stop_request END,
        details = COALESCE(entry.details, run.details),
        changed_at = CASE WHEN entry.settles THEN entry.at ELSE run.changed_at END,
        finished_at = CASE WHEN entry.over THEN entry.at ELSE run.finished_at END,
        lease_expires_at = CASE WHEN entry.settles THEN NULL ELSE run.lease_expires_at END,
        lease_token = CASE WHEN entry.settles THEN NULL ELSE run.lease_token END,
        lease_owner = CASE WHEN entry.settles THEN NULL ELSE run.lease_owner END
    FROM entry
    -- The array leads every plan to the primary key, however old the statistics are.
    WHERE run.id = ANY (CAST(%s AS uuid[])) AND run.id = entry.run_id
      AND run.lease_token = entry.token AND run.state = 'running' AND (entry.seen IS NULL OR run.wakeups = entry.seen)
    RETURNING run.id, run.wakeups, run.stop_request
), recorded AS (
    INSERT INTO stepwell_step_executions AS known ({_COLUMNS})
    SELECT {", ".join(f"_.{name}" for name in EXECUTION_COLUMNS)}
    FROM json_populate_recordset(CAST(NULL AS stepwell_step_executions), CAST(%s AS json)) AS _
    JOIN accepted ON accepted.id = _.run_id
    ON CONFLICT (run_id, position) DO UPDATE SET {_FINISH} WHERE known.state IN {UNFINISHED_LIST}
)
SELECT id, wakeups, stop_request FROM accepted"""

# The same for a group in which somebody has read a signal.
_APPLY_AND_CONSUME: Final = _APPLY.replace(
    "\nSELECT id, wakeups",
    """, consumed AS (
    UPDATE stepwell_signals signal SET consumed_at = entry.at, consumed_by = entry.position
    FROM entry JOIN accepted ON accepted.id = entry.run_id
    WHERE signal.id = entry.consumes AND signal.consumed_at IS NULL
)
SELECT id, wakeups""",
)

_GROUP_LOCK_MILLISECONDS: Final = 200
_RETRYABLE: Final = frozenset({"40001", "40P01", "55P03"})  # serialization, deadlock, lock not available


class PostgreSQLDialect(Dialect):
    """PostgreSQL from 13."""

    name: ClassVar[str] = "postgresql"
    commits_alone: ClassVar[bool] = True
    notifies: ClassVar[bool] = True

    def connect_arguments(self, url: URL) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "keepalives": 1,
            "connect_timeout": 10,
            "application_name": "stepwell",
            # Texts are texts, whatever the database stores them in: that is looked at once we are connected.
            "client_encoding": "utf8",
        }
        for setting, value in self._keepalives().items():
            wanted[setting.removeprefix("tcp_") if "keepalives" in setting else setting] = value
        return {name: value for name, value in wanted.items() if name not in url.query}

    def prepare_connection(self, dbapi_connection: Any) -> None:
        idle = round(self.options.session_idle_limit * 1000)
        lock = round(self.options.lock_limit * 1000)
        # The server's end too: what a client held that died without a word is held until the server notices.
        keepalives = " ".join(f"SET {setting} = {value};" for setting, value in self._keepalives().items())
        was_autocommit, dbapi_connection.autocommit = dbapi_connection.autocommit, True
        with dbapi_connection.cursor() as cursor:
            cursor.execute(
                f"SET idle_in_transaction_session_timeout = {idle}; SET lock_timeout = {lock}; "
                f"{keepalives} "
                "SET default_transaction_isolation = 'read committed'; SET TIME ZONE 'UTC'; SET jit = off"
            )
        dbapi_connection.autocommit = was_autocommit

    def _keepalives(self) -> dict[str, int]:
        """Ours and the server's: what a silent peer's connection lives."""
        idle, interval, count = self.options.keepalive_seconds()
        return {
            "tcp_keepalives_idle": idle,
            "tcp_keepalives_interval": interval,
            "tcp_keepalives_count": count,
            "tcp_user_timeout": round(self.options.lease_seconds * 1000),
        }

    def check_server(self, connection: Connection) -> None:
        version = connection.execute(text("SHOW server_version_num")).scalar_one()
        if int(version) < 130_000:
            raise UnsupportedDatabase(f"Stepwell needs PostgreSQL 13 or later; this server is {version}.")
        encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
        if encoding not in ("UTF8", b"UTF8"):
            raise UnsupportedDatabase(
                f"Stepwell needs a database in UTF8, so that every error's text can be recorded; this one is in "
                f"{encoding}. Make one WITH ENCODING 'UTF8' TEMPLATE template0."
            )

    def epoch_seconds(self, connection: Connection) -> float:
        return float(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())

    def apply(self, connection: Connection, entries: Sequence[JournalEntry]) -> list[Verdict]:
        return _verdicts(entries, connection.exec_driver_sql(_statement(entries), _values(entries)))

    def apply_group(self, connection: Connection, entries: Sequence[JournalEntry]) -> list[Verdict]:
        # Straight on the driver: SQLAlchemy's bookkeeping costs a third of a single write.
        driver: Any = connection.connection.driver_connection
        return _verdicts(entries, driver.execute(_statement(entries), _values(entries)))

    def insert_runs(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
        names = ", ".join(rows[0])
        # As text(): the caller's connection may be of another driver, with placeholders of its own.
        statement = text(
            f"INSERT INTO stepwell_runs ({names}) SELECT {names} "
            "FROM json_populate_recordset(CAST(NULL AS stepwell_runs), CAST(:rows AS json)) "
            "ON CONFLICT DO NOTHING RETURNING CAST(id AS text)"
        )
        values = json.dumps([{name: _json_value(value) for name, value in row.items()} for row in rows])
        return {UUID(row[0]) for row in connection.execute(statement, {"rows": values})}

    def insert_if_new(self, connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
        statement = insert(table).values(**values).on_conflict_do_nothing()
        return connection.execute(statement.returning(*table.primary_key)).first() is not None

    def prepare_hot_connection(self, connection: Connection) -> None:
        # The planner takes a JSON set for a hundred rows and might scan the table for them.
        connection.exec_driver_sql("SET enable_seqscan = off")
        connection.exec_driver_sql("SET enable_hashjoin = off")
        connection.exec_driver_sql("SET enable_mergejoin = off")
        # The statement's shape never depends on its values; planning it anew would cost a third of it.
        connection.exec_driver_sql("SET plan_cache_mode = force_generic_plan")
        # One locked row must not hold up all that share a commit with it for long: it is written alone then.
        connection.exec_driver_sql(f"SET lock_timeout = {_GROUP_LOCK_MILLISECONDS}")

    def begin_step(self, connection: Connection) -> None:
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")

    def end_step(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(self.options.lock_limit * 1000)}")

    def is_retryable(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) in _RETRYABLE


def _statement(entries: Sequence[JournalEntry]) -> str:
    return _APPLY if all(entry.consumes is None for entry in entries) else _APPLY_AND_CONSUME


def _values(entries: Sequence[JournalEntry]) -> tuple[str, str, str]:
    rows = [_execution_json(entry, row) for entry in entries for row in entry.executions]
    ids = f"{{{','.join(str(entry.run_id) for entry in entries)}}}"
    return json.dumps([_entry_json(entry) for entry in entries]), ids, json.dumps(rows)


def _verdicts(entries: Sequence[JournalEntry], found: Iterable[Any]) -> list[Verdict]:
    answers = {row[0]: row for row in found}
    refused = Verdict(accepted=False)
    return [
        Verdict(True, answer[1], answer[2]) if (answer := answers.get(entry.run_id)) else refused
        for entry in entries
    ]


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_micros(value)
    return str(value) if isinstance(value, UUID) else value


def _entry_json(entry: JournalEntry) -> dict[str, Any]:
    values: dict[str, Any] = {
        "run_id": str(entry.run_id),
        "token": str(entry.token),
        "at": to_micros(entry.at),
        "current_step": entry.current_step,
        "context": entry.context,
        "version": entry.version,
        "progress": entry.is_progress,
        "settles": False,
    }
    if entry.consumes is not None:
        values.update(consumes=entry.consumes, position=entry.executions[0].position)
    settlement = entry.settlement
    if settlement is not None:
        values.update(
            settles=True,
            state=settlement.state,
            reason=settlement.reason,
            queue=settlement.queue,
            priority=settlement.priority,
            ready=settlement.state is RunState.READY,
            over=settlement.state in TERMINAL,
            due_at=_json_value(settlement.due_at),
            wake_at=_json_value(settlement.wake_at),
            result=settlement.result,
            error_class=settlement.error_class,
            error_message=settlement.error_message,
            frees=settlement.frees_identity,
            answers=settlement.answers_request,
            details=settlement.details,
            seen=settlement.seen_wakeups,
        )
    return values


def _execution_json(entry: JournalEntry, row: Execution) -> dict[str, Any]:
    values: dict[str, Any] = {
        "run_id": str(entry.run_id),
        "position": row.position,
        "name": row.name,
        "kind": row.kind,
        "attempt": row.attempt,
        "state": row.state,
        "outcome": row.outcome,
        "worker": entry.worker,
    }
    for name in _OPTIONAL:
        value = getattr(row, name)
        if value is not None:
            values[name] = value
    for name in _INSTANTS:
        value = getattr(row, name)
        if value is not None:
            values[name] = to_micros(value)
    return values


_INSTANTS: Final = ("scheduled_for", "started_at", "finished_at")
_OPTIONAL: Final = (
    "key",
    "args_digest",
    "result",
    "context_delta",
    "cursor",
    "continues_from",
    "error_class",
    "error_message",
    "traceback",
    "details",
)
