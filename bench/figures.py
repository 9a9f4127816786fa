"""What came out: figures, each the median of several measurements, and what did not come about."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Figure", "Figures", "Key", "ratio"]


_BEST_LOW = frozenset({"s", "ms", "MB"})


@dataclass(frozen=True, slots=True)
class Key:
    """Which figure: the same key but for the system means the same work."""

    scenario: str
    database: str
    label: str
    system: str


@dataclass(slots=True)
class Figure:
    """A value, each time it was measured, in each mode that the system has.

    Args:
        unit: Of its values.
        is_best_low: Whether less is better.
        by_mode: The values by mode, one for each round.
    """

    unit: str
    is_best_low: bool = False
    by_mode: dict[str, list[float]] = field(default_factory=dict)

    @property
    def mode(self) -> str:
        """The mode in which the system did best over all rounds."""
        best = min if self.is_best_low else max
        return best(self.by_mode, key=lambda mode: statistics.median(self.by_mode[mode]))

    @property
    def values(self) -> list[float]:
        """Those of the best mode."""
        return self.by_mode[self.mode]

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

    def add(self, key: Key, value: float, unit: str, mode: str) -> None:
        """Record one measurement."""
        figure = self._figures.setdefault(key, Figure(unit, unit in _BEST_LOW))
        figure.by_mode.setdefault(mode, []).append(value)

    def fail(self, key: Key, message: str) -> None:
        """Record that one did not come about; what was measured for this key before is void."""
        self._figures.pop(key, None)
        self.failures.append((key, message))

    def find(self, key: Key) -> Figure | None:
        return self._figures.get(key)

    def __iter__(self) -> Iterator[tuple[Key, Figure]]:
        return iter(self._figures.items())
