"""A limit on how long a whole run may take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from stepwell.clock import later
from stepwell.errors import DeadlineExceeded
from stepwell.execution.history import History
from stepwell.execution.journal import Fact
from stepwell.execution.primitives.waiting import WaitFailed
from stepwell.execution.recorder import Recorder
from stepwell.execution.ticks import Tick
from stepwell.states import RESUMING, Kind, Outcome, RunState

__all__ = ["Deadline"]

_WAITS: Final = (Kind.SIGNAL, Kind.GATE, Kind.POLL, Kind.TIMER, Kind.CALL, Kind.REPEAT)


class Deadline:
    """Looked at before each step; a run that is parked is woken for it.

    Args:
        recorder: The run's journal.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._limit: timedelta | None = recorder.run.workflow.deadline
        self._includes_waits: bool = recorder.run.workflow.deadline_includes_waits
        if self._limit is None:
            return
        self._began_at = _resumed_at(recorder.history) or recorder.run.begins_at
        if self._includes_waits:
            recorder.wake_by = later(self._began_at, self._limit)

    def check(self) -> None:
        """Raise if the run has taken longer than it may: an error of the step that comes next.

        Raises:
            WaitFailed: With DeadlineExceeded.
        """
        if self._limit is None:
            return
        now = self._recorder.now()
        taken = now - self._began_at
        if not self._includes_waits:
            taken -= _total(_waits(self._recorder.history, self._began_at, now))
        if taken >= self._limit:
            what = "" if self._includes_waits else ", its waits not counted"
            raise WaitFailed(
                DeadlineExceeded(
                    f"the run has taken {taken}{what}; its deadline is {self._limit} after its start."
                )
            )


def _resumed_at(history: History) -> datetime | None:
    """When a person last had the run go on after a failure: it has its whole time again."""
    for fact in reversed(history.commands):
        if fact.name in RESUMING and json.loads(fact.details or "{}").get("from") == RunState.FAILED:
            return fact.finished_at
    return None


def _waits(history: History, began_at: datetime, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """From when to when the run stood still on purpose: its steps' waits, and what people made it wait.

    The delay before a retry is none of these: it is trouble, and takes its time.
    """
    end, paused_at = began_at, None
    latest: dict[str, Fact] = {}
    for fact in history.open_repetitions():
        # Between the ticks it stands still, and in them it does not stay long: all of it counts as a wait.
        tick = Tick.read(fact)
        if tick is not None:
            yield max(tick.since, began_at), now
    for fact in history:
        if fact.kind in _WAITS and fact.started_at is not None:
            yield max(fact.started_at, began_at), fact.finished_at or now
        elif fact.kind == Kind.COMMAND and fact.finished_at is not None:
            if fact.name in RESUMING:
                yield paused_at or end, fact.finished_at
            paused_at = fact.finished_at if fact.name == "pause" else None
        elif fact.kind == Kind.STEP:
            before = latest.get(fact.name)
            is_retry = before is not None and before.outcome in (Outcome.RETRIED, Outcome.TIMED_OUT)
            if fact.scheduled_for is not None and not is_retry:
                yield end, min(fact.scheduled_for, fact.started_at or fact.finished_at or now)
            latest[fact.name] = fact
        end = max(end, fact.finished_at or end)


def _total(spans: Iterator[tuple[datetime, datetime]]) -> timedelta:
    """How long the spans take together; what lies in two of them counts once."""
    total, covered = timedelta(), None
    for begin, end in sorted(spans):
        if covered is not None:
            begin = max(begin, covered)
        total += max(timedelta(), end - begin)
        covered = end if covered is None else max(covered, end)
    return total
