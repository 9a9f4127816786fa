"""``stepwell runs watch``: follow runs while they go on."""

from __future__ import annotations

import signal
import time

import click

from stepwell.cli.application import Application, database_options
from stepwell.cli.exits import ExitCode
from stepwell.cli.identify import find_run
from stepwell.cli.terminal import complain
from stepwell.cli.views import open_view
from stepwell.cli.watching import Watch

__all__ = ["watch"]


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option(
    "--every",
    metavar="SECONDS",
    type=click.FloatRange(min=0.05),
    default=0.5,
    show_default=True,
    help="How long after one look comes the next.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line, for each change.")
@database_options
@click.pass_obj
def watch(application: Application, run_ids: tuple[str, ...], every: float, as_json: bool) -> None:
    """Follow runs until they are over, with the progress of the steps that tell it.

    Without RUN it follows whatever runs, until Ctrl-C. Exit code 0 if all have completed, 1 if one has not.
    """
    # A terminal gets its cursor back, whoever ends this.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    engine = application.checked()
    watched = Watch(engine, [find_run(engine, typed).id for typed in run_ids] or None)
    with open_view(as_json=as_json) as view:
        while True:
            look = watched.look()
            view.show(look)
            if look.is_last:
                break
            time.sleep(every)
    for run_id in sorted(look.gone):
        complain(f"Error: there is no run {run_id} any more: it was deleted meanwhile.")
    if not look.is_good:
        raise click.exceptions.Exit(ExitCode.FAILED)
