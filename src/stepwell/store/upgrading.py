"""Running the migrations with Alembic: on a database, or as a script."""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import cache
from typing import Any

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, MigrationStep
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine
from sqlalchemy.engine import Dialect

from stepwell.logs import facts_logger
from stepwell.store import migrations
from stepwell.store.dialects.schema_changes import schema_transaction
from stepwell.store.migrations.tables import Tables

__all__ = ["script", "upgrade"]

_log = facts_logger(__name__)


def upgrade(engine: Engine) -> list[str]:
    """Bring the tables to the newest revision; answer the revisions that were applied (see ``migrating``)."""
    applied: list[str] = []
    with schema_transaction(engine) as connection:
        context = _context(connection, applied)
        context.run_migrations(tables=Tables(Operations(context)))
    if applied:
        _log.info(
            "the tables were upgraded",
            extra={"action": "schema_upgraded", "revision": applied[-1], "revisions": len(applied)},
        )
    return applied


def script(dialect: Dialect) -> str:
    """The statements that make all tables in an empty database of this product."""
    text = io.StringIO()
    context = MigrationContext.configure(
        dialect=dialect, opts={"as_sql": True, "output_buffer": text, **_options([])}
    )
    with context.begin_transaction():
        context.run_migrations(tables=Tables(Operations(context)))
    return text.getvalue()


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory(migrations.__path__[0])


def _context(connection: Connection, applied: list[str]) -> MigrationContext:
    return MigrationContext.configure(connection, opts=_options(applied))


def _options(applied: list[str]) -> dict[str, Any]:
    """Alembic's options; the revisions that get applied are added to ``applied``."""

    def steps(revision: Any, _context: MigrationContext) -> Iterable[MigrationStep]:
        return _scripts()._upgrade_revs("head", revision)

    def note(*, step: Any, **_: Any) -> None:
        applied.append(step.up_revision_id)

    return {"version_table": migrations.VERSION_TABLE, "fn": steps, "on_version_apply": [note]}
