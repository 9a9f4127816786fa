"""``stepwell db``: the tables, and whether they are in order."""

from __future__ import annotations

import click

from stepwell.cli.application import Application, database_options, require_file
from stepwell.cli.exits import CommandFailed
from stepwell.cli.options import json_option
from stepwell.cli.terminal import complain, say, say_json
from stepwell.cli.words import counted
from stepwell.engine.engine import Stepwell
from stepwell.errors import SchemaOutdated
from stepwell.store import migrating
from stepwell.store.reads import find_orphans

__all__ = ["db"]


@click.group()
@database_options
def db() -> None:
    """Make, print and check the tables."""


@db.command()
@json_option
@database_options
@click.pass_obj
def upgrade(application: Application, as_json: bool) -> None:
    """Bring the tables to the shape that this version needs; harmless to repeat."""
    engine = application.engine()
    engine.connect()
    applied = migrating.upgrade(engine.database.engine)
    findings = migrating.check(engine.database.engine)
    if as_json:
        say_json({"database": _name(engine), "applied": applied, "revision": _revision(engine)})
        return
    done = f"applied {', '.join(applied)}" if applied else "nothing to do"
    say(f"{_name(engine)}: {done}; the tables have revision {_revision(engine)}.")
    for finding in findings:
        complain(f"Note: {finding.message}")


@db.command()
@database_options
@click.pass_obj
def sql(application: Application) -> None:
    """Print the statements that make all tables in an empty database; nothing is connected."""
    url = application.engine().database.engine.url
    click.echo(migrating.sql(url.render_as_string(hide_password=False)), nl=False)


@db.command()
@json_option
@database_options
@click.pass_obj
def check(application: Application, as_json: bool) -> None:
    """Check the server, the tables' revision, and that no journal has lost its run."""
    engine = application.engine()
    require_file(engine)
    try:
        findings = engine.check()
    except SchemaOutdated as error:
        if as_json:
            say_json({**_document(engine), "findings": [{"code": "outdated", "message": str(error)}]})
        raise
    with engine.reading() as connection:
        orphans = find_orphans(connection)
    if as_json:
        told = [{"code": finding.code, "message": finding.message} for finding in findings]
        numbers = {
            "executions": orphans.executions,
            "signals": orphans.signals,
            "counted_up_to": orphans.limit,
        }
        say_json({**_document(engine), "findings": told, "orphans": numbers})
    else:
        say(f"{_name(engine)}: the tables have revision {_revision(engine)}.")
        for finding in findings:
            say(f"Note: {finding.message}")
    if orphans.executions or orphans.signals:
        raise CommandFailed(
            f"{counted(orphans.executions, 'journal entry', 'journal entries')} and "
            f"{counted(orphans.signals, 'signal')} belong to runs that are gone (counted up to "
            f"{orphans.limit}): somebody deleted runs by hand."
        )


def _document(engine: Stepwell) -> dict[str, object]:
    revision = _revision(engine)
    state = migrating.state_of(revision)
    return {"database": _name(engine), "schema": state.value, "revision": revision, "needs": migrating.head()}


def _revision(engine: Stepwell) -> str | None:
    return migrating.current(engine.database.engine)


def _name(engine: Stepwell) -> str:
    return engine.database.engine.url.render_as_string(hide_password=True)
