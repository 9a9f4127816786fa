"""``stepwell runs``: look at runs, and do something about them."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

import click

from stepwell.cli.application import Application, database_options
from stepwell.cli.commands import COMMANDS
from stepwell.cli.documents import execution_document, run_document
from stepwell.cli.exits import CommandFailed
from stepwell.cli.identify import find_run
from stepwell.cli.options import json_option
from stepwell.cli.pages import show_run, show_runs
from stepwell.cli.terminal import say, say_json
from stepwell.cli.watch import watch
from stepwell.definition.registry import known_workflows
from stepwell.engine.contexts import current_context
from stepwell.engine.engine import Stepwell
from stepwell.engine.queries import RunQuery
from stepwell.engine.run import Run
from stepwell.engine.step_executions import stored_journal
from stepwell.errors import Undecodable
from stepwell.states import RunState
from stepwell.store.mailbox import unread_names
from stepwell.store.rows import RunRow

__all__ = ["runs"]


@click.group()
@database_options
def runs() -> None:
    """Look at runs, follow them, and act on them.

    RUN is an id, or as much of its beginning as is unique.
    """


@runs.command("list")
@click.option("--workflow", metavar="NAME", help="Runs of this workflow.")
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in RunState]),
    multiple=True,
    help="Runs in this state; may be repeated.",
)
@click.option("--attention", is_flag=True, help="Runs that a person must look at: paused and failed.")
@click.option("--step", metavar="NAME", help="Runs that stand at this step.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="At most so many, the newest; 0 for all.",
)
@json_option
@database_options
@click.pass_obj
def list_runs(
    application: Application,
    workflow: str | None,
    states: tuple[str, ...],
    attention: bool,
    step: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List runs, the newest first."""
    if attention and states:
        raise click.UsageError("--attention stands for two states: give it or --state, not both.")
    engine = application.checked()
    query = _narrowed(engine.runs(workflow), states, attention, step)
    found = (query.limit(limit + 1) if limit else query).infos()
    shown = found[:limit] if limit else found
    if workflow is not None and not shown:
        _require_workflow(engine, workflow)
    if as_json:
        say_json([run_document(run) for run in shown])
        return
    if not shown:
        say("No runs.")
        return
    show_runs(shown, engine.now())
    if len(found) > len(shown):
        say(f"These are the newest {limit}; --limit shows more.")


def _narrowed(query: RunQuery, states: tuple[str, ...], attention: bool, step: str | None) -> RunQuery:
    if attention:
        query = query.attention()
    if states:
        query = query.in_state(*states)
    return query if step is None else query.at_step(step)


def _require_workflow(engine: Stepwell, name: str) -> None:
    """Raise if nobody has heard of this workflow: an empty answer to a misspelt name looks like good news."""
    known = known_workflows()
    if name in known or engine.runs(name).limit(1).infos():
        return
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        advice = f"Did you mean {close[0]!r}?"
    elif known:
        advice = f"The application has {', '.join(known)}."
    else:
        advice = "No application is loaded, so only names that runs have are known."
    raise CommandFailed(f"there is no workflow {name!r}, and no run of one. {advice}")


@runs.command()
@click.argument("run")
@json_option
@database_options
@click.pass_obj
def show(application: Application, run: str, as_json: bool) -> None:
    """Show where a run stands, what it waits for, and its journal."""
    engine = application.checked()
    found = find_run(engine, run)
    info, journal, explanation = _as_seen(engine, found), stored_journal(engine, found.id), found.explain()
    if as_json:
        document = run_document(info, payloads=True)
        with engine.reading() as connection:
            document["unread_signals"] = unread_names(connection, found.id)
        document["explanation"] = explanation
        document["journal"] = [execution_document(row) for row in journal]
        say_json(document)
        return
    show_run(info, journal, explanation, engine.now())


def _as_seen(engine: Stepwell, run: Run) -> RunRow:
    """The run's row with its context as it will be; one that cannot be read is shown as it is stored."""
    info = run.info()
    try:
        return replace(info, context=current_context(engine, run.id).text())
    except Undecodable:
        return info


for command in (watch, *COMMANDS):
    runs.add_command(command)
