"""Runs with ``run()`` on real databases: what is committed is there once, wherever a worker dies."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from sqlalchemy import text

from stepwell import RunState, StepFailed, Stepwell, Worker, Workflow, resumable_step, step
from stepwell.states import Kind, Reason
from stepwell.testing import CrashPoint, Workbench
from tests.integration.store.rig import ledger, wait_until

DAY = timedelta(days=1)


def lines(bench: Workbench) -> list[int]:
    """What steps have written, in order."""
    with bench.engine.database.read() as connection:
        rows = connection.execute(ledger.select()).all()
    return sorted(row.n for row in rows)


class Order(Workflow):
    """A bit of everything, which writes a line for each thing that it does."""

    workflow_name = "replay.Order"
    calls: ClassVar[list[str]] = []

    def run(self, items: list[str]) -> Any:
        self.context["items"] = items
        total = sum(self.ship(item) for item in items)
        self.load()
        try:
            self.charge(total)
        except StepFailed:
            self.refund()
        self.sleep(DAY)
        verdict = self.wait_for_signal("review", timeout=DAY, default="expired")
        return [total, verdict, self.context["shipped"]]

    def write(self, n: int) -> None:
        self.session.execute(ledger.insert().values(n=n))

    @step(key_by="item")
    def ship(self, item: str) -> int:
        self.calls.append(item)
        self.write(len(item))
        self.context["shipped"] = [*self.context.get("shipped", []), item]
        return len(item)

    @resumable_step
    def load(self) -> Any:
        for number in range(self.cursor.value or 0, 2):
            self.write(10 + number)
            yield number + 1

    @step
    def charge(self, total: int) -> None:
        self.write(99)
        raise LookupError("no card")

    @step
    def refund(self) -> None:
        self.write(50)


WRITTEN = [1, 2, 10, 11, 50]
POINTS = [(point, nth) for point in CrashPoint for nth in (1, 2)]


def is_over(bench: Workbench, run: Any) -> None:
    assert bench.run_to_end(run) is RunState.COMPLETED, run.explain()
    assert run.result(timeout=timedelta(0)) == [3, "expired", ["A", "BB"]]
    assert lines(bench) == WRITTEN
    assert dict(run.context) == {"items": ["A", "BB"], "shipped": ["A", "BB"]}
    done = [(row.name, row.key) for row in run.steps if row.outcome == "success" and row.kind == Kind.STEP]
    assert done == [("ship", '"A"'), ("ship", '"BB"'), ("load", None), ("refund", None)]


def test_a_run_comes_to_its_end(bench: Workbench) -> None:
    """Steps, a long one, a failure that is caught, a sleep and a signal that never comes."""
    is_over(bench, Order.start(items=["A", "BB"]))


@pytest.mark.parametrize(("point", "nth"), POINTS)
def test_wherever_a_worker_dies_the_run_comes_to_the_same_end(
    bench: Workbench, point: CrashPoint, nth: int
) -> None:
    """Each step succeeds once, and what it wrote is there once."""
    run = Order.start(items=["A", "BB"])
    with bench.crash_at(point, nth=nth):
        bench.run_to_end(run)
    is_over(bench, run)


def test_a_step_is_repeated_exactly_if_it_was_not_recorded(bench: Workbench) -> None:
    """What a dead worker had recorded is passed."""
    for point, calls in (("before_commit", ["A", "A", "BB"]), ("after_commit", ["A", "BB"])):
        Order.calls = []
        run = Order.start(items=["A", "BB"])
        with bench.crash_at(point, step="ship"):
            bench.run_to_end(run)
        bench.run_to_end(run)
        assert Order.calls == calls


def test_a_mismatch_is_told_and_resumed(bench: Workbench) -> None:
    """The run fails, says what came, and goes on with code that fits."""
    bench.raise_errors = False

    class Ships(Workflow):
        workflow_name = "replay.Ships"
        item: ClassVar[str] = "A"

        def run(self) -> str:
            answer = self.ship(self.item)
            self.pause()
            return answer

        @step
        def ship(self, item: str) -> str:
            return item.lower()

    run = Ships.start()
    bench.drain()
    Ships.item = "B"
    run.resume()
    bench.drain()
    bench.assert_state(run, "failed", reason=Reason.HISTORY_MISMATCH)
    assert '"B"' in (run.info().error_message or "")
    Ships.item = "A"
    run.resume()
    bench.drain()
    assert run.result(timeout=timedelta(0)) == "a"


class Halting(Workflow):
    """Three steps; the second one takes until the test lets it go."""

    workflow_name = "replay.Halting"
    begun: ClassVar[threading.Event] = threading.Event()
    go_on: ClassVar[threading.Event] = threading.Event()

    def run(self) -> list[Any]:
        return [self.work(number) for number in range(3)]

    @step
    def work(self, number: int) -> int:
        self.session.execute(ledger.insert().values(n=number))
        if number == 1:
            self.begun.set()
            assert self.go_on.wait(20)
        return number


@pytest.mark.parametrize("verb", ["pause", "cancel", None])
def test_a_worker_honours_what_is_asked_at_the_next_boundary(
    shared_server_url: str, verb: str | None
) -> None:
    """A running run is stopped between two steps; what was under way is committed."""
    well = Stepwell(shared_server_url, default=False)
    Halting.begun.clear()
    Halting.go_on.clear()
    worker = Worker(well, threads=2)
    worker.start()
    try:
        run = Halting.with_options(engine=well).start()
        assert Halting.begun.wait(20)
        if verb is not None:
            getattr(run, verb)()
        Halting.go_on.set()
        wait_until(lambda: run.state in (RunState.PAUSED, RunState.CANCELED, RunState.COMPLETED))
        done = [row.key for row in run.steps if row.kind == Kind.STEP]
        assert done == ([None, "#2"] if verb else [None, "#2", "#3"])
        if verb == "pause":
            run.resume()
        if verb != "cancel":
            assert run.result(timeout=timedelta(seconds=20)) == [0, 1, 2]
        with well.database.read() as connection:
            count = connection.execute(text("SELECT count(*) FROM ledger")).scalar()
        assert count == (2 if verb == "cancel" else 3)
    finally:
        Halting.go_on.set()
        worker.stop()
        well.close()


class Swallows(Workflow):
    """Catches what it should let pass."""

    workflow_name = "replay.Swallows"

    def run(self) -> str:
        try:
            self.sleep(DAY)
        except BaseException:
            pass
        return "went on"


def test_swallowing_the_end_of_an_activation_fails_a_test(bench: Workbench) -> None:
    """An author's test finds it (a warning in production, an error here)."""
    Swallows.start()
    with pytest.raises(AssertionError, match="what ends an activation, and went on"):
        bench.drain()
