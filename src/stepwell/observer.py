"""Seeing what the engine does: events as values, and whoever wants to see them.

Observers are told after the fact, outside of transactions. One that raises hurts nobody: its error is logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol
from uuid import UUID

from stepwell.logs import facts_logger

__all__ = ["Event", "EventKind", "Observer", "Observers"]

_log = facts_logger(__name__)


class EventKind(StrEnum):
    """What happened."""

    START = "start"
    """A run was inserted; in a caller's transaction it may still be rolled back."""
    CLAIM = "claim"
    """A worker took the run."""
    STEP = "step"
    """An attempt at a step, or a wait, was journaled."""
    PARK = "park"
    """The run waits, and nobody holds it."""
    SETTLE = "settle"
    """The run was given back: it is over, it needs attention, or it is ready for others."""
    SIGNAL = "signal"
    """A signal was put into the run's mailbox."""
    COMMAND = "command"
    """A person paused, resumed, skipped, canceled or rescheduled the run, or changed its context.

    ``facts`` has the verb and the answer.
    """
    RECOVER = "recover"
    """The run was taken from a lost worker."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a run.

    Attributes:
        kind: What.
        at: When, in store time.
        run_id: To which run.
        workflow: The workflow's stable name; None where the engine does not know it.
        step: The step, where it is about one.
        facts: More, by name: ``state``, ``outcome``, ``attempt``, ``reason``, ``worker``, ``error_class`` ….
    """

    kind: EventKind
    at: datetime
    run_id: UUID
    workflow: str | None = None
    step: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class Observer(Protocol):
    """Sees events; called on the thread on which they happen, so it should be quick."""

    def observe(self, event: Event) -> None:
        """Something happened."""
        ...


class Observers:
    """Tells several observers.

    Args:
        observers: Whom.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers: Final = tuple(observers)

    def __bool__(self) -> bool:
        return bool(self._observers)

    def tell(self, event: Event) -> None:
        """Tell all of them; what one of them raises is logged."""
        for observer in self._observers:
            try:
                observer.observe(event)
            except KeyboardInterrupt:
                # Of whoever waits at the terminal: an application's own thread may be the one that tells.
                raise
            except BaseException:
                _log.exception(
                    "an observer raised", extra={"action": "observer.failed", "run_id": str(event.run_id)}
                )
