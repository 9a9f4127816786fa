"""What comes of looking at something that a step waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from stepwell.entries import Execution
from stepwell.execution.outcome import Activated

__all__ = ["DUE", "WaitFailed", "Waited"]


class WaitFailed(Exception):
    """A wait ran out, or the author's condition raised: an error of that step, before its body.

    Attributes:
        error: The error that the step's policies decide about.
        row: The wait's own row, which ends in the same write as the step's attempt; None leaves it open.
    """

    def __init__(self, error: BaseException, row: Execution | None = None) -> None:
        super().__init__()
        self.error = error
        self.row = row


@dataclass(frozen=True, slots=True)
class Waited:
    """What came of looking.

    Attributes:
        is_due: The step may run.
        ended: The activation has ended (parked); None with ``is_due`` false means: look again.
        payload: What a signal brought.
    """

    is_due: bool
    ended: Activated | None = None
    payload: Any = None


DUE: Final = Waited(is_due=True)
