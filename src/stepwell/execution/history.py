"""A run's journal in memory, indexed: what a driver asks at each step must not be a walk through everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Reversible, Sequence
from functools import reduce
from typing import Final

from stepwell.execution.changes import held_through, merged
from stepwell.execution.journal import Fact
from stepwell.states import UNFINISHED, Kind

__all__ = ["History", "repetition_of"]

_NONE: Final[tuple[Fact, ...]] = ()


class History(Reversible[Fact]):
    """The rows that count, in their order.

    Args:
        facts: The rows as they were loaded.

    Attributes:
        last: The highest position; 0 in an empty journal.
        open: The unfinished rows, by position.
        commands: What people did, in order.
        outside: Changes of the context that were none of the run's own, in order.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._rows: dict[int, Fact] = {}
        self._sites: dict[tuple[str, str, str | None], list[Fact]] = {}
        self.open: dict[int, Fact] = {}
        self.commands: list[Fact] = []
        self.outside: list[Fact] = []
        self.last = 0
        self._last_ticks: dict[tuple[str, str | None], Fact] = {}
        self._last_changes: dict[tuple[str, str | None], Fact] = {}
        sites = self._sites
        for fact in facts:
            # As remember() does, for rows that come in their order: a replay begins with thousands.
            self._rows[fact.position] = fact
            sites.setdefault((fact.kind, fact.name, fact.key), []).append(fact)
            if fact.state in UNFINISHED:
                self.open[fact.position] = fact
            elif fact.kind == Kind.COMMAND:
                self.commands.append(fact)
            elif fact.kind == Kind.CONTEXT:
                self.outside.append(fact)
            if fact.kind == Kind.TICK:
                self._remember_tick(fact)
        self.last = max(self._rows, default=0)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._rows.values())

    def __reversed__(self) -> Iterator[Fact]:
        return reversed(self._rows.values())

    def at(self, position: int) -> Fact | None:
        """The row at a position."""
        return self._rows.get(position)

    def of(self, kind: str, name: str, key: str | None = None) -> Sequence[Fact]:
        """The rows of one site, in order."""
        return self._sites.get((kind, name, key), _NONE)

    def sites(self) -> Iterable[tuple[tuple[str, str, str | None], Sequence[Fact]]]:
        """Each (kind, name, key) with its rows."""
        return self._sites.items()

    def last_tick(self, name: str, repetition: str | None) -> Fact | None:
        """The last row of the ticks of one repetition: what comes before it is past."""
        return self._last_ticks.get((name, repetition))

    def ticks_changes(self, name: str, repetition: str | None) -> str | None:
        """What the ticks of one repetition have changed in the context so far, and whoever changed it after them."""
        last = self._last_changes.get((name, repetition))
        if last is None:
            return None
        held = max(last.position, held_through(last.context_delta))
        return reduce(merged, self.changes_behind(held), last.context_delta)

    def changes_behind(self, position: int) -> list[str | None]:
        """What was changed in the context from outside after the row at a position was first written, in order."""
        return [row.context_delta for row in self.outside if row.position > position]

    def open_repetitions(self) -> list[Fact]:
        """The last tick of each repetition that has not ended."""
        return [row for site, row in self._last_ticks.items() if not self.of(Kind.REPEAT, *site)]

    def remember(self, row: Fact) -> None:
        """Add a row, or put it in the place of the unfinished one at its position."""
        position = row.position
        rows = self._sites.setdefault((row.kind, row.name, row.key), [])
        known = self._rows.get(position)
        # One of a kind that only a newer version knows is ended as another.
        if known is None or known not in rows:
            rows.append(row)
        else:
            rows[rows.index(known)] = row
        self.open.pop(position, None)
        self._rows[position] = row
        self.last = max(self.last, position)
        if row.kind == Kind.TICK:
            self._remember_tick(row)
        if row.state in UNFINISHED:
            self.open[position] = row
        elif row.kind == Kind.COMMAND:
            self.commands.append(row)
        elif row.kind == Kind.CONTEXT:
            self.outside.append(row)

    def _remember_tick(self, row: Fact) -> None:
        site = (row.name, repetition_of(row.key))
        for known, counts in ((self._last_ticks, True), (self._last_changes, row.context_delta is not None)):
            if counts and (site not in known or known[site].position <= row.position):
                known[site] = row


def repetition_of(key: str | None) -> str | None:
    """The key of the repetition to which a tick belongs: ``#2`` of ``7#2``."""
    _, sign, number = (key or "").partition("#")
    return sign + number or None
