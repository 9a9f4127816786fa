"""From what a person types to a run: a whole id, or as much of its beginning as is unique."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from stepwell.cli.exits import CommandFailed
from stepwell.engine.engine import Stepwell
from stepwell.engine.run import Run
from stepwell.store.reads import RunFilter, run_ids

__all__ = ["find_run"]

_DIGITS: Final = 32
_LEAST: Final = 6


def find_run(engine: Stepwell, typed: str) -> Run:
    """The run that is meant.

    Args:
        engine: Where to look.
        typed: An id, or at least six hexadecimal digits of its beginning.

    Raises:
        RunNotFound: There is none with this id.
        CommandFailed: The beginning fits no run, or several.
    """
    digits = typed.replace("-", "").lower()
    if len(digits) >= _DIGITS or not re.fullmatch(r"[0-9a-f]+", digits):
        return engine.run(typed)
    if len(digits) < _LEAST:
        raise CommandFailed(f"{typed!r} is too short: give at least {_LEAST} digits of a run's id.")
    found = _beginning_with(engine, digits)
    if not found:
        raise CommandFailed(f"there is no run whose id begins with {typed}.")
    if len(found) > 1:
        raise CommandFailed(f"{typed} is not unique: it fits {found[0]} and {found[1]}. Give more of the id.")
    return engine.run(found[0])


def _beginning_with(engine: Stepwell, digits: str) -> list[UUID]:
    """The first two ids from there on that begin so: ids are read in their order, by the primary key."""
    lowest = int(digits.ljust(_DIGITS, "0"), 16)
    after = UUID(int=lowest - 1) if lowest else None
    with engine.reading() as connection:
        candidates = run_ids(connection, RunFilter(), 2, after)
    return [run_id for run_id in candidates if run_id.hex.startswith(digits)]
