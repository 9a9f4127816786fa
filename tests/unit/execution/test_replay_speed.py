"""A long ``run()`` costs what its steps cost: a replay is short, and neither time nor memory grows with its past."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from stepwell import Workflow, step
from stepwell.entries import Execution
from stepwell.states import RunState
from tests.unit.execution.memory import MemoryRun

MANY = 10_000
UNIT = 0.0125
"""Processor seconds of :func:`unit` on a machine that has nothing else to do."""
LOOP = 2_000


class Quick(MemoryRun):
    """A journal that does not look for gaps at each write."""

    def keep(self, *rows: Execution) -> None:
        for row in rows:
            self.rows[row.position] = row


class Long(Workflow[None]):
    """So many steps, then a pause."""

    def run(self, n: int, kind: str) -> None:
        call = getattr(self, kind)
        for number in range(n):
            call(number) if kind == "given" else call()
        self.pause()

    @step
    def plain(self) -> int:
        return 1

    @step
    def given(self, number: int) -> int:
        return number

    @step
    def counted(self) -> None:
        self.context["n"] = self.context.get("n", 0) + 1


def unit() -> float:
    """How fast this machine is just now."""
    known: dict[int, str] = {}
    began = time.process_time()
    for number in range(150_000):
        known[number % 100] = str(number)
    return time.process_time() - began


@pytest.mark.parametrize(("kind", "most"), [("plain", 0.12), ("given", 0.25), ("counted", 0.3)])
def test_a_replay_of_ten_thousand_steps_is_short(kind: str, most: float) -> None:
    """The best of five, in processor time; more on a machine that is slow, or busy."""
    run = Quick(Long, args={"n": MANY, "kind": kind}).drive()
    assert (run.state, len(run.rows)) == (RunState.PAUSED, MANY + 1)
    rows, best = dict(run.rows), most * 10
    for _ in range(5):
        slowness = max(1.0, unit() / UNIT)
        run.rows, run.state = dict(rows), RunState.READY
        began = time.process_time()
        run.activate()
        best = min(best, (time.process_time() - began) / slowness)
        assert run.state is RunState.COMPLETED
    assert best < most


def test_a_loop_neither_slows_down_nor_grows() -> None:
    """The last two hundred steps take what the first took; each keeps its row and little more."""
    times: list[float] = []

    class Agent(Workflow[None]):
        def run(self) -> int:
            total = 0
            for number in range(LOOP):
                times.append(time.process_time())
                total = self.think(number, total)["total"]
                self.context["last"] = number
            return total

        @step
        def think(self, number: int, total: int) -> dict[str, Any]:
            return {"total": total + number, "thought": "x" * 100}

    best = 99.0
    for _ in range(3):
        times.clear()
        assert Quick(Agent).drive().state is RunState.COMPLETED
        first, last = times[200] - times[0], times[-1] - times[-201]
        best = min(best, last / first)
    assert best < 1.5

    tracemalloc.start()
    run = Quick(Agent)
    run.drive()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(run.rows) == LOOP
    assert grown / LOOP < 4_000
