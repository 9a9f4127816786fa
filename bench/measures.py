"""The measurements themselves, made inside the process of the system that is measured."""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bench.systems.base import STEPS, Counts, Engine, System, Unfinished, tally

if TYPE_CHECKING:
    from bench.systems.loops import Loop

__all__ = ["MEASURES"]

_PATIENCE_SECONDS = 120.0
_BULK = 5_000
_WARM_UP = 5
_TRIALS = 3
_MOST_RUNS = 20_000
_HEADWAY_SECONDS = 0.5


def throughput(system: System, *, runs: int, threads: int, mode: str) -> dict[str, Any]:
    """Steps per second, from the first step's first line until the last run is over."""
    before = system.counts()
    tally.expect(runs * STEPS)
    system.prepare(runs, mode)
    try:
        system.work(threads, mode)
        tally.wait(_PATIENCE_SECONDS)
        seconds = _until_all_are_over(system) - tally.first_at
    finally:
        system.rest()
    _verify(system.counts() - before, Counts(runs, runs * STEPS))
    return {"value": runs * STEPS / seconds, "seconds": seconds}


def trial(system: System, *, threads: int, seconds: float) -> dict[str, Any]:
    """For each of its modes, how many runs last about this long; warms the system up as well."""
    sizes, least = {}, max(threads, _WARM_UP)
    for mode in system.modes(threads):
        runs = least
        for _ in range(_TRIALS):
            found = throughput(system, runs=runs, threads=threads, mode=mode)
            if found["seconds"] > seconds / 5:  # long enough to be believed
                break
            runs = _runs_for(found["value"], seconds / 3, least)
        sizes[mode] = _runs_for(found["value"], seconds, least)
    return {"runs": sizes}


def _runs_for(rate: float, seconds: float, least: int) -> int:
    return min(_MOST_RUNS, max(least, round(rate * seconds / STEPS)))


def starts(system: Engine, *, seconds: float) -> dict[str, Any]:
    """Starts per second by one thread, each committed before the next."""
    before = system.unfinished()
    started, began_at = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began_at) < seconds:
        system.start()
        started += 1
    _verify_started(system.unfinished() - before, started)
    return {"value": started / elapsed}


def bulk(system: Engine, *, seconds: float) -> dict[str, Any]:
    """Starts per second, many at once."""
    before, started, began_at = system.unfinished(), 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began_at) < seconds:
        system.start_bulk(_BULK)
        started += _BULK
    _verify_started(system.unfinished() - before, started)
    return {"value": started / elapsed}


def latency(system: Engine, *, samples: int) -> dict[str, Any]:
    """Milliseconds from the call of ``start`` to the first line of the first step, on an idle system."""
    pause = random.Random(samples)
    found: list[float] = []
    system.listen()
    try:
        for _ in range(samples + _WARM_UP):
            # Of varying length, or else a poll could always come at the same distance.
            time.sleep(pause.uniform(0.02, 0.06))
            tally.expect(STEPS)
            began_at = time.perf_counter()
            system.start_idle()
            tally.wait(30)
            found.append((tally.first_at - began_at) * 1000)
            _until_all_are_over(system)
    finally:
        system.rest()
    return {"samples": found[_WARM_UP:]}


def park(system: Engine, *, sleepers: int, due: float) -> dict[str, Any]:
    """Have sleepers parked; tells whether it was done well before their instant."""
    system.park(sleepers, due)
    _verify_started(system.unfinished(), sleepers)
    return {"headway": due - time.time()}


def wake_mode(system: Engine, *, threads: int) -> dict[str, Any]:
    """The fastest of its modes for runs that are in the tables already."""
    return {"mode": system.waking_mode(threads)}


def wake(system: Engine, *, sleepers: int, due: float, threads: int, mode: str) -> dict[str, Any]:
    """Seconds from the instant at which all sleepers are due until the last of them is over."""
    before = system.counts()
    tally.expect(sleepers)
    try:
        system.work(threads, mode)
        if due - time.time() < _HEADWAY_SECONDS:
            raise Unfinished("the worker was not up in time for the sleepers' instant")
        until_due = time.perf_counter() + due - time.time()
        tally.wait(_PATIENCE_SECONDS + due - time.time())
        seconds = _until_all_are_over(system) - until_due
    finally:
        system.rest()
    if tally.first_at < until_due:
        raise Unfinished(f"a sleeper woke {until_due - tally.first_at:.3f} s before its instant")
    _verify(system.counts() - before, Counts(sleepers, sleepers))
    return {"value": seconds, "peak_mb": peak_memory_mb()}


def seed(system: Engine, *, runs: int) -> dict[str, Any]:
    """Fill the tables with tens that are over."""
    before, began_at = system.counts(), time.perf_counter()
    system.seed(runs)
    _verify(system.counts() - before, Counts(runs, runs * STEPS))
    return {"seconds": time.perf_counter() - began_at}


def fill(system: Loop, *, items: int) -> dict[str, Any]:
    """Have so many rows to go through, and none written."""
    # Here and below: what a system does not use must not count as its memory.
    from bench.systems.loops import stock

    system.create()
    stock(system.engine, items)
    return {}


def loop(system: Loop, *, items: int) -> dict[str, Any]:
    """Rows per second: one is written for each that is read, and a hundred share a commit."""
    from bench.systems.loops import verify_notes

    seconds = system.go()
    peak_mb = peak_memory_mb()
    verify_notes(system.engine, items)
    return {"value": items / seconds, "peak_mb": peak_mb}


def peak_memory_mb() -> float:
    """The most that this process has held in memory, its interpreter and libraries included."""
    try:
        # Not getrusage: on Linux that counts what the parent held when it forked, too.
        with open("/proc/self/status", encoding="ascii") as status:
            lines = dict(line.split(":", 1) for line in status)
        return int(lines["VmHWM"].split()[0]) / 1024
    except (OSError, KeyError):
        unit = 1024 * 1024 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _until_all_are_over(system: System) -> float:
    deadline = time.perf_counter() + _PATIENCE_SECONDS
    while left := system.unfinished():
        if time.perf_counter() > deadline:
            raise Unfinished(f"{left} runs were not over after {_PATIENCE_SECONDS:.0f} s")
        time.sleep(0.002)
    return time.perf_counter()


def _verify(found: Counts, wanted: Counts) -> None:
    if found != wanted:
        raise Unfinished(
            f"the tables hold {found.runs} finished runs and {found.steps} steps more than before, "
            f"where {wanted.runs} and {wanted.steps} were to be done"
        )


def _verify_started(found: int, wanted: int) -> None:
    if found != wanted:
        raise Unfinished(f"the tables hold {found} runs that are not over, where {wanted} were started")


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    measure.__name__: measure
    for measure in (trial, throughput, starts, bulk, latency, park, wake_mode, wake, seed, fill, loop)
}
