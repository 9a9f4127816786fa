"""Verbs that are more than a wait, awaited: repetitions, and beginning anew."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from stepwell import AsyncWorkflow, WrongArguments, step
from stepwell.states import Outcome, RunState
from stepwell.testing import Workbench

HOUR = timedelta(hours=1)


class Reminds(AsyncWorkflow[None]):
    workflow_name = "awaited.Reminds"

    async def run(self) -> int:
        count: int = await self.repeat(self.remind, every=HOUR, until=self.is_enough)
        return count

    def is_enough(self) -> bool:
        reminders: int = self.context.get("reminders", 0)
        return reminders >= 3

    @step
    async def remind(self) -> None:
        self.context["reminders"] = self.context.get("reminders", 0) + 1


class Counts(AsyncWorkflow[None]):
    workflow_name = "awaited.Counts"

    async def run(self, total: int = 0, wrong: bool = False) -> int:
        total += await self.wait_for_signal("reading")
        if wrong:
            with pytest.raises(WrongArguments):
                self.start_over(sum=total)
        if total > 100:
            self.finish(total)
        self.context["total"] = total
        try:
            self.start_over(total=total)
        finally:
            self.context["total"] = total


@pytest.fixture
def bench(shared_url: str) -> Iterator[Workbench]:
    """A bench over a database without runs, on each product in turn."""
    with Workbench(shared_url, raise_errors=False) as bench:
        yield bench


def test_a_step_recurs(bench: Workbench) -> None:
    """Each tick is a step of its own, at its instant."""
    run = Reminds.start()
    began = bench.now
    assert bench.run_to_end(run) is RunState.COMPLETED
    assert (run.result(), run.context) == (3, {"reminders": 3})
    assert bench.now - began >= 3 * HOUR


@pytest.mark.parametrize("wrong", [False, True])
def test_a_run_is_started_over(bench: Workbench, wrong: bool) -> None:
    """It is not awaited, since it does not return; wrong arguments are told where it is said."""
    run = Counts.start(wrong=wrong)
    for reading in (60, 70):
        run.signal("reading", reading)
    bench.run_to_end(run)

    assert run.result() == 130
    assert [row.outcome for row in run.steps] == [Outcome.SUCCESS]
    assert run.context == {"total": 60}
