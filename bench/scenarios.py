"""The six scenarios: which process measures what, and in which order.

Within a round each system has its turn, and the next round goes the other way: what the machine does
meanwhile hits all of them alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.databases import Databases
from bench.figures import Figures, Key
from bench.options import Options
from bench.process import Child, Failure

__all__ = ["Crew", "run_scenario"]

THREADS = (1, 4, 16)
LOOPS = ("stepwell", "plain")
"""Whom (f) compares, whatever peers are asked for."""
_MOST = THREADS[-1]
_SERVERS_ONLY = {"absurd"}
_NO_ENGINE = {"bare"}
_FIRST_LEAD_SECONDS = 3.0
_LEADS = 4
_FEWER = 10


class Crew:
    """The systems that take part in a scenario, each with a process and a fresh database.

    A system whose measurement fails leaves; the others go on.
    """

    def __init__(self, scenario: str, databases: Databases, options: Options, figures: Figures) -> None:
        self.options = options
        self._scenario = scenario
        self._databases = databases
        self._figures = figures
        absent = (_NO_ENGINE if scenario != "a" else set()) | (
            _SERVERS_ONLY if databases.kind == "sqlite" else set()
        )
        self._systems = [system for system in options.systems if system not in absent]
        if scenario == "f":
            self._systems = list(LOOPS) if "stepwell" in options.systems else []
        self._round = 0

    def turns(self) -> Iterator[str]:
        """Each system still there, in an order that alternates with each call."""
        self._round += 1
        yield from list(self._systems if self._round % 2 else reversed(self._systems))

    @contextmanager
    def child(self, system: str, url: str) -> Iterator[Child]:
        child = Child(system, url)
        try:
            yield child
        finally:
            child.close()

    @contextmanager
    def children(self, label: str = "") -> Iterator[dict[str, Child]]:
        """A process with its tables made, for each system."""
        with ExitStack() as stack:
            found: dict[str, Child] = {}
            for system in list(self._systems):
                url = stack.enter_context(self._databases.fresh(system))
                child = stack.enter_context(self.child(system, url))
                with self.attempt(system, label or "setup"):
                    child.measure("create")
                    found[system] = child
            yield found

    def fresh(self, system: str) -> Any:
        """The URL of a fresh database, for as long as the context lasts."""
        return self._databases.fresh(system)

    @contextmanager
    def attempt(self, system: str, label: str) -> Iterator[None]:
        """Where a measurement may fail without ending all."""
        try:
            yield
        except Failure as failure:
            self._figures.fail(self._key(system, label), str(failure))
            if system in self._systems:
                self._systems.remove(system)

    def record(self, system: str, label: str, value: float, unit: str, mode: str) -> None:
        self._figures.add(self._key(system, label), value, unit, mode)

    def _key(self, system: str, label: str) -> Key:
        return Key(self._scenario, self._databases.kind, label, system)


def run_scenario(scenario: str, databases: Databases, options: Options, figures: Figures) -> None:
    """Measure one scenario on one kind of database with all systems."""
    _RUN[scenario](Crew(scenario, databases, options, figures))


def _throughput(crew: Crew) -> None:
    with crew.children() as children:
        for threads in THREADS:
            label = f"{threads} thread{'s' if threads > 1 else ''}"
            sizes = _sizes(crew, children, threads, label)
            for _ in range(crew.options.rounds):
                for system in crew.turns():
                    with crew.attempt(system, label):
                        _measure_steps(crew, system, label, children[system], sizes[system], threads)


def _sizes(crew: Crew, children: dict[str, Child], threads: int, label: str) -> dict[str, dict[str, int]]:
    """For each system and each of its modes, how many runs are measured at a time."""
    sizes: dict[str, dict[str, int]] = {}
    for system in crew.turns():
        with crew.attempt(system, label):
            found = children[system].measure("trial", threads=threads, seconds=crew.options.seconds)["runs"]
            sizes[system] = {mode: crew.options.runs or runs for mode, runs in found.items()}
    return sizes


def _measure_steps(
    crew: Crew, system: str, label: str, child: Child, sizes: dict[str, int], threads: int
) -> None:
    """Once in each mode: only all rounds together tell which is the best."""
    for mode, runs in sizes.items():
        found = child.measure("throughput", runs=runs, threads=threads, mode=mode)
        crew.record(system, label, found["value"], "steps/s", mode)


def _starts(crew: Crew) -> None:
    with crew.children() as children:
        for _ in range(crew.options.rounds):
            for system in crew.turns():
                # In one: a system that failed at the first must not be asked for the second.
                with crew.attempt(system, "single and bulk"):
                    child, seconds = children[system], crew.options.seconds / 2
                    found = child.measure("starts", seconds=seconds)
                    crew.record(system, "single", found["value"], "starts/s", "one by one")
                    found = child.measure("bulk", seconds=seconds)
                    crew.record(system, "bulk", found["value"], "starts/s", "in bulk")


def _latency(crew: Crew) -> None:
    rounds = min(2, crew.options.rounds)
    with crew.children() as children:
        samples: dict[str, list[float]] = {}
        for _ in range(rounds):
            for system in crew.turns():
                with crew.attempt(system, "idle"):
                    found = children[system].measure("latency", samples=crew.options.samples // rounds)
                    samples.setdefault(system, []).extend(found["samples"])
        for system, values in samples.items():
            cuts = statistics.quantiles(values, n=20)
            crew.record(system, "p50", statistics.median(values), "ms", "idle")
            crew.record(system, "p95", cuts[18], "ms", "idle")


def _sleepers(crew: Crew) -> None:
    for system in crew.turns():
        with crew.attempt(system, "drained"):
            _drain_sleepers(crew, system)


def _drain_sleepers(crew: Crew, system: str) -> None:
    """Park in one process; wake in another, so that its memory is the worker's alone."""
    count = crew.options.sleepers
    lead = _FIRST_LEAD_SECONDS + count / 2500
    for _ in range(_LEADS):
        with crew.fresh(system) as url:
            due = time.time() + lead
            with crew.child(system, url) as child:
                child.measure("create")
                headway = child.measure("park", sleepers=count, due=due)["headway"]
            if headway < _FIRST_LEAD_SECONDS / 2:
                # Parking took longer than thought, and some may be awake by now: again, with more time.
                lead += 2 * (lead - headway)
                continue
            with crew.child(system, url) as child:
                mode = child.measure("wake_mode", threads=_MOST)["mode"]
                found = child.measure("wake", sleepers=count, due=due, threads=_MOST, mode=mode)
        crew.record(system, f"{count:,} drained", found["value"], "s", mode)
        crew.record(system, f"{count:,}, peak memory", found["peak_mb"], "MB", mode)
        return
    raise Failure(f"park: {count} sleepers were not parked within {lead:.0f} s")


def _finished(crew: Crew) -> None:
    full = f"{crew.options.finished:,} finished"
    with crew.children("empty") as empty, crew.children("full") as filled:
        for system in crew.turns():
            with crew.attempt(system, full):
                filled[system].measure("seed", runs=crew.options.finished)
        sizes = _sizes(crew, empty, _MOST, "0 finished")
        for _ in range(crew.options.rounds):
            for system in crew.turns():
                with crew.attempt(system, full):
                    mode = empty[system].measure("wake_mode", threads=_MOST)["mode"]
                    size = {mode: sizes[system][mode]}
                    for label, children in (("0 finished", empty), (full, filled)):
                        _measure_steps(crew, system, label, children[system], size, _MOST)


def _loops(crew: Crew) -> None:
    """Each time in a process of its own that has filled no table, so that its memory is the loop's alone."""
    items = crew.options.items
    for _ in range(crew.options.rounds):
        for system in crew.turns():
            with crew.attempt(system, f"{items:,} rows"):
                for count in (items // _FEWER, items):
                    _measure_loop(crew, system, count, is_full=count == items)


def _measure_loop(crew: Crew, system: str, items: int, *, is_full: bool) -> None:
    with crew.fresh(system) as url:
        with crew.child(f"{system} loop", url) as child:
            child.measure("fill", items=items)
        with crew.child(f"{system} loop", url) as child:
            found = child.measure("loop", items=items)
    mode = "one after the other"
    if is_full:
        crew.record(system, f"{items:,} rows", found["value"], "rows/s", mode)
    crew.record(system, f"{items:,} rows, peak memory", found["peak_mb"], "MB", mode)


_RUN: dict[str, Callable[[Crew], None]] = {
    "a": _throughput,
    "b": _starts,
    "c": _latency,
    "d": _sleepers,
    "e": _finished,
    "f": _loops,
}
