"""``AsyncWorkflow`` with a real worker: many runs on one loop, and stops in the middle of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from stepwell import AsyncWorkflow, Run, RunError, Stepwell, Worker, Workflow, resumable_step, step
from stepwell.ids import new_token
from stepwell.states import Reason, RunState
from stepwell.store.commands import Answer
from stepwell.store.schema import runs
from stepwell.testing import CrashPoint, Workbench

SECOND = timedelta(seconds=1)
EVENTS: dict[str, threading.Event] = {}
THREADS: set[str] = set()


class Order(AsyncWorkflow[None]):
    workflow_name = "awaited.Order"
    unique_by = None

    async def run(self, items: list[str]) -> dict[str, Any]:
        shipped = [await self.ship(item) for item in items]
        self.context["shipped"] = len(shipped)
        await self.sleep(timedelta(milliseconds=20))
        verdict = await self.wait_for_signal("review", timeout=60 * SECOND)
        THREADS.add(threading.current_thread().name)
        return {"shipped": shipped, "verdict": verdict, "receipt": await self.close()}

    @step(key_by="item")
    async def ship(self, item: str) -> str:
        await asyncio.sleep(0.001)
        return item.upper()

    @step
    def close(self) -> int:
        self.context["closed"] = True
        return self.context["shipped"]  # type: ignore[no-any-return]  # a number


class Watches(AsyncWorkflow[None]):
    """Between its steps it waits for something that is not durable."""

    workflow_name = "awaited.Watches"

    async def run(self) -> str:
        await self.work()
        EVENTS["begun"].set()
        try:
            if not EVENTS["open"].is_set():
                await asyncio.sleep(3600)
        finally:
            EVENTS["over"].set()
        await self.work()
        return "done"

    @step
    def work(self) -> None: ...


class Greeting(Workflow[None]):
    workflow_name = "awaited.Greeting"

    def run(self) -> None: ...


class Careless(AsyncWorkflow[None]):
    """Does in ``run()`` what would be done again at each replay, or would block the loop."""

    workflow_name = "awaited.Careless"

    async def run(self, name: str) -> str:
        try:
            CARELESS[name](self)
        except RunError as error:
            return str(error)
        return "done"


CARELESS: dict[str, Callable[[Any], Any]] = {
    "start": lambda self: Greeting.start(),
    "signal": lambda self: OTHER[0].signal("go"),
}
OTHER: list[Run] = []


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < limit, "it does not come"
        time.sleep(0.01)


def test_many_runs_share_the_loop(well: Stepwell) -> None:
    """Each has its own results, context and signals; all coroutines are on one thread."""
    with Worker(well, threads=4):
        runs = [Order.start(items=[f"a{number}", f"b{number}"]) for number in range(12)]
        for number, run in enumerate(runs):
            run.signal("review", number)
        results = [run.result(timeout=30 * SECOND) for run in runs]

    assert results == [
        {"shipped": [f"A{number}", f"B{number}"], "verdict": number, "receipt": 2} for number in range(12)
    ]
    assert {tuple(sorted(run.context.items())) for run in runs} == {(("closed", True), ("shipped", 2))}
    assert list(THREADS) == ["stepwell-loop"]


def test_a_stop_interrupts_a_run_that_waits_for_something_of_its_own(well: Stepwell) -> None:
    """Its coroutine is cancelled and over before the run is given back; another worker finishes it."""
    EVENTS.update({name: threading.Event() for name in ("begun", "open", "over")})
    worker = Worker(well, threads=1)
    worker.start()
    run = Watches.start()
    assert EVENTS["begun"].wait(20)
    began = time.monotonic()
    assert worker.stop(grace=timedelta(milliseconds=100))

    assert time.monotonic() - began < 5
    assert EVENTS["over"].is_set()
    assert (run.state, run.info().reason) == (RunState.READY, Reason.INTERRUPTED)
    EVENTS["open"].set()
    with Worker(well, threads=1):
        assert run.result(timeout=20 * SECOND) == "done"
    assert [(row.name, row.outcome) for row in run.steps] == [("work", "success")] * 2
    assert run.info().recoveries == 0


def test_a_stop_lets_a_run_end_that_goes_on_by_itself(well: Stepwell) -> None:
    """Within the grace it comes to its next durable call, which gives the run back."""
    EVENTS.update({name: threading.Event() for name in ("begun", "open", "over")})
    worker = Worker(well, threads=1)
    worker.start()
    run = Order.start(items=[str(number) for number in range(2000)])
    until(lambda: len(run.steps) > 5)
    assert worker.stop(grace=5 * SECOND)

    assert (run.state, run.info().reason) == (RunState.READY, None)
    assert 5 < len(run.steps) < 2000


@pytest.mark.parametrize("name", CARELESS)
def test_what_no_replay_could_take_back_is_refused(well: Stepwell, name: str) -> None:
    """As in a plain ``run()``: such things are for steps."""
    OTHER[:] = [Order.start(items=[])]
    with Worker(well, threads=1):
        said = Careless.start(name=name).result(timeout=20 * SECOND)

    assert "step" in said
    assert well.runs(Greeting).count() == 0


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_STEP, CrashPoint.AFTER_BODY])
def test_a_worker_dies_in_the_middle(shared_url: str, point: CrashPoint) -> None:
    """The next one replays the coroutine; what was recorded is not done again."""
    with Workbench(shared_url) as bench:
        run = Order.start(items=["a", "b"])
        run.signal("review", "fine")
        with bench.crash_at(point, step="close"):
            bench.run_to_end(run)
        bench.run_to_end(run)

        assert run.result(timeout=timedelta(0)) == {"shipped": ["A", "B"], "verdict": "fine", "receipt": 2}
        steps = [row.name for row in run.steps if row.outcome == "success" and row.kind == "step"]
        assert steps == ["ship", "ship", "close"]
        assert run.info().recoveries == 0


class Held(AsyncWorkflow[None]):
    """Is in an async step, in one that yields, or in ``run()`` itself when its worker is found to have lost it."""

    workflow_name = "awaited.Held"
    unique_by = None

    async def run(self, where: str) -> str:
        if where == "run":
            await self.hold()
        elif where == "step":
            await self.step("held", self.hold)
        else:
            await self.pages()
        return "went on"

    async def hold(self) -> None:
        EVENTS["begun"].set()
        try:
            await asyncio.sleep(3600)
        finally:
            EVENTS["over"].set()

    @resumable_step
    async def pages(self) -> AsyncIterator[int]:
        yield 1
        await self.hold()


class HeldDeclared(Workflow[None]):
    workflow_name = "awaited.HeldDeclared"
    unique_by = None

    @step
    async def held(self) -> None:
        await Held.hold(self)  # type: ignore[arg-type]  # of a class of its own


@pytest.mark.parametrize("where", ["run", "step", "pages", "declared"])
def test_a_coroutine_is_cancelled_when_its_run_belongs_to_another(where: str, well: Stepwell) -> None:
    """With the next renewal, and not when it would have ended; nothing more is written."""
    EVENTS.update(begun=threading.Event(), over=threading.Event())
    run = HeldDeclared.start() if where == "declared" else Held.start(where=where)
    with Worker(well, threads=1) as worker:
        assert EVENTS["begun"].wait(10)
        with well.database.begin() as connection:
            taken = {"lease_token": new_token(), "lease_owner": "another"}
            connection.execute(update(runs).where(runs.c.id == run.id).values(taken))
        before = run.steps
        worker._heartbeat.beat()
        assert EVENTS["over"].wait(5)
        until(lambda: worker._outstanding == 0)
    assert (run.state, run.info().lease_owner) == (RunState.RUNNING, "another")
    assert run.steps == before


@pytest.mark.parametrize("where", ["run", "step", "pages", "declared"])
@pytest.mark.parametrize("is_near", [True, False])
def test_cancel_now_does_not_wait_for_a_coroutine(
    where: str, is_near: bool, well: Stepwell, shared_url: str
) -> None:
    """The worker in this process ends it at once, another one with its next renewal; ``cancel()`` alone waits."""
    EVENTS.update(begun=threading.Event(), over=threading.Event())
    run = HeldDeclared.start() if where == "declared" else Held.start(where=where)
    elsewhere = Stepwell(shared_url)
    with Worker(well, threads=1) as worker:
        assert EVENTS["begun"].wait(10)
        assert elsewhere.run(run.id).cancel("first", by="Ada") is Answer.REQUESTED
        worker._heartbeat.beat()
        assert not EVENTS["over"].wait(0.2)
        assert (run if is_near else elsewhere.run(run.id)).cancel("again", now=True) is Answer.REQUESTED
        if not is_near:
            worker._heartbeat.beat()
            # Once is enough: while it ends it is left in peace.
            worker._heartbeat.beat()
        assert EVENTS["over"].wait(5)
        until(lambda: run.state is RunState.CANCELED)
    elsewhere.close()
    assert run.reason == "first"
    assert run.steps[-1].details["by"] == "Ada"
    assert "completed" not in [row.state for row in run.steps if row.kind == "step"]


def test_cancel_now_tells_other_bodies(well: Stepwell) -> None:
    """They end when they like."""
    EVENTS.update(begun=threading.Event(), over=threading.Event())
    run = Listens.start()
    with Worker(well, threads=1) as worker:
        assert EVENTS["begun"].wait(10)
        run.cancel(now=True)
        worker._heartbeat.beat()
        until(lambda: run.state is RunState.CANCELED)
    (row,) = [row for row in run.steps if row.kind == "step"]
    assert row.result == "told"


class Listens(Workflow[None]):
    workflow_name = "awaited.Listens"

    def run(self) -> None:
        self.listen()

    @step
    def listen(self) -> str:
        EVENTS["begun"].set()
        until(lambda: self.stop_requested)
        return "told"
