"""Changes of a context that are made again, each where a replay comes past the row that recorded it."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from stepwell.execution.changes import held_through
from stepwell.execution.context import Context
from stepwell.execution.history import History
from stepwell.execution.journal import Fact
from stepwell.states import Kind

__all__ = ["AT_START", "Deltas", "is_seen_later"]

AT_START: Final = "start"
_BEFORE_ALL: Final = frozenset({AT_START, "start_over"})


class Deltas:
    """What the rows of a journal have changed in a run's context and a replay has not come past.

    Args:
        context: In which they are made.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._deltas: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._deltas)

    def begin(self, history: History) -> None:
        """``run()`` begins at its top: the context is as it was at the start."""
        self._context.restart()
        self._deltas, through = {}, 0
        # Few of thousands of rows have changed anything.
        changed = [
            (fact.position, fact.kind, fact.context_delta)
            for fact in history
            if fact.context_delta is not None
        ]
        for position, kind, delta in sorted(changed):
            if kind != Kind.CONTEXT or position > through:
                # Else a row before it holds it.
                self._deltas[position] = delta
            through = max(through, held_through(delta))
        first = [fact.position for fact in history.outside if not is_seen_later(fact)]
        if first:
            self.reach(first[-1])

    def reach(self, position: int) -> None:
        """Make all that were recorded up to a position."""
        if self._deltas:
            for each in list(takewhile(lambda known: known <= position, self._deltas)):
                self._context.apply(self._deltas.pop(each))

    def catch_up(self) -> None:
        """Make all: the context is what the whole journal says."""
        while self._deltas:
            self._context.apply(self._deltas.pop(next(iter(self._deltas))))


def is_seen_later(fact: Fact) -> bool:
    """It was changed from outside when ``run()`` was under way already."""
    return fact.kind == Kind.CONTEXT and fact.name not in _BEFORE_ALL
