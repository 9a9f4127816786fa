"""What the harness asks of every system, in words that all of them can answer.

The work is the same everywhere: a *ten* is a run of ten steps that do nothing, a *sleeper* is a run that is
parked until an instant and then does one step that does nothing.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

__all__ = ["STEPS", "Counts", "Engine", "System", "Tally", "Unfinished", "tally"]

STEPS = 10
"""Steps of a ten."""


class Unfinished(Exception):
    """Work was not done in time, or not exactly once; the figure would be worthless."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the system's tables hold: runs that are over, and steps that are journaled as done."""

    runs: int
    steps: int

    def __sub__(self, other: Counts) -> Counts:
        return Counts(self.runs - other.runs, self.steps - other.steps)


class Tally:
    """Counts the bodies of steps as they begin, and tells when the expected number has.

    It costs a body well under a microsecond, and the same for every system (``next`` on a C iterator is
    atomic).
    """

    def __init__(self) -> None:
        self.expect(0)

    def expect(self, bodies: int) -> None:
        self._numbers = itertools.count(1)
        self._expected = bodies
        self._all_begun = threading.Event()
        self.first_at = 0.0
        """When the first body began, by ``time.perf_counter``."""

    def begin(self) -> None:
        """To be called on the first line of each step."""
        number = next(self._numbers)
        if number == 1:
            self.first_at = time.perf_counter()
        if number == self._expected:
            self._all_begun.set()

    def wait(self, seconds: float) -> None:
        if not self._all_begun.wait(seconds):
            begun = next(self._numbers) - 1
            raise Unfinished(f"{begun} of {self._expected} steps had begun after {seconds:.0f} s")


tally = Tally()
"""The one of this process: it measures one system at a time."""


class System(Protocol):
    """Something that journals steps durably."""

    def modes(self, threads: int) -> Sequence[str]:
        """The ways in which it can do this work; the fastest is found by trying."""

    def create(self) -> None:
        """Make its tables in the fresh database."""

    def prepare(self, runs: int, mode: str) -> None:
        """Bring this many tens to the point where only a worker is missing."""

    def work(self, threads: int, mode: str) -> None:
        """Set this many threads to work, and return."""

    def rest(self) -> None:
        """End what ``work`` began, so that nothing of it disturbs the next system's turn."""

    def unfinished(self) -> int:
        """How many runs are not over; cheap enough to be asked every few milliseconds."""

    def counts(self) -> Counts: ...

    def close(self) -> None: ...


@runtime_checkable
class Engine(System, Protocol):
    """A system with runs of its own: it can start, park, and wake them."""

    def start(self) -> Any:
        """Start one ten, to be taken up by whichever process works."""

    def start_bulk(self, runs: int) -> None:
        """Start this many tens by its quickest means, committed on return."""

    def listen(self) -> None:
        """Begin to work as one who wants the lowest latency would."""

    def start_idle(self) -> Any:
        """Start one ten in the process that listens, by the quickest means."""

    def waking_mode(self, threads: int) -> str:
        """The fastest of its modes for runs that are parked in the tables."""

    def park(self, sleepers: int, due: float) -> None:
        """Have this many sleepers parked until ``due`` (seconds since 1970)."""

    def seed(self, runs: int) -> None:
        """Fill the tables with this many tens that are over."""
