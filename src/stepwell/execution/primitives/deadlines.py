"""A limit on how long a whole run may take."""

from __future__ import annotations

from datetime import datetime, timedelta

from stepwell.errors import DeadlineExceeded
from stepwell.execution.primitives.waiting import WaitFailed
from stepwell.execution.recorder import Recorder

__all__ = ["Deadline"]


class Deadline:
    """Looked at before each step; a run that is parked is woken for it.

    Args:
        recorder: The run's journal.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._limit: timedelta | None = recorder.run.workflow.deadline
        self._includes_waits: bool = recorder.run.workflow.deadline_includes_waits
        if self._limit is not None and self._includes_waits:
            recorder.wake_by = recorder.run.begins_at + self._limit

    def check(self) -> None:
        """Raise if the run has taken longer than it may: an error of the step that comes next.

        Raises:
            WaitFailed: With DeadlineExceeded.
        """
        if self._limit is None:
            return
        now = self._recorder.now()
        taken = now - self._recorder.run.begins_at
        if not self._includes_waits:
            taken -= self._waited(now)
        if taken >= self._limit:
            what = "" if self._includes_waits else ", its waits not counted"
            raise WaitFailed(
                DeadlineExceeded(
                    f"the run has taken {taken}{what}; its deadline is {self._limit} after its start."
                )
            )

    def _waited(self, now: datetime) -> timedelta:
        """How long the run was parked on purpose: from the end of one row until the next one was due."""
        total = timedelta()
        begin = self._recorder.run.begins_at
        for fact in self._recorder.facts:
            if fact.scheduled_for is not None:
                end = min(fact.scheduled_for, fact.started_at or fact.finished_at or now)
                total += max(timedelta(), end - begin)
            begin = fact.finished_at or begin
        return total
