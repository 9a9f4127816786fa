"""What somebody asks of a run that a worker drives: a small text on the run's row, or in its mailbox."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

__all__ = ["CONTEXT_MAIL", "ContextChange", "StopRequest"]

CONTEXT_MAIL: Final = " context"
"""What a change of the context is called in the mailbox: no signal's name begins with a space."""

_STRENGTH: Final = {"skip": 1, "pause": 2, "cancel": 3}


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request to stop a run, or to leave out its step.

    Attributes:
        verb: ``cancel``, ``pause`` or ``skip``.
        reason: Why, if anybody said so.
        by: Who asks, if that was said.
        at: When it was asked.
        step: The step that the run was at then: a skip is void once that one is over.
        was: The state that the run was in, if it was not being driven.
        successor: The run that waits for this one to be over.
        is_urgent: A coroutine that is running is cancelled for it.
    """

    verb: str
    reason: str | None = None
    by: str | None = None
    at: datetime | None = None
    step: str | None = None
    was: str | None = None
    successor: UUID | None = None
    is_urgent: bool = False

    @classmethod
    def parse(cls, text: str | None) -> StopRequest | None:
        """The request that a row's text says; None where there is none, or none that can be read. Never raises."""
        try:
            said = json.loads(text) if text else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict) or not isinstance(said.get("verb"), str):
            return None
        return cls(
            verb=said["verb"],
            at=_instant(said.get("at")),
            successor=_run_id(said.get("successor")),
            is_urgent=said.get("now") is True,
            **{name: _text(said.get(name)) for name in ("reason", "by", "step", "was")},
        )

    def text(self) -> str:
        """The request as a row keeps it."""
        said: dict[str, Any] = {
            "verb": self.verb,
            "reason": self.reason,
            "by": self.by,
            "at": None if self.at is None else self.at.isoformat(),
            "step": self.step,
            "was": self.was,
            "successor": None if self.successor is None else str(self.successor),
            "now": self.is_urgent or None,
        }
        return json.dumps({name: value for name, value in said.items() if value is not None})

    def beats(self, verb: str) -> bool:
        """It is stronger than a request for this verb: cancel beats pause beats skip."""
        return _STRENGTH.get(self.verb, 0) > _STRENGTH.get(verb, 0)

    def note(self, state: str) -> str:
        """Who asked for it, when, why, and of a run in which state: what the journal keeps of it.

        Args:
            state: The state that the run was in when the request was honoured.
        """
        said = {"by": self.by, "from": self.was or state, "reason": self.reason}
        return json.dumps(said if self.at is None else {**said, "asked_at": self.at.isoformat()})


@dataclass(frozen=True, slots=True)
class ContextChange:
    """What somebody changes in a run's context: in its mailbox until a driver takes it up.

    Attributes:
        delta: The change, as the journal records it.
        by: Who changes it, if that was said.
        at: When that was.
    """

    delta: str
    by: str | None = None
    at: datetime | None = None

    @classmethod
    def parse(cls, text: str | None) -> ContextChange | None:
        """The change that a mailbox's text says; None if it says none. Never raises."""
        try:
            said = json.loads(text or "")
        except (ValueError, RecursionError):
            return None
        match said:
            case {"delta": str(delta), "by": str() | None as by, "at": at}:
                return cls(delta, by, _instant(at))
        return None

    def text(self) -> str:
        """The change as a mailbox keeps it."""
        at = None if self.at is None else self.at.isoformat()
        return json.dumps({"delta": self.delta, "by": self.by, "at": at})

    def note(self) -> str:
        """Who changed it, and when: what the journal keeps of it beside the change."""
        said = {"by": self.by}
        return json.dumps(said if self.at is None else {**said, "asked_at": self.at.isoformat()})


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _instant(value: object) -> datetime | None:
    try:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    # One without a zone cannot be compared with any other.
    return None if instant is None or instant.tzinfo is None else instant


def _run_id(value: object) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None
