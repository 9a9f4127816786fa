"""What people type for an instant, a duration, a JSON value or a name; what makes no sense is used wrongly."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

import click

from stepwell.definition.checks import broken_name

__all__ = ["duration", "instant", "json_value", "name"]

_UNITS: Final = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "min": timedelta(minutes=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
_PART: Final = re.compile(rf"(\d+)\s*({'|'.join(_UNITS)})\s*")
_MOST_DIGITS: Final = 9
_LONGEST: Final = timedelta(days=36_500)


def duration(text: str) -> timedelta:
    """``90s``, ``10m``, ``1h30m``, ``2d``: as the other commands show it, or shorter."""
    total, at, text = timedelta(), 0, text.strip()
    while found := _PART.match(text, at):
        if len(found[1]) > _MOST_DIGITS or (total := total + int(found[1]) * _UNITS[found[2]]) > _LONGEST:
            raise click.BadParameter(f"{text!r} is too long: at most {_LONGEST.days}d.")
        at = found.end()
    if not text or at < len(text):
        raise click.BadParameter(f"{text!r} is no duration: write it like 90s, 10m, 1h30m or 2d.")
    return total


def instant(text: str) -> datetime:
    """ISO 8601 with a time zone: whose eight o'clock it is must not be guessed."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.BadParameter(f"{text!r} is no instant: write it like 2026-03-01T08:00:00Z.") from None
    if found.utcoffset() is None:
        raise click.BadParameter(
            f"{text!r} has no time zone: end it with Z for UTC, or with an offset such as +02:00."
        )
    return found


def json_value(text: str) -> Any:
    """Any JSON document."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(
            f"{text!r} is no JSON ({error}). A text has double quotes of its own: '\"approved\"'."
        ) from None


def name(text: str) -> str:
    """A queue's or a signal's name."""
    problem = broken_name(text)
    if problem is not None:
        raise click.BadParameter(f"a name {problem}.")
    return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number in JSON")
