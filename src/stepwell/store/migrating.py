"""Bringing the tables to the shape that this version of the library needs, and saying when they are not.

The tables' revision is kept in a table of its own, so an application's own Alembic is not disturbed.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, assert_never

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, MigrationStep
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, make_url

from stepwell.errors import SchemaOutdated, StoreError
from stepwell.store import migrations
from stepwell.store.dialects import DatabaseOptions, dialect_named
from stepwell.store.dialects.schema_changes import schema_transaction
from stepwell.store.migrations.tables import Tables

__all__ = ["Finding", "SchemaState", "check", "current", "head", "sql", "state_of", "upgrade"]

_log = logging.getLogger(__name__)
_VERSION_TABLE: Final = "stepwell_schema_version"


class SchemaState(StrEnum):
    """How the tables stand to this version of the library."""

    CURRENT = "current"
    MISSING = "missing"
    OUTDATED = "outdated"
    NEWER = "newer"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a check came upon and that does not stop the work.

    Attributes:
        code: What kind of thing, in one word.
        message: What it is and what to do.
    """

    code: str
    message: str


def head() -> str:
    """The revision that this version of the library needs."""
    revision = _scripts().get_current_head()
    if revision is None:
        raise StoreError("the migrations are not there: the installation is damaged, install stepwell again")
    return revision


def current(engine: Engine) -> str | None:
    """The revision that the database's tables have; None if Stepwell never made any."""
    # An engine's transactions may take SQLite's write lock when they begin; a look must not wait for it.
    with engine.connect().execution_options(sqlite_begin="DEFERRED") as connection:
        return _context(connection).get_current_revision()


def state_of(revision: str | None) -> SchemaState:
    """How tables of this revision stand to this version of the library."""
    if revision is None:
        return SchemaState.MISSING
    if revision == head():
        return SchemaState.CURRENT
    known = {script.revision for script in _scripts().walk_revisions()}
    return SchemaState.OUTDATED if revision in known else SchemaState.NEWER


def upgrade(engine: Engine) -> list[str]:
    """Bring the tables to the newest revision; nothing happens if they have it.

    Several processes may do this at the same time: one does the work, the others wait for it. Tables of a
    newer library are left alone.

    Args:
        engine: Any engine on the database, an application's too.

    Returns:
        The revisions that were applied, in order.

    Durability:
        One transaction on SQLite and PostgreSQL. On MariaDB each change of a table commits by itself; a
        process that dies in between leaves a part, and the next upgrade makes the rest.
    """
    if state_of(current(engine)) in (SchemaState.CURRENT, SchemaState.NEWER):
        return []
    applied: list[str] = []
    with schema_transaction(engine) as connection:
        context = _context(connection, applied=applied)
        context.run_migrations(tables=Tables(Operations(context)))
    for revision in applied:
        _log.info("schema upgraded", extra={"action": "schema_upgraded", "revision": revision})
    return applied


def sql(dialect_url: str) -> str:
    """The statements that make all tables in an empty database, as text, for reading or for another's hands.

    Args:
        dialect_url: A database URL; only its dialect matters, nothing is connected.

    Raises:
        UnsupportedDatabase: Stepwell does not run on this database.
    """
    url = make_url(dialect_url)
    dialect_named(url.get_backend_name(), DatabaseOptions())
    script = io.StringIO()
    context = MigrationContext.configure(
        dialect=url.get_dialect()(), opts={"as_sql": True, "output_buffer": script, **_options([])}
    )
    with context.begin_transaction():
        context.run_migrations(tables=Tables(Operations(context)))
    return script.getvalue()


def check(engine: Engine) -> list[Finding]:
    """See that the tables are such as this version of the library needs.

    Returns:
        What is worth knowing and stops nothing: that the tables are newer than this library.

    Raises:
        SchemaOutdated: They are missing or old; the message says what to run.
    """
    revision = current(engine)
    where = engine.url.render_as_string(hide_password=True)
    remedy = "run `stepwell db upgrade`, or call migrate() on the engine"
    match state_of(revision):
        case SchemaState.CURRENT:
            return []
        case SchemaState.MISSING:
            raise SchemaOutdated(f"{where} has no tables of Stepwell: {remedy}.")
        case SchemaState.OUTDATED:
            raise SchemaOutdated(
                f"the tables in {where} have revision {revision}, this Stepwell needs {head()}: {remedy}."
            )
        case SchemaState.NEWER:
            # Revisions only add, so that the workers of the version before live through a deploy.
            message = (
                f"the tables in {where} have revision {revision}, which is newer than this Stepwell "
                f"({head()}): upgrade the stepwell package of this process soon."
            )
            return [Finding("newer_schema", message)]
        case unknown:
            assert_never(unknown)


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(Path(migrations.__file__).parent))


def _context(connection: Connection, *, applied: list[str] | None = None) -> MigrationContext:
    return MigrationContext.configure(connection, opts=_options([] if applied is None else applied))


def _options(applied: list[str]) -> dict[str, Any]:
    """Alembic's options; the revisions that get applied are added to ``applied``."""

    def steps(revision: Any, _context: MigrationContext) -> Iterable[MigrationStep]:
        return _scripts()._upgrade_revs("head", revision)

    def note(*, step: Any, **_: Any) -> None:
        applied.append(step.up_revision_id)

    return {"version_table": _VERSION_TABLE, "fn": steps, "on_version_apply": [note]}
