"""Runs followed from look to look: where they stand now, and what has changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import Connection

from stepwell.cli.progress import Meter, Pace, Progress, read_progress
from stepwell.engine.engine import Stepwell
from stepwell.states import LIVE, ExecutionState, RunState
from stepwell.store.reads import Order, RunFilter, list_runs, open_entries
from stepwell.store.rows import ExecutionRow, RunRow

__all__ = ["MOST", "Look", "Sight", "Watch"]

MOST: Final = 100
"""So many running runs are watched when nobody names any: more fit on no screen."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One run at one look.

    Attributes:
        run: Its row.
        entry: What it is at: the last entry of its journal that is not over, if there is one.
        progress: How far that has come, if it told.
        pace: How fast it goes.
    """

    run: RunRow
    entry: ExecutionRow | None = None
    progress: Progress | None = None
    pace: Pace | None = None

    @property
    def is_live(self) -> bool:
        """It goes on by itself; all others are over, or want a person."""
        return self.run.state in LIVE

    @property
    def mark(self) -> tuple[object, ...]:
        """What makes two looks differ. The time that has passed is not part of it."""
        run, entry = self.run, self.entry
        at = None if entry is None else (entry.position, entry.attempt, entry.scheduled_for, entry.cursor)
        return (run.state, run.reason, run.current_step, run.stop_request, at, self.progress)


@dataclass(frozen=True, slots=True)
class Look:
    """All runs at one look.

    Attributes:
        at: The instant, by the database's time.
        sights: The runs, in the order in which they were named; the oldest first when none was.
        gone: Runs that were named and are not there any more.
        are_named: Somebody named these runs; else they are those that run just now.
    """

    at: datetime
    sights: Sequence[Sight]
    gone: frozenset[UUID]
    are_named: bool

    @property
    def is_last(self) -> bool:
        """None of the runs goes on."""
        return self.are_named and not any(sight.is_live for sight in self.sights)

    @property
    def is_good(self) -> bool:
        """All of them have completed."""
        return not self.gone and all(sight.run.state == RunState.COMPLETED for sight in self.sights)


class Watch:
    """Follows runs.

    Args:
        engine: Whose runs.
        named: Which; None for those that run at each look, and once more those that have just stopped running.
    """

    def __init__(self, engine: Stepwell, named: Sequence[UUID] | None = None) -> None:
        self._engine = engine
        self._named = None if named is None else tuple(dict.fromkeys(named))
        self._running: Collection[UUID] = ()
        self._meters: dict[UUID, Meter] = {}

    def look(self) -> Look:
        """Read where the runs stand now."""
        with self._engine.reading() as connection:
            rows = self._rows(connection)
            entries = open_entries(connection, [row.id for row in rows if row.state in LIVE])
        now = self._engine.now()
        self._meters = {row.id: self._meters.get(row.id) or Meter() for row in rows}
        sights = [self._sight(row, entries.get(row.id, ()), now) for row in rows]
        gone = frozenset(self._named or ()) - {row.id for row in rows}
        return Look(now, sights, gone, self._named is not None)

    def _rows(self, connection: Connection) -> list[RunRow]:
        if self._named is not None:
            places = {run_id: place for place, run_id in enumerate(self._named)}
            return sorted(list_runs(connection, RunFilter(ids=self._named)), key=lambda row: places[row.id])
        running = list_runs(connection, RunFilter(states=[RunState.RUNNING]), Order.OLDEST, MOST)
        ids = {row.id for row in running}
        left = [run_id for run_id in self._running if run_id not in ids]
        self._running = ids
        return running + (list_runs(connection, RunFilter(ids=left), Order.OLDEST) if left else [])

    def _sight(self, run: RunRow, entries: Sequence[ExecutionRow], now: datetime) -> Sight:
        bodies = [row for row in entries if row.state == ExecutionState.IN_PROGRESS]
        if not bodies:
            return Sight(run, entries[-1] if entries else None)
        body = bodies[-1]
        progress = read_progress(body)
        pace = None if progress is None else self._meters[run.id].look(body, progress, now)
        return Sight(run, body, progress, pace)
