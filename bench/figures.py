"""What came out: figures, each the median of several measurements, and what did not come about."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Figure", "Figures", "Key", "ratio"]


@dataclass(frozen=True, slots=True)
class Key:
    """Which figure: the same key but for the system means the same work."""

    scenario: str
    database: str
    label: str
    system: str


@dataclass(slots=True)
class Figure:
    """A measured value, each time it was measured.

    Args:
        unit: Of its values.
        mode: In which of its modes the system was measured.
        values: One for each round.
        notes: What else was seen: other modes, how many runs.
    """

    unit: str
    mode: str | None = None
    values: list[float] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.values)


def ratio(own: Figure, other: Figure) -> float:
    """How many times the other one: the median over the rounds, each of which saw the same machine."""
    if len(own.values) == len(other.values):
        return statistics.median(mine / theirs for mine, theirs in zip(own.values, other.values, strict=True))
    return own.median / other.median


class Figures:
    """All figures of one run of the benchmark, in the order of their measurement."""

    def __init__(self) -> None:
        self._figures: dict[Key, Figure] = {}
        self.failures: list[tuple[Key, str]] = []

    def add(self, key: Key, value: float, unit: str, *, mode: str | None = None, **notes: Any) -> None:
        """Record one measurement."""
        figure = self._figures.setdefault(key, Figure(unit, mode))
        figure.values.append(value)
        figure.notes.update(notes)

    def fail(self, key: Key, message: str) -> None:
        """Record that one did not come about; what was measured for this key before is void."""
        self._figures.pop(key, None)
        self.failures.append((key, message))

    def find(self, key: Key) -> Figure | None:
        return self._figures.get(key)

    def __iter__(self) -> Iterator[tuple[Key, Figure]]:
        return iter(self._figures.items())
