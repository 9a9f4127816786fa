"""``stepwell runs pause`` and its like: what a person does to runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import click

from stepwell.cli import parameters
from stepwell.cli.application import Application, database_options
from stepwell.cli.exits import ExitCode, expected
from stepwell.cli.identify import find_run
from stepwell.cli.notes import signal_of
from stepwell.cli.options import Decorator, by_option, json_option, reason_option, runs_argument
from stepwell.cli.terminal import complain, say, say_json
from stepwell.cli.unchanged import why_unchanged
from stepwell.cli.words import instant
from stepwell.definition.registry import find_workflow
from stepwell.engine.engine import Stepwell
from stepwell.engine.run import Run
from stepwell.errors import DefinitionError, UnknownWorkflow
from stepwell.states import TERMINAL, Kind, RunState
from stepwell.store.commands import Answer
from stepwell.store.reads import open_entries

__all__ = ["COMMANDS"]


@dataclass(frozen=True, slots=True)
class _Deed:
    """What came of a command on one run, for machines and for people."""

    answer: Answer
    words: str


def _command(*options: Decorator) -> Callable[[Callable[..., None]], click.Command]:
    """A command on runs: what all of them have in common, and some options of its own."""

    def made(function: Callable[..., None]) -> click.Command:
        decorators: tuple[Decorator, ...] = (
            click.pass_obj,
            database_options,
            json_option,
            *options,
            runs_argument,
        )
        for decorator in decorators:
            function = decorator(function)
        return click.command()(function)

    return made


@_command(by_option, reason_option)
def pause(
    application: Application, run_ids: tuple[str, ...], by: str | None, as_json: bool, reason: str | None
) -> None:
    """Stop runs until they are resumed; a step that runs just now finishes first."""
    _each(
        application, run_ids, as_json, lambda _, run: _said(run, "pause", "paused", run.pause(reason, by=by))
    )


@_command(
    by_option,
    click.option("--new-keys", is_flag=True, help="Give the steps that run again new idempotency keys."),
    click.option(
        "--from-step", metavar="NAME", help="Go on from this step: it and all later ones run again."
    ),
)
def resume(
    application: Application,
    run_ids: tuple[str, ...],
    by: str | None,
    as_json: bool,
    from_step: str | None,
    new_keys: bool,
) -> None:
    """Let paused and failed runs go on from where they stopped, or from an earlier or later step."""
    if new_keys and from_step is None:
        raise click.UsageError("--new-keys is about the steps that run again: say from which, --from-step.")
    words = "resumed" if from_step is None else f"resumed from step {from_step!r}"

    def act(_: Stepwell, run: Run) -> _Deed:
        return _said(run, "resume", words, run.resume(from_step=from_step, new_keys=new_keys, by=by))

    _each(application, run_ids, as_json, act)


@_command(
    by_option,
    reason_option,
    click.option("--now", is_flag=True, help="Do not wait for an async step that runs: cancel it, too."),
)
def cancel(
    application: Application,
    run_ids: tuple[str, ...],
    by: str | None,
    as_json: bool,
    reason: str | None,
    now: bool,
) -> None:
    """End runs for good; a step that runs just now finishes first."""
    _each(
        application,
        run_ids,
        as_json,
        lambda _, run: _said(run, "cancel", "canceled", run.cancel(reason, by=by, now=now)),
    )


@_command(by_option, reason_option)
def skip(
    application: Application, run_ids: tuple[str, ...], by: str | None, as_json: bool, reason: str | None
) -> None:
    """Leave out the step that runs stand at, and go on with the next."""
    _each(
        application,
        run_ids,
        as_json,
        lambda _, run: _said(run, "skip", "step skipped", run.skip(reason, by=by)),
    )


@_command(
    click.option(
        "--in", "after", metavar="DURATION", type=parameters.duration, help="So long from now, such as 10m."
    ),
    click.option(
        "--at", metavar="INSTANT", type=parameters.instant, help="Then, such as 2026-03-01T08:00:00Z."
    ),
)
def reschedule(
    application: Application,
    run_ids: tuple[str, ...],
    as_json: bool,
    at: datetime | None,
    after: timedelta | None,
) -> None:
    """Move the instant for which runs are parked; without --at and --in, to now."""
    if at is not None and after is not None:
        raise click.UsageError("give either --at or --in, not both.")
    wanted = at if after is None else after

    def act(_: Stepwell, run: Run) -> _Deed:
        answer = run.reschedule(wanted)
        if answer is Answer.UNCHANGED:
            return _Deed(answer, "nothing to do: it is asked to stop, and heeds that first")
        wake_at = run.info().wake_at
        return _Deed(
            answer, f"rescheduled to {instant(wake_at)}" if wake_at else "rescheduled: it is due now"
        )

    _each(application, run_ids, as_json, act)


@_command(
    click.option(
        "--idempotency-key",
        metavar="KEY",
        type=parameters.name,
        help="Of several with the same key the first counts.",
    ),
    click.option(
        "--payload", metavar="JSON", type=parameters.json_value, help="What the step that awaits it receives."
    ),
    click.argument("name", type=parameters.name),
)
def signal(
    application: Application,
    run_ids: tuple[str, ...],
    name: str,
    as_json: bool,
    payload: Any,
    idempotency_key: str | None,
) -> None:
    """Send runs the signal NAME; it is kept until a step reads it."""
    if name[:1] in '{["':
        raise click.UsageError(
            f"{name} looks like a payload, which --payload takes; the signal's name comes last."
        )
    # What the library would log about it is part of the answer.
    logging.getLogger("stepwell.engine.signalling").addHandler(logging.NullHandler())

    def act(engine: Stepwell, run: Run) -> _Deed:
        kept = _why_kept(engine, run, name)
        if not run.signal(name, payload, idempotency_key=idempotency_key):
            words = f"nothing to do: signal {name!r} was sent before with this key"
            return _Deed(Answer.UNCHANGED, words)
        return _Deed(Answer.DONE, f"signal {name!r} sent{f'; {kept}, so it is kept' if kept else ''}")

    _each(application, run_ids, as_json, act)


@_command()
def wake(application: Application, run_ids: tuple[str, ...], as_json: bool) -> None:
    """Make runs look again at the gate that they wait for."""

    def act(_: Stepwell, run: Run) -> _Deed:
        state = run.state
        if state in TERMINAL:
            return _Deed(Answer.UNCHANGED, f"nothing to do: it is {state}")
        run.wake()
        if state == RunState.AWAITING:
            return _Deed(Answer.DONE, "woken: it looks again")
        if state == RunState.RUNNING:
            return _Deed(Answer.REQUESTED, "a worker has it, and looks again before it parks")
        return _Deed(Answer.UNCHANGED, f"nothing to do: it is {state}, and waits for nothing that wakes it")

    _each(application, run_ids, as_json, act)


def _why_kept(engine: Stepwell, run: Run, name: str) -> str | None:
    """Why nobody reads the signal at once; None if a step awaits it."""
    with engine.reading() as connection:
        entries = open_entries(connection, [run.id])[run.id]
    if any(row.kind == Kind.SIGNAL and signal_of(row) == name for row in entries):
        return None
    try:
        plan = find_workflow(run.workflow).plan
    except (UnknownWorkflow, DefinitionError):
        return "no step awaits it just now"
    known = [spec.awaits.name for spec in plan.steps if spec.awaits is not None]
    if plan.is_procedural or name in known:
        return "no step awaits it just now"
    return f"no step of {plan.workflow} awaits it ({_listed(known)})"


def _listed(names: Sequence[str]) -> str:
    return f"its steps await {', '.join(names)}" if names else "nor any other"


def _said(run: Run, verb: str, done: str, answer: Answer) -> _Deed:
    match answer:
        case Answer.DONE:
            return _Deed(answer, done)
        case Answer.REQUESTED:
            return _Deed(answer, f"asked to {verb}: a worker does that at the next step boundary")
        case Answer.UNCHANGED:
            return _Deed(answer, why_unchanged(run, verb))


def _each(
    application: Application, typed: tuple[str, ...], as_json: bool, act: Callable[[Stepwell, Run], _Deed]
) -> None:
    """Each run in a transaction of its own: one that cannot is reported, and the others are still done."""
    engine = application.checked()
    documents: list[dict[str, str | None]] = []
    for name in typed:
        try:
            run = find_run(engine, name)
            deed = act(engine, run)
        except Exception as error:
            failure = expected(error)
            if failure is None or failure.code is not ExitCode.FAILED:
                raise
            complain(f"Error: {failure}")
            documents.append({"run": name, "answer": None, "error": str(failure)})
            continue
        documents.append({"run": str(run.id), "answer": deed.answer.value, "error": None})
        if not as_json:
            say(f"{run.id}  {deed.words}")
    if as_json:
        say_json(documents)
    if any(document["error"] for document in documents):
        raise click.exceptions.Exit(ExitCode.FAILED)


COMMANDS: Final = (pause, resume, cancel, skip, reschedule, signal, wake)
