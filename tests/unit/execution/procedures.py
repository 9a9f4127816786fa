"""Ways to drive a workflow with ``run()`` in memory: undisturbed, replayed at every write, crashed at every write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.execution.memory import Crash, MemoryRun, crash_at

__all__ = ["crashed_everywhere", "driven", "replayed"]


def driven(workflow: type[Any], **args: Any) -> MemoryRun:
    """A run of this class, driven as far as it goes by itself."""
    return MemoryRun(workflow, args=args).drive()


def replayed(run: MemoryRun) -> MemoryRun:
    """Have the worker die after each write, so that ``run()`` passes everything before it anew each time."""

    def at_boundary(moment: str) -> None:
        if moment == "after":
            raise Crash

    run.at_boundary = at_boundary
    return run


def crashed_everywhere(make: Callable[[], MemoryRun]) -> list[MemoryRun]:
    """The run undisturbed, and with a crash before and after each of its writes; each driven as far as it goes."""
    undisturbed = make().drive()
    runs = [undisturbed]
    for place in range(undisturbed.writes):
        for moment in ("before", "after"):
            run = make()
            crash_at(run, place, moment)
            runs.append(run.drive())
    return runs
