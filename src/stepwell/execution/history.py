"""A run's journal in memory, indexed: what a driver asks at each step must not be a walk through everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Reversible, Sequence
from typing import Final

from stepwell.execution.journal import Fact
from stepwell.states import UNFINISHED, Kind

__all__ = ["History"]

_NONE: Final[tuple[Fact, ...]] = ()


class History(Reversible[Fact]):
    """The rows that count, in their order.

    Args:
        facts: The rows as they were loaded.

    Attributes:
        last: The highest position; 0 in an empty journal.
        open: The unfinished rows, by position.
        commands: What people did, in order.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._rows: dict[int, Fact] = {}
        self._sites: dict[tuple[str, str, str | None], list[Fact]] = {}
        self.open: dict[int, Fact] = {}
        self.commands: list[Fact] = []
        self.last = 0
        sites = self._sites
        for fact in facts:
            # As remember() does, for rows that come in their order: a replay begins with thousands.
            self._rows[fact.position] = fact
            sites.setdefault((fact.kind, fact.name, fact.key), []).append(fact)
            if fact.state in UNFINISHED:
                self.open[fact.position] = fact
            elif fact.kind == Kind.COMMAND:
                self.commands.append(fact)
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

    def remember(self, row: Fact) -> None:
        """Add a row, or put it in the place of the unfinished one at its position."""
        position = row.position
        rows = self._sites.setdefault((row.kind, row.name, row.key), [])
        known = self._rows.get(position)
        if known is None:
            rows.append(row)
        else:
            rows[rows.index(known)] = row
            self.open.pop(position, None)
        self._rows[position] = row
        self.last = max(self.last, position)
        if row.state in UNFINISHED:
            self.open[position] = row
        elif row.kind == Kind.COMMAND:
            self.commands.append(row)
