"""Bringing the tables to the shape that this version of the library needs, and saying when they are not.

The tables' revision is kept in a table of its own, so an application's own Alembic is not disturbed. Alembic itself
is imported by whoever upgrades: to look at the revision, as every worker does, takes none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pkgutil import iter_modules
from typing import assert_never

from sqlalchemy import Engine, inspect, make_url, text

from stepwell.errors import SchemaOutdated, StoreError
from stepwell.store.dialects import DatabaseOptions, dialect_named
from stepwell.store.hushing import alembic_hushed
from stepwell.store.migrations import VERSION_TABLE, versions

__all__ = ["Finding", "SchemaState", "check", "current", "head", "sql", "state_of", "upgrade"]


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
    known = _revisions()
    if not known:
        raise StoreError("the migrations are not there: the installation is damaged, install stepwell again")
    return known[-1]


def current(engine: Engine) -> str | None:
    """The revision that the database's tables have; None if Stepwell never made any."""
    # An engine's transactions may take SQLite's write lock when they begin; a look must not wait for it.
    with engine.connect().execution_options(sqlite_begin="DEFERRED") as connection:
        if not inspect(connection).has_table(VERSION_TABLE):
            return None
        revision: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
        return revision


def state_of(revision: str | None) -> SchemaState:
    """How tables of this revision stand to this version of the library."""
    if revision is None:
        return SchemaState.MISSING
    if revision == head():
        return SchemaState.CURRENT
    return SchemaState.OUTDATED if revision in _revisions() else SchemaState.NEWER


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
    with alembic_hushed():
        from stepwell.store import upgrading  # noqa: PLC0415  # Alembic: most processes never need it

        return upgrading.upgrade(engine)


def sql(dialect_url: str) -> str:
    """The statements that make all tables in an empty database, as text, for reading or for another's hands.

    Args:
        dialect_url: A database URL; only its dialect matters, nothing is connected.

    Raises:
        UnsupportedDatabase: Stepwell does not run on this database.
    """
    url = make_url(dialect_url)
    dialect_named(url.get_backend_name(), DatabaseOptions())
    with alembic_hushed():
        from stepwell.store import upgrading  # noqa: PLC0415  # Alembic: most processes never need it

        return upgrading.script(url.get_dialect()())


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
def _revisions() -> tuple[str, ...]:
    """The revisions in their order: what the names of their modules begin with."""
    return tuple(sorted(each.name.partition("_")[0] for each in iter_modules(versions.__path__)))
