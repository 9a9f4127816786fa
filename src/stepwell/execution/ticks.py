"""One tick of a repetition, as its rows keep it: whoever looks at the last row needs no other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stepwell.clock import from_micros, to_micros
from stepwell.execution.journal import Fact

__all__ = ["Tick"]


@dataclass(frozen=True, slots=True)
class Tick:
    """Where a repetition stands.

    Attributes:
        number: Its place in the grid, from 1.
        at: Its instant, whenever it is run.
        anchor: The instant from which a calendar's grid is laid out.
        since: When the repetition was first reached.
        done: How many ticks have succeeded before it.
    """

    number: int
    at: datetime
    anchor: datetime
    since: datetime
    done: int = 0

    @classmethod
    def read(cls, fact: Fact) -> Tick | None:
        """What a row keeps; None if that cannot be read."""
        try:
            kept = json.loads(fact.details or "{}")["tick"]
            at, anchor, since = (from_micros(kept[name]) for name in ("at", "anchor", "since"))
            return cls(int(kept["number"]), at, anchor, since, int(kept["done"]))
        except (ValueError, LookupError, TypeError, OverflowError):
            return None

    def key(self, repetition: str | None) -> str:
        """The key of its rows."""
        return f"{self.number}{repetition or ''}"

    def kept(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What is to be stored in a row of it, and what each row of it keeps."""
        tick = {
            "number": self.number,
            "at": to_micros(self.at),
            "anchor": to_micros(self.anchor),
            "since": to_micros(self.since),
            "done": self.done,
        }
        details = json.loads(values.get("details") or "{}")
        instant = values.get("scheduled_for") or self.at
        return {**values, "scheduled_for": instant, "details": json.dumps({**details, "tick": tick})}
