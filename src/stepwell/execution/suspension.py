"""Control flow out of a step's body, as exceptions that ``except Exception`` cannot swallow.

They are private: an author writes ``self.pause("why")`` and never sees one.
"""

from __future__ import annotations

from datetime import timedelta

__all__ = [
    "CancelRequested",
    "ContinueRequested",
    "FinishRequested",
    "Interrupted",
    "LeaseLost",
    "PauseRequested",
    "RetryRequested",
    "SkipRequested",
    "Suspension",
    "find_suspension",
]


class Suspension(BaseException):
    """A body asks the driver for something; raised by the verbs of a workflow."""


class PauseRequested(Suspension):
    """Stop the run until a person resumes it."""

    def __init__(self, reason: str | None, done: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.done = done


class CancelRequested(Suspension):
    """End the run as canceled."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


class SkipRequested(Suspension):
    """Leave this step as skipped."""


class RetryRequested(Suspension):
    """Run this step again, after a while."""

    def __init__(self, wait: timedelta, rewind: bool = False) -> None:
        super().__init__(wait)
        self.wait = wait
        self.rewind = rewind


class FinishRequested(Suspension):
    """End the run as completed."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result


class ContinueRequested(Suspension):
    """A resumable step stops at its cursor; it goes on from there after ``wait``.

    Attributes:
        is_written: Everything that counts is durable: what the body still does on its way out is undone.
    """

    def __init__(self, wait: timedelta, *, is_written: bool = False) -> None:
        super().__init__(wait)
        self.wait = wait
        self.is_written = is_written


class LeaseLost(BaseException):
    """The run is no longer ours: nothing more is written, by nobody's wish."""


class Interrupted(BaseException):
    """The worker stopped the body (it drains): the run is given back, and no attempt is counted."""


def find_suspension(error: BaseException) -> Suspension | None:
    """The suspension that an error is, or carries: task groups wrap what passes through them."""
    if isinstance(error, Suspension):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            found = find_suspension(inner)
            if found is not None:
                return found
    return None
