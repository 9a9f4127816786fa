"""Driving runs on the current thread, on a clock that a test moves: a worker's work, without its threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final

from stepwell import ManualClock, Run, Stepwell, Worker
from stepwell.engine.activation import activate
from stepwell.execution.outcome import Activated
from stepwell.states import LIVE
from stepwell.worker.claimer import Claimed, Claimer
from stepwell.worker.contact import Contact

__all__ = ["Driver"]

_MOST: Final = 500


class _Proven(Contact):
    """The database has always answered: leases that have run out may be taken at once."""

    def is_proven(self) -> bool:
        return True


class Driver:
    """A worker's hands: claims what is due and drives it, one run after the other.

    Args:
        well: The engine; its clock is a ``ManualClock``.
        queues: The queues to take from.

    Attributes:
        began_at: The instant at which the test began.
        should_yield: What the time slice says.
        is_draining: The worker takes on nothing more.
    """

    def __init__(self, well: Stepwell, queues: Sequence[str] = ("default", "heavy")) -> None:
        assert isinstance(well.clock, ManualClock), "tests that drive by hand move the clock themselves"
        self.well = well
        self.clock: ManualClock = well.clock
        self.began_at = well.clock.now()
        self.should_yield = False
        self.is_draining = False
        # A worker that is never started: what it offers to activations is used from here.
        self.worker = Worker(well, queues, threads=1, name="by hand")
        self._claimer = Claimer(well, queues, "by hand", _Proven(10.0), 1.0)
        self._place = replace(
            self.worker._place,
            should_yield=lambda seconds, steps: self.should_yield,
            is_draining=lambda: self.is_draining,
        )

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.worker._loop.close()
        self.worker._watchdog.close()

    def claim(self, room: int = 50) -> list[Claimed]:
        """Promote, recover and claim, as one tick does."""
        claimed, _ = self._claimer.tick(room)
        return claimed

    def activate(self, claimed: Claimed) -> Activated | None:
        """Drive one claimed run until it parks or ends."""
        return activate(self.well, claimed.run, claimed.lease, self._place, claimed.history)

    def drain(self) -> int:
        """Drive whatever is due now, until nothing is; answer how many activations it took."""
        count = 0
        while count < _MOST:
            # What a tick recovers is due at the next one.
            claimed = self.claim() or self.claim()
            if not claimed:
                return count
            for each in claimed:
                self.activate(each)
                count += 1
        raise AssertionError("runs are due again and again")

    def travel(self, duration: timedelta) -> int:
        """Let time pass, then drive what has become due."""
        self.clock.travel(duration)
        return self.drain()

    def finish(self, run: Run) -> Run:
        """Let as much time pass as it takes until the run is over or wants a person."""
        self.drain()
        for _ in range(_MOST):
            row = run.info()
            if row.state not in LIVE:
                return run
            assert row.wake_at is not None, run.explain()
            self.travel(max(row.wake_at - self.clock.now(), timedelta()))
        raise AssertionError(run.explain())

    def waits(self, run: Run) -> timedelta | None:
        """How long until the run wakes by itself."""
        wake_at: datetime | None = run.info().wake_at
        return None if wake_at is None else wake_at - self.clock.now()
