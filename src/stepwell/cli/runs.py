"""``stepwell runs``: look at runs, and do something about them."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any, Final

import click

from stepwell.cli.application import Application, database_options
from stepwell.cli.documents import execution_document, run_document
from stepwell.cli.exits import ExitCode, expected
from stepwell.cli.identify import find_run
from stepwell.cli.pages import show_run, show_runs
from stepwell.cli.terminal import complain, say, say_json
from stepwell.engine.engine import Stepwell
from stepwell.engine.queries import RunQuery
from stepwell.engine.run import Run
from stepwell.states import RunState
from stepwell.store.commands import Answer

__all__ = ["runs"]

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_DONE: Final = {"pause": "paused", "resume": "resumed", "cancel": "canceled", "skip": "step skipped"}
_UNCHANGED: Final = "nothing to do: it stands there already, or a stronger request does"


@click.group()
@database_options
def runs() -> None:
    """Look at runs; pause, resume, cancel them, or skip a step.

    RUN is an id, or as much of its beginning as is unique.
    """


_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")


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
@_json_option
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


@runs.command()
@click.argument("run")
@_json_option
@database_options
@click.pass_obj
def show(application: Application, run: str, as_json: bool) -> None:
    """Show where a run stands, what it waits for, and its journal."""
    engine = application.checked()
    found = find_run(engine, run)
    info, journal, explanation = found.info(), found.steps, found.explain()
    if as_json:
        document = run_document(info, payloads=True)
        say_json(
            {**document, "explanation": explanation, "journal": [execution_document(row) for row in journal]}
        )
        return
    show_run(info, journal, explanation, engine.now())


def _command(*options: _Decorator) -> Callable[[Callable[..., None]], click.Command]:
    """A command on runs: what all of them have in common, and some options of its own."""

    def made(function: Callable[..., None]) -> click.Command:
        decorators: tuple[_Decorator, ...] = (
            click.pass_obj,
            database_options,
            _json_option,
            _by_option,
            *options,
            _ids_argument,
        )
        for decorator in decorators:
            function = decorator(function)
        return runs.command()(function)

    return made


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None  # a container's user may have no name


_ids_argument = click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
_reason_option = click.option("--reason", metavar="TEXT", help="Why, for whoever looks at the run.")
_by_option = click.option(
    "--by", metavar="NAME", default=_user, help="Who does it, for the journal; you, by default."
)


@_command(_reason_option)
def pause(
    application: Application, run_ids: tuple[str, ...], by: str | None, as_json: bool, reason: str | None
) -> None:
    """Stop runs until they are resumed; a step that runs just now finishes first."""
    _each(application.checked(), "pause", run_ids, as_json, lambda run: run.pause(reason, by=by))


@_command()
def resume(application: Application, run_ids: tuple[str, ...], by: str | None, as_json: bool) -> None:
    """Let paused and failed runs go on from where they stopped."""
    _each(application.checked(), "resume", run_ids, as_json, lambda run: run.resume(by=by))


@_command(_reason_option)
def cancel(
    application: Application, run_ids: tuple[str, ...], by: str | None, as_json: bool, reason: str | None
) -> None:
    """End runs for good; a step that runs just now finishes first."""
    _each(application.checked(), "cancel", run_ids, as_json, lambda run: run.cancel(reason, by=by))


@_command(_reason_option)
def skip(
    application: Application, run_ids: tuple[str, ...], by: str | None, as_json: bool, reason: str | None
) -> None:
    """Leave out the step that runs stand at, and go on with the next."""
    _each(application.checked(), "skip", run_ids, as_json, lambda run: run.skip(reason, by=by))


def _each(
    engine: Stepwell, verb: str, typed: tuple[str, ...], as_json: bool, act: Callable[[Run], Answer]
) -> None:
    """Each run in a transaction of its own: one that cannot is reported, and the others are still done."""
    documents: list[dict[str, str | None]] = []
    for name in typed:
        try:
            run = find_run(engine, name)
            answer = act(run)
        except Exception as error:
            failure = expected(error)
            if failure is None or failure.code is not ExitCode.FAILED:
                raise
            complain(f"Error: {failure}")
            documents.append({"run": name, "answer": None, "error": str(failure)})
            continue
        documents.append({"run": str(run.id), "answer": answer.value, "error": None})
        if not as_json:
            say(f"{run.id}  {_words(verb, answer)}")
    if as_json:
        say_json(documents)
    if any(document["error"] for document in documents):
        raise click.exceptions.Exit(ExitCode.FAILED)


def _words(verb: str, answer: Answer) -> str:
    match answer:
        case Answer.DONE:
            return _DONE[verb]
        case Answer.REQUESTED:
            return f"asked to {verb}: a worker has it, and heeds that at its next step boundary"
        case Answer.UNCHANGED:
            return _UNCHANGED
