"""Options that several commands have."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any

import click

__all__ = ["Decorator", "by_option", "json_option", "reason_option", "runs_argument"]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None  # a container's user may have no name


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
runs_argument = click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
reason_option = click.option("--reason", metavar="TEXT", help="Why, for whoever looks at the run.")
by_option = click.option(
    "--by", metavar="NAME", default=_user, help="Who does it, for the journal; you, by default."
)
