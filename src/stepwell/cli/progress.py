"""How far a running step has come, how fast it goes, and how long it will still take."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from stepwell.cli.words import span
from stepwell.store.rows import ExecutionRow

__all__ = ["Meter", "Pace", "Progress", "progress_text", "read_progress"]

_WINDOW: Final = timedelta(seconds=60)
_APART: Final = timedelta(seconds=5)
_SOON: Final = timedelta(seconds=1)
_LEAST_SAMPLES: Final = 2
_LARGEST: Final = 2**63
_QUIET: Final = timedelta(seconds=30)
"""A worker stores news at each heartbeat, every ten seconds by default: this long without any is worth telling."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What ``self.progress(done, total)`` told.

    Attributes:
        done: How many are done.
        total: How many there are; None if nobody knows.
    """

    done: int
    total: int | None

    @property
    def share(self) -> float | None:
        """The part that is done, from 0 to 1; None if nobody knows."""
        if self.total is None or self.total <= 0:
            return None
        return min(1.0, max(0.0, self.done / self.total))

    def __str__(self) -> str:
        if self.total is None:
            return f"{self.done} done"
        share = self.share
        return f"{self.done} of {self.total}" + ("" if share is None else f" ({_percent(share)})")


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast it goes.

    Attributes:
        rate: How many are done in a second; None if that cannot be told yet.
        remaining: How long the rest will take; None if that cannot be told.
        quiet: For how long nothing has changed.
    """

    rate: float | None
    remaining: timedelta | None
    quiet: timedelta

    @property
    def is_quiet(self) -> bool:
        """Nothing has changed for longer than the news take."""
        return self.quiet >= _QUIET

    def __str__(self) -> str:
        parts = [] if self.rate is None else [f"{_number(self.rate)}/s"]
        if self.is_quiet:
            parts.append(f"no news for {span(self.quiet)}")
        elif self.remaining is not None:
            parts.append(f"{_rest(self.remaining)} left")
        return ", ".join(parts)


class Meter:
    """Measures the pace of one run's steps by what is seen of them, look by look.

    What is seen first may be as old as a heartbeat, so the pace is measured between changes that were seen. Until
    these are some seconds apart, it is the average since the step began.
    """

    def __init__(self) -> None:
        self._body: tuple[object, ...] | None = None
        self._seen: deque[tuple[datetime, int]] = deque()
        self._is_first = True

    def look(self, row: ExecutionRow, progress: Progress, now: datetime) -> Pace:
        """Take a look at the entry of the running step, and answer its pace."""
        body = (row.run_id, row.position, row.attempt, row.started_at)
        if body != self._body or not self._seen or progress.done < self._seen[-1][1]:
            # Another step, another attempt, or one that counts anew.
            self._body, self._is_first = body, True
            self._seen = deque([(now, progress.done)])
        elif progress.done > self._seen[-1][1]:
            if self._is_first:
                self._seen.clear()
                self._is_first = False
            self._seen.append((now, progress.done))
            while len(self._seen) > _LEAST_SAMPLES and now - self._seen[1][0] > _WINDOW:
                self._seen.popleft()
        rate, at = self._rate(row), self._seen[-1][0]
        return Pace(rate, _remaining(progress, rate, now - at), now - at)

    def _rate(self, row: ExecutionRow) -> float | None:
        (first_at, first), (at, done) = self._seen[0], self._seen[-1]
        # A step that went on from its cursor counts what was done before it began.
        has_average = row.started_at is not None and row.started_at < at and row.continues_from is None
        if at - first_at >= (_APART if has_average else _SOON):
            return (done - first) / (at - first_at).total_seconds()
        if row.started_at is None or not has_average:
            return None
        return max(0.0, done / (at - row.started_at).total_seconds())


def read_progress(row: ExecutionRow) -> Progress | None:
    """What an entry of the journal says about its progress; None if it says nothing that makes sense."""
    try:
        told = json.loads(row.details or "{}")["progress"]
        done, total = told["done"], told["total"]
    except (ValueError, KeyError, TypeError):
        return None
    if not _is_whole(done) or not (total is None or _is_whole(total)):
        return None
    return Progress(done, total)


def progress_text(progress: Progress, pace: Pace | None) -> str:
    """Progress and pace in one line."""
    return ", ".join(part for part in (str(progress), str(pace or "")) if part)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _remaining(progress: Progress, rate: float | None, since: timedelta) -> timedelta | None:
    """What is left by now: the estimate was made when the last news came."""
    if progress.total is None:
        return None
    left = progress.total - progress.done
    if left <= 0:
        return timedelta()
    if not rate:
        return None
    try:
        return max(timedelta(), timedelta(seconds=left / rate) - since)
    except OverflowError:
        return None


def _percent(share: float) -> str:
    """Rounded down: 100 % means that nothing is left."""
    return f"{int(share * 100)} %"


def _number(rate: float) -> str:
    if rate >= 100:
        return f"{rate:.0f}"
    return f"{rate:.1f}" if rate >= 1 else f"{rate:.2g}"


def _rest(remaining: timedelta) -> str:
    """Two units, so that one sees it shrink: ``1 h 12 min``."""
    seconds = int(remaining.total_seconds())
    if seconds >= 86_400:
        return f"{seconds // 86_400} d {seconds % 86_400 // 3_600} h"
    if seconds >= 3_600:
        return f"{seconds // 3_600} h {seconds % 3_600 // 60} min"
    if seconds >= 60:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds} s"
