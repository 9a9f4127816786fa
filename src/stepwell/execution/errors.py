"""An error as it is recorded: legible, whatever it is, and storable on every database."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Final

from stepwell.texts import storable

__all__ = ["ErrorRecord", "describe"]

_LONGEST_MESSAGE: Final = 4_000
_LONGEST_TRACEBACK: Final = 32_000
_LONGEST_CLASS: Final = 250


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """What the journal keeps of an error."""

    error_class: str
    message: str
    traceback: str


def describe(error: BaseException) -> ErrorRecord:
    """Describe an error for the journal; never raises, even if the error's own ``__str__`` does."""
    cls = type(error)
    return ErrorRecord(
        error_class=storable(
            f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins."), _LONGEST_CLASS
        ),
        message=storable(_message(error), _LONGEST_MESSAGE),
        traceback=storable(_traceback(error), _LONGEST_TRACEBACK, keep_end=True),
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:  # an author's __str__ may raise anything, and must not strand the run
        return f"<its text could not be made: {type(second).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:
        return "".join(traceback.format_tb(error.__traceback__))
