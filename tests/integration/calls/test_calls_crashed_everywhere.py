"""A family of runs whose workers die at each of its writes: the outcome is that of an undisturbed one."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Child, ChildFailed, Workflow, step
from stepwell.states import TERMINAL, RunState
from stepwell.testing import CrashPoint, Workbench

AT_ONCE = timedelta()
HOUR = timedelta(hours=1)
MOST_WRITES = 60


class Leaf(Workflow):
    """Over at once, or broken."""

    workflow_name = "everywhere.Leaf"
    unique_by = "name"

    def run(self, name: str) -> str:
        self.step("note", name.upper)
        if name == "broken":
            raise ValueError(name)
        return name.upper()


class Chain(Workflow):
    """Starts over, and calls in each round."""

    workflow_name = "everywhere.Chain"

    def run(self, turn: int = 0) -> Any:
        self.context["said"] = [*self.context.get("said", []), self.call(Leaf, f"{turn}")]
        if turn < 2:
            self.start_over(turn=turn + 1)
        return self.context["said"]


class Declared(Workflow):
    """Awaits a child that starts over."""

    workflow_name = "everywhere.Declared"

    @step(awaits=Child(Chain))
    def close(self, said: list[str]) -> None:
        self.finish(said)


class Root(Workflow):
    """The whole family's."""

    workflow_name = "everywhere.Root"

    def run(self) -> Any:
        try:
            self.call(Leaf, "broken")
        except ChildFailed as error:
            told = error.message
        return [told, self.call(Declared), self.call(Leaf, "end")]


def lived(bench: Workbench) -> tuple[Any, Counter[tuple[str, str]]]:
    """What becomes of the family, however long that takes: its result, and who there was."""
    run = Root.start()
    return followed(bench, run)


def followed(bench: Workbench, run: Any) -> tuple[Any, Counter[tuple[str, str]]]:
    for _ in range(60):
        bench.drain()
        if run.state in TERMINAL:
            break
        bench.travel(timedelta(minutes=11))
    assert run.state is RunState.COMPLETED, run.explain()
    return run.result(AT_ONCE), Counter((row.workflow, row.state) for row in bench.engine.runs().infos())


@pytest.mark.parametrize(
    "point", [CrashPoint.BEFORE_SETTLE, CrashPoint.AFTER_SETTLE, CrashPoint.AFTER_COMMIT]
)
def test_a_family_outlives_its_workers(sqlite: Any, point: CrashPoint) -> None:
    """Whichever write a worker dies at, no child is started twice, and no end is missed."""
    with sqlite.database() as url, Workbench(url, raise_errors=False) as bench:
        undisturbed = lived(bench)
        assert undisturbed[0] == ["broken", ["0", "1", "2"], "END"]
        for nth in range(1, MOST_WRITES):
            bench.delete_all_runs()
            run = Root.start()
            try:
                with bench.crash_at(point, nth=nth):
                    bench.drain()
            except AssertionError:
                # There was no such write any more: each was the last of a worker once.
                break
            assert followed(bench, run) == undisturbed, f"a crash {point} number {nth}"
        else:
            raise AssertionError("the family never came to its end")
        assert run.state is RunState.COMPLETED
        assert nth > 5
