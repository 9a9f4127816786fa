"""Bodies that are ended at their limit, in the middle of whatever they do to the database."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, text

from stepwell import Retry, Skip, StepTimedOut, Stepwell, Worker, Workflow, resumable_step, step
from tests.integration.second_stage.warehouse import Item, Line, Warehouse
from tests.support.driving import Driver

# An exception that is raised in a thread may land in a callback of the test tools' own (of the garbage collector's);
# there Python can only report it. The watchdog raises it again a second later.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SHORT = timedelta(seconds=0.1)
AT_ONCE = timedelta()


class Spinning(Workflow):
    """Writes, and then never comes to an end."""

    workflow_name = "timeouts.Spinning"

    @step(timeout=SHORT, on_exception=Retry(StepTimedOut, attempts=2, wait=AT_ONCE, then="skip"))
    def spin(self) -> None:
        self.session.add(Line(text="written by a body that was ended"))
        self.session.flush()
        while True:
            try:
                list(self.session.scalars(select(Item)))
            except Exception:
                pass

    @step
    def after(self) -> None:
        is_same = threading.get_ident() == threads["worker"]
        self.session.add(Line(text=f"after {is_same}"))


threads: dict[str, int] = {}


def test_what_a_body_wrote_that_was_ended_is_undone(driver: Driver, house: Warehouse) -> None:
    """With an open transaction, in the middle of its statements; the thread and the database are free afterwards."""
    threads["worker"] = threading.get_ident()
    run = Spinning.start()
    driver.drain()

    assert run.state == "completed", run.explain()
    assert [(row.name, row.outcome) for row in run.steps] == [
        ("spin", "timed_out"),
        ("spin", "skipped"),
        ("after", "success"),
    ]
    assert run.steps[0].error_class == "stepwell.errors.StepTimedOut"
    assert house.lines() == ["after True"]
    house.add(Line(text="written by a body that was ended"))


class Sleeping(Workflow):
    """Asks the database something that takes long."""

    workflow_name = "timeouts.Sleeping"

    @step(timeout=SHORT, on_exception=Skip(StepTimedOut))
    def doze(self) -> None:
        self.session.add(Line(text="before"))
        self.session.execute(text(self.args["statement"]))
        self.session.add(Line(text="after"))

    @step
    def after(self) -> None: ...


def test_a_long_query_is_ended_when_it_answers(driver: Driver, house: Warehouse, well: Stepwell) -> None:
    """Native code cannot be interrupted; nothing of the step is stored all the same."""
    statement = {
        "postgresql": "SELECT pg_sleep(0.4)",
        "mariadb": "SELECT sleep(0.4)",
        "sqlite": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3000000) "
        "SELECT max(n) FROM c",
    }[well.database.dialect.name]
    run = Sleeping.start(statement=statement)
    driver.drain()

    assert [(row.name, row.outcome) for row in run.steps] == [("doze", "skipped"), ("after", "success")]
    assert house.lines() == []


class Walking(Workflow):
    """Goes through items until it is ended."""

    workflow_name = "timeouts.Walking"

    @resumable_step(timeout=SHORT, on_exception=Retry(StepTimedOut, attempts=100, wait=AT_ONCE))
    def walk(self) -> None:
        for item in self.cursor.iterate(range(self.args["count"])):
            self.session.add(Line(text=f"item {item}"))


def test_a_walk_that_is_ended_again_and_again_does_each_item_once(driver: Driver, house: Warehouse) -> None:
    """Also when its time is up in the middle of a checkpoint: that is committed with its cursor, or not at all."""
    run = Walking.start(count=400)
    driver.drain()

    assert run.state == "completed", run.explain()
    assert house.lines() == [f"item {number}" for number in range(400)]


def test_a_body_that_is_ended_while_it_starts_runs_breaks_nothing(driver: Driver, house: Warehouse) -> None:
    """Locks, connections and the write gate are given back, wherever it was."""
    run = Starting.start()
    driver.drain()

    assert run.state == "completed", run.explain()
    Plain.start()
    driver.drain()


class Plain(Workflow):
    workflow_name = "timeouts.Plain"

    @step
    def work(self) -> None:
        self.session.add(Line(text=f"plain {self.run_id}"))


class Starting(Workflow):
    """Starts runs and looks at them without an end."""

    workflow_name = "timeouts.Starting"

    @step(timeout=SHORT / 2, on_exception=Retry(StepTimedOut, attempts=8, wait=AT_ONCE, then="skip"))
    def start_all(self) -> None:
        while True:
            run = Plain.start()
            run.info()
            run.pause()

    @step
    def after(self) -> None: ...


# -- async ---------------------------------------------------------------------------------------------------------


class Async(Workflow):
    """Waits on the loop, with a transaction open on its own thread."""

    workflow_name = "timeouts.Async"

    @step(timeout=SHORT, on_exception=Retry(StepTimedOut, attempts=2, wait=AT_ONCE, then="skip"))
    async def wait(self) -> None:
        await self.in_session(lambda session: session.add(Line(text="waiting")))
        await self.in_session(lambda session: session.flush())
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("cleaned")

    @step
    def after(self) -> None: ...


seen: list[Any] = []


def test_an_async_body_is_ended_at_its_await(driver: Driver, house: Warehouse) -> None:
    """It is cancelled there, cleans up, and what it wrote is undone."""
    seen.clear()
    run = Async.start()
    driver.drain()

    assert [(row.name, row.outcome) for row in run.steps] == [
        ("wait", "timed_out"),
        ("wait", "skipped"),
        ("after", "success"),
    ]
    assert seen == ["cleaned", "cleaned"]
    assert house.lines() == []


# -- in a worker ---------------------------------------------------------------------------------------------------


class Brief(Workflow):
    """Ends just about when its time is up."""

    workflow_name = "timeouts.Brief"

    @step(timeout=timedelta(seconds=0.004), on_exception=Skip(StepTimedOut))
    def spin(self) -> None:
        end = time.monotonic() + 0.003 + self.args["more"]
        while time.monotonic() < end:
            pass

    @step
    def after(self) -> None:
        self.session.add(Line(text=f"{self.run_id}"))


@pytest.mark.slow
def test_no_stray_exception_reaches_the_next_run(house: Warehouse) -> None:
    """Hundreds of bodies at the very edge of their limit, on threads that go on with other runs."""
    well = Stepwell(house.url)
    runs = Brief.start_many([{"more": 0.002 * (number % 20) / 20} for number in range(300)])
    with Worker(well, threads=4):
        for run in runs:
            run.result(timedelta(seconds=60))
    outcomes = {run.steps[0].outcome for run in runs}
    well.close()

    assert outcomes == {"success", "skipped"}
    assert house.count() == 300
