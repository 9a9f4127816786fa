"""What Stepwell must reach, as numbers to be compared with the measured ones; no figure is made here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.figures import Figures, Key, ratio

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Target:
    """One demand.

    Args:
        scenario: Its letter.
        database: Its kind.
        label: Which figure of Stepwell's.
        wanted: The least, or with ``is_limit`` the most.
        against: The figure is divided by this system's.
        over: The figure is divided by Stepwell's own of this label.
    """

    scenario: str
    database: str
    label: str
    wanted: float
    against: str | None = None
    over: str | None = None
    is_limit: bool = False


TARGETS = (
    Target("a", "postgresql", "1 thread", 5, against="dbos"),
    Target("a", "postgresql", "16 threads", 15, against="dbos"),
    Target("a", "postgresql", "1 thread", 2, against="absurd"),
    Target("a", "postgresql", "16 threads", 6, against="absurd"),
    Target("a", "sqlite", "16 threads", 15, against="dbos"),
    *(
        Target("a", database, label, 0.4, against="bare")
        for database in ("postgresql", "sqlite")
        for label in ("1 thread", "4 threads", "16 threads")
    ),
    Target("b", "postgresql", "single", 800),
    Target("b", "postgresql", "bulk", 10_000),
    Target("c", "postgresql", "p50", 10, is_limit=True),
    Target("c", "sqlite", "p50", 10, is_limit=True),
    Target("d", "postgresql", "10,000 drained", 8, is_limit=True),
    Target("d", "postgresql", "10,000, peak memory", 120, is_limit=True),
    Target("e", "postgresql", "200,000 finished", 0.9, over="0 finished"),
    Target("e", "sqlite", "200,000 finished", 0.9, over="0 finished"),
    *(
        target
        for database in ("postgresql", "sqlite")
        for target in (
            Target("f", database, "100,000 rows", 0.5, against="plain"),
            Target(
                "f",
                database,
                "100,000 rows, peak memory",
                1.1,
                over="10,000 rows, peak memory",
                is_limit=True,
            ),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A demand and what was found."""

    target: Target
    found: float

    @property
    def is_met(self) -> bool:
        if self.target.is_limit:
            return self.found <= self.target.wanted
        return self.found >= self.target.wanted


def judge(figures: Figures) -> Iterator[Verdict]:
    """Each demand for which both sides were measured, and as large as it is meant."""
    for target in TARGETS:
        key = Key(target.scenario, target.database, target.label, "stepwell")
        own = figures.find(key)
        if own is None:
            continue
        if target.against is None and target.over is None:
            yield Verdict(target, own.median)
            continue
        label, system = target.over or target.label, target.against or "stepwell"
        other = figures.find(Key(target.scenario, target.database, label, system))
        if other is not None:
            yield Verdict(target, ratio(own, other))
