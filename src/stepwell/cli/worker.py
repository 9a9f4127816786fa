"""``stepwell worker``: a process that drives runs until it is asked to stop."""

from __future__ import annotations

import signal
import sys
from datetime import timedelta

import click

from stepwell.cli import parameters
from stepwell.cli.application import Application, app_option, require_file
from stepwell.cli.logs import LogFormat, set_up_logging
from stepwell.definition.registry import known_workflows
from stepwell.engine.engine import Stepwell
from stepwell.logs import facts_logger
from stepwell.worker.worker import Worker

__all__ = ["worker"]

_log = facts_logger(__name__)


@click.command()
@click.option(
    "-q",
    "--queue",
    "queues",
    metavar="NAME",
    type=parameters.name,
    multiple=True,
    default=("default",),
    show_default=True,
    help="A queue to take runs from; may be repeated, earlier ones go first.",
)
@click.option(
    "-t",
    "--threads",
    type=click.IntRange(1, 1000),
    default=16,
    show_default=True,
    help="How many runs are driven at the same time.",
)
@click.option(
    "--grace",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=30,
    show_default=True,
    help="How long a stop waits for the steps that are running.",
)
@click.option("--name", metavar="NAME", help="For leases and journals; host and process by default.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--log-format",
    type=click.Choice([each.value for each in LogFormat]),
    help="text by default; given, it also replaces logging that the application set up.",
)
@app_option
@click.pass_obj
def worker(
    application: Application,
    queues: tuple[str, ...],
    threads: int,
    grace: float,
    name: str | None,
    log_level: str,
    log_format: str | None,
) -> None:
    """Drive the application's runs until SIGTERM or Ctrl-C.

    The first signal lets the running steps end and gives everything else back; a second one stops at once.
    """
    # Until the worker has its own handlers nothing is held, so that a stop is as good as done.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    engine = application.loaded()
    set_up_logging(None if log_format is None else LogFormat(log_format), log_level)
    require_file(engine)
    made = Worker(engine, queues, threads, name=name, grace=timedelta(seconds=grace))
    _say_what_it_does(engine, made)
    made.run()
    engine.close()


def _say_what_it_does(engine: Stepwell, made: Worker) -> None:
    workflows = ", ".join(known_workflows())
    if not workflows:
        _log.warning(
            "no workflow class is loaded, so every run will be put off: import them where the engine is made",
            extra={"action": "worker.no_workflows"},
        )
    _log.info(
        "this worker drives runs",
        extra={
            "action": "worker.configure",
            "database": engine.database.engine.url.render_as_string(hide_password=True),
            "queues": ", ".join(made.queues),
            "threads": made.threads,
            "workflows": workflows,
        },
    )
