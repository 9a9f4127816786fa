"""Calling and starting over in an ``async def run()``: the same, awaited."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from stepwell import AsyncWorkflow, ChildFailed, Workflow, step
from stepwell.testing import Workbench

AT_ONCE = timedelta()
HOUR = timedelta(hours=1)


class Child(Workflow):
    workflow_name = "async_callers.Child"

    def run(self, number: int) -> int:
        self.sleep(HOUR)
        return 2 * number


class Broken(Workflow):
    workflow_name = "async_callers.Broken"

    @step
    def fail(self) -> None:
        raise KeyError("x")


class Parent(AsyncWorkflow):
    workflow_name = "async_callers.Parent"

    async def run(self, turn: int = 0) -> Any:
        doubled = await self.call(Child, number=turn)
        try:
            await self.call(Broken)
        except ChildFailed as error:
            self.context["errors"] = [*self.context.get("errors", []), error.error_class]
        if turn < 2:
            self.start_over(turn=turn + 1)
        return [doubled, dict(self.context)]


def test_a_coroutine_calls_and_starts_over(bench: Workbench) -> None:
    """Children are waited for, their errors caught, and the context goes over."""
    run = Parent.start()
    bench.drain()
    for _ in range(3):
        bench.travel(HOUR)
        bench.drain()
    assert run.result(AT_ONCE) == [4, {"errors": ["KeyError"] * 3}]
    assert bench.engine.runs(Child).count() == 3
