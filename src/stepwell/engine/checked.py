"""Settings of an engine and of a worker, checked where they are given and not where they are first used."""

from __future__ import annotations

from datetime import timedelta

from stepwell.clock import require_duration
from stepwell.definition.checks import broken_duration, broken_name, broken_whole

__all__ = ["duration", "name", "whole"]


def duration(value: object, what: str, *, zero: bool = False) -> timedelta:
    """The value, if it is a timedelta of more than nothing; nothing is enough where ``zero`` says so.

    Raises:
        TypeError: It is no timedelta.
        ValueError: It is too short.
    """
    given = require_duration(value, what)
    _refuse(what, broken_duration(given, zero=zero))
    return given


def whole(value: int, what: str, least: int) -> int:
    """The value, if it is a whole number of at least ``least``.

    Raises:
        TypeError: It is no int.
        ValueError: It is less.
    """
    problem = broken_whole(value, least)
    if problem is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{what} {problem}")
    _refuse(what, problem)
    return value


def name(value: str, what: str) -> str:
    """The value, if it is a name that fits into its column.

    Raises:
        TypeError: It is no string.
        ValueError: It is empty, too long, or cannot be printed.
    """
    problem = broken_name(value)
    if not isinstance(value, str):
        raise TypeError(f"{what} {problem}")
    _refuse(what, problem)
    return value


def _refuse(what: str, problem: str | None) -> None:
    if problem is not None:
        raise ValueError(f"{what} {problem}")
