"""What a start is told whose identity is taken."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from stepwell.definition.settings import HERO, setting_of
from stepwell.definition.starting import Call, StartOptions
from stepwell.definition.unset import UNSET
from stepwell.serialization.paths import with_article
from stepwell.store.rows import RunRow

__all__ = ["refusal"]

_LONGEST: Final = 80


def refusal(call: Call, options: StartOptions, row: Mapping[str, Any], holder: RunRow, mode: str) -> str:
    """Who has the identity, and what the caller can do about it.

    Args:
        call: The start that is refused.
        options: What it said besides.
        row: The row that it would have had.
        holder: The run that stands against it.
        mode: How it wanted conflicts to be settled.
    """
    name = row["workflow"]
    what = f"{name} {_whose(call, options, row)} exists already: run {holder.id}, {holder.state}."
    if mode == "skip":
        return f"{what} It was started with other arguments; same_args=False takes it all the same."
    if holder.finished_at is not None:
        return f"{what} {name} says unique_for = 'ever', so this identity is never free again."
    return f"{what} Use on_conflict='skip' to get that run, 'replace' to cancel it, or another key=."


def _whose(call: Call, options: StartOptions, row: Mapping[str, Any]) -> str:
    """What tells the run from others, in the words of whoever starts it."""
    if options.key is not None:
        return f"with the key {_legible(options.key)}"
    hero = f"about {re.split('[.:]', row['hero_type'] or '')[-1]} {row['hero_id']}"
    unique_by = setting_of(call.workflow, "unique_by")
    if unique_by is UNSET or unique_by == HERO:
        return hero
    names = (unique_by,) if isinstance(unique_by, str) else unique_by
    if not isinstance(names, tuple):
        # A function's answer: for what it stands, its author knows.
        return f"with the identity {_short(str(row['key']))}"
    said = {name: call.args[name] for name in names if name in call.args}
    words = [f"{name}={_legible(value)}" for name, value in said.items()]
    words += [hero] if HERO in names else []
    # What is left out has its default.
    return f"with {', '.join(words)}" if words else f"with the identity {_short(str(row['key']))}"


def _legible(value: object) -> str:
    """The value as its author writes it; of an object that cannot be written, its class."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_legible, value))})"
    if type(value).__repr__ is object.__repr__:
        return with_article(type(value).__name__)
    try:
        return _short(repr(value))
    except Exception:
        return with_article(type(value).__name__)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
