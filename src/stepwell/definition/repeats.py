"""What an author says about a repetition in ``run()``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from stepwell.definition import checks
from stepwell.definition.calendars import Interval, interval_of
from stepwell.definition.functions import is_async, is_generator

__all__ = ["RepeatOptions", "Repetition", "repetition_of"]


class RepeatOptions(TypedDict, total=False):
    """The rarer keywords of ``repeat()``; what they mean is said there."""

    start_at: datetime | None
    timeout: timedelta | None
    on_error: Literal["continue", "fail"]
    timezone: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class Repetition:
    """When something is repeated, and until when.

    Attributes:
        interval: The grid of its ticks.
        until: What says that it is over: called with nothing, or with the workflow; None: it is never over.
        start_at: The first tick; None: one interval after the repetition was first reached.
        timeout: A tick that is later than that is left out; None: as soon as the next one is due.
        fails: A tick that failed for good ends the repetition.
        takes_instant: What is repeated is called with the tick's instant.
    """

    interval: Interval
    until: Any = None
    start_at: datetime | None = None
    timeout: timedelta | None = None
    fails: bool = False
    takes_instant: bool = False


def repetition_of(
    function: Callable[..., Any],
    every: object,
    until: object = None,
    start_at: object = None,
    timeout: object = None,
    on_error: object = "continue",
    timezone: object = None,
) -> Repetition:
    """The author's values as one that has been checked.

    Raises:
        TypeError: The message is the end of a sentence that begins with the verb.
    """
    interval = interval_of(every, timezone)
    problems = {
        "until": None if until is None else _broken_until(until),
        "start_at": None if start_at is None else checks.broken_instant(start_at),
        "timeout": None if timeout is None else checks.broken_duration(timeout, zero=False),
        "on_error": checks.broken_choice(on_error, ("continue", "fail")),
    }
    for name, problem in problems.items():
        if problem is not None:
            raise TypeError(f"{name} {problem}")
    takes = _takes_instant(function)
    return Repetition(interval, until, start_at, timeout, on_error == "fail", takes)  # type: ignore[arg-type]  # checked


def _broken_until(until: object) -> str | None:
    if isinstance(until, str):
        return None
    if not callable(until):
        return f"must be a method, its name or a function; got {until!r}"
    if is_async(until) or is_generator(until):
        return (
            "is async or a generator function, whose answer would always count as true. Use a plain function"
        )
    return None


def _takes_instant(function: Callable[..., Any]) -> bool:
    """The function wants the tick's instant: it has a positional parameter without a default.

    Raises:
        TypeError: It has more of them, and nobody would fill those.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        # Of some functions in C nobody knows the parameters.
        return False
    loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    wanted = [each for each in parameters if each.default is each.empty and each.kind not in loose]
    if len(wanted) > 1 or (wanted and wanted[0].kind is inspect.Parameter.KEYWORD_ONLY):
        names = ", ".join(each.name for each in wanted)
        raise TypeError(
            f"fn is called with nothing, or with the instant of the tick by position; this one wants {names}"
        )
    return bool(wanted)
