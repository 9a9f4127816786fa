"""``stepwell demo``: the library shows what it promises."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from stepwell.cli.exits import ExitCode
from stepwell.cli.terminal import complain

__all__ = ["demo"]


@click.command()
@click.option(
    "--customers", type=click.IntRange(20, 300), default=300, show_default=True, help="How many take part."
)
@click.option(
    "--keep",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the database and the logs in this new folder, to look at them afterwards.",
)
@click.pass_context
def demo(context: click.Context, customers: int, folder: Path | None) -> None:
    """Kill a worker in the middle of 300 onboardings, and prove that nothing was lost or done twice.

    Takes about 15 seconds, needs no server, and ends with exit code 0 only if the proof holds.
    """
    from stepwell.demo.runner import Demo, DemoFailed
    from stepwell.demo.screen import open_screen

    with ExitStack() as stack:
        if folder is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stepwell-demo-")))
        else:
            place = _new_folder(folder)
        screen = open_screen()
        try:
            code = Demo(place, screen, customers).run()
        except DemoFailed as failure:
            for line in f"Error: the demo did not get to its end: {failure}".splitlines():
                complain(line)
            code = ExitCode.FAILED
        if folder is not None:
            url = shlex.quote(f"sqlite:///{place / 'demo.db'}")
            screen.say(f"\nLook around: {_called()} runs list --database {url}")
    context.exit(code)


def _called() -> str:
    """How the command line can be called from here: `bin/demo` puts nothing on the path."""
    return "stepwell" if shutil.which("stepwell") else f"{shlex.quote(sys.executable)} -m stepwell"


def _new_folder(folder: Path) -> Path:
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty: the demo wants a folder of its own.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
