"""How an activation ended, for whoever watches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from stepwell.states import RunState

__all__ = ["Activated"]


@dataclass(frozen=True, slots=True)
class Activated:
    """An activation has ended and its run stands in ``state``.

    Attributes:
        steps: How many steps it journaled.
        reason: Why, where the state alone does not say it.
        ready_in: The queue in which it is ready, if it was handed back.
        successor: The run that waits for this one to be over.
        wake_at: When the run will be looked at again, if it is parked until an instant.
        error: What the author's code raised, if the run failed by it.
        swallowed: Where in ``run()`` the end of the activation was caught that nobody may catch: file and line.
    """

    state: RunState
    steps: int = 0
    reason: str | None = None
    wake_at: datetime | None = None
    ready_in: str | None = None
    successor: UUID | None = None
    error: BaseException | None = None
    swallowed: str | None = None
