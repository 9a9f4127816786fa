"""The root of the command line, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from stepwell.cli.application import Application, database_options
from stepwell.cli.database import db
from stepwell.cli.demo import demo
from stepwell.cli.exits import ExitCode, OutputClosed, expected
from stepwell.cli.runs import runs
from stepwell.cli.terminal import complain
from stepwell.cli.worker import worker

__all__ = ["program", "run"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stepwell", prog_name="stepwell")
@database_options
@click.pass_context
def program(context: click.Context) -> None:
    """Durable workflows in the SQL database that your application already has.

    Exit codes: 0 done, 1 failed, 2 used wrongly, 3 the tables are missing or old.
    """
    context.ensure_object(Application)


program.add_command(worker)
program.add_command(runs)
program.add_command(db)
program.add_command(demo)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and answer its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets an escape for it, and not a traceback.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # never replaced this early
    try:
        code = program.main(list(arguments), prog_name="stepwell", standalone_mode=False)
        return code if isinstance(code, int) else ExitCode.DONE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return ExitCode.INTERRUPTED
    except OutputClosed:
        _close_output()
        return ExitCode.OUTPUT_CLOSED
    except Exception as error:
        failure = expected(error)
        if failure is None:
            raise
        complain(f"Error: {failure}")
        return failure.code


def _close_output() -> None:
    """What is still in the buffer has no reader: without this, the interpreter would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
