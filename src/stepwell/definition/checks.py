"""What a value must be, whoever asks: a class's setting, a step's option, a start's option.

Each function answers None for a good value and otherwise the rule that it breaks, as the end of a sentence
that begins with the option's name.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

__all__ = [
    "LONGEST_NAME",
    "broken_choice",
    "broken_duration",
    "broken_flag",
    "broken_instant",
    "broken_name",
    "broken_whole",
    "meant",
]

LONGEST_NAME: Final = 190
"""Characters that a name may have: so many fit into an index of every database."""


def broken_name(value: object) -> str | None:
    """A queue's or a workflow's name: a string that is neither empty nor too long for a column."""
    if not isinstance(value, str):
        return f"must be a string; got {value!r}"
    if not value.strip() or value != value.strip():
        return f"must not be empty, nor begin or end with a space; got {value!r}"
    if len(value) > LONGEST_NAME:
        return f"must have at most {LONGEST_NAME} characters; got {len(value)}"
    if not value.isprintable():
        return f"must have printable characters only; got {value!r}"
    return None


def broken_whole(value: object, least: int) -> str | None:
    """An int, and no bool, of ``least`` or more."""
    if isinstance(value, bool) or not isinstance(value, int):
        return f"must be an int; got {value!r}"
    return None if value >= least else f"must be {least} or more; got {value}"


def broken_flag(value: object) -> str | None:
    """True or False, and nothing that merely counts as one of them."""
    return None if isinstance(value, bool) else f"must be True or False; got {value!r}"


def broken_choice(value: object, choices: tuple[str, ...]) -> str | None:
    """One of some words."""
    if isinstance(value, str) and value in choices:
        return None
    return f"must be one of {', '.join(map(repr, choices))}; got {value!r}"


def broken_duration(value: object, *, zero: bool) -> str | None:
    """A timedelta that is not negative, nor zero unless ``zero`` says so."""
    if not isinstance(value, timedelta):
        return f"must be a timedelta, such as timedelta(days=2); got {value!r}"
    if value < timedelta() or (not zero and not value):
        return f"must {'not be negative' if zero else 'be more than zero'}; got {value}"
    return None


def broken_instant(value: object) -> str | None:
    """A datetime that has a time zone."""
    if not isinstance(value, datetime):
        return f"must be an aware datetime; got {value!r}"
    if value.tzinfo is None or value.utcoffset() is None:
        return f"must be an aware datetime; {value!r} has no time zone. Attach one: tzinfo=UTC"
    return None


def meant(name: str, known: Collection[str]) -> str:
    """The hint for a name that does not exist: the one that comes near to it, or nothing."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
