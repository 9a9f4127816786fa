"""Long walks on the databases that are interrupted: asked to stop, deadlocked, taken over, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from stepwell import ManualClock, Run, Stepwell, Workflow, resumable_step, step
from stepwell.definition.starting import set_default_engine
from stepwell.execution.suspension import LeaseLost
from stepwell.states import LIVE, RunState
from stepwell.worker.heartbeat import Heartbeat
from tests.integration.second_stage.walker import LEASE, Killed
from tests.integration.second_stage.warehouse import Item, Line, Warehouse
from tests.support.driving import Driver

ROOT = Path(__file__).parents[3]
DO: dict[int, Callable[[Any], Any]] = {}
AT_FIRST: dict[bool, Callable[[], Any]] = {}
"""What happens before the first item of an execution that goes on from another one, or of one that does not."""


class Walk(Workflow):
    """Ten items; a test says what happens at some of them."""

    workflow_name = "interrupting.Walk"

    @resumable_step
    def walk(self) -> None:
        AT_FIRST.pop(self.cursor.resumed, lambda: None)()
        for number in self.cursor.iterate(range(10)):
            self.session.add(Line(text=f"item {number}"))
            self.progress(number, 10)
            DO.pop(number, lambda self: None)(self)

    @step
    def end(self) -> None: ...


@pytest.fixture(autouse=True)
def _nothing_to_do() -> None:
    DO.clear()
    AT_FIRST.clear()


def items(*numbers: int) -> list[str]:
    return [f"item {number}" for number in numbers]


def outcomes(run: Run) -> list[tuple[str, Any, Any]]:
    return [(row.name, row.outcome or row.state, row.cursor) for row in run.steps if row.kind == "step"]


# -- requests ------------------------------------------------------------------------------------------------------


def test_a_pause_stops_it_behind_the_item(driver: Driver, house: Warehouse) -> None:
    """Requested from outside while it runs; it goes on behind it when it is resumed."""
    run = Walk.start()
    DO[3] = lambda self: run.pause("lunch")
    driver.drain()

    assert (run.state, run.reason) == (RunState.PAUSED, "lunch")
    assert house.lines() == items(0, 1, 2, 3)
    run.resume()
    driver.drain()
    assert run.state is RunState.COMPLETED
    assert house.lines() == items(*range(10))
    assert outcomes(run) == [("walk", "continued", 4), ("walk", "success", 10), ("end", "success", None)]


@pytest.mark.parametrize("verb", ["cancel", "skip"])
def test_a_cancel_and_a_skip_leave_the_rest(driver: Driver, house: Warehouse, verb: str) -> None:
    """What was done is kept, and no row stays open."""
    run = Walk.start()
    DO[3] = lambda self: getattr(run, verb)("enough")
    driver.drain()

    assert house.lines() == items(0, 1, 2, 3)
    assert run.state is (RunState.CANCELED if verb == "cancel" else RunState.COMPLETED)
    assert [row.outcome for row in run.steps][:2] == [
        "continued",
        "canceled" if verb == "cancel" else "skipped",
    ]
    assert not any(row.outcome is None for row in run.steps)


def test_a_request_that_only_the_heartbeat_has_seen(driver: Driver, well: Stepwell, house: Warehouse) -> None:
    """The journal's next write tells it too; both lead to the same stop."""
    run = Walk.start()

    def pause(self: Any) -> None:
        run.pause()
        well.renew_leases(well.leases.held())
        assert self.stop_requested

    DO[3] = pause
    driver.drain()

    assert (run.state, house.lines()) == (RunState.PAUSED, items(0, 1, 2, 3))


def test_a_request_that_is_withdrawn_stops_nothing(driver: Driver, well: Stepwell) -> None:
    """Also when the heartbeat had seen it: the step does not stop at each of its items from then on."""
    run = Walk.start()

    def waver(self: Any) -> None:
        run.pause()
        well.renew_leases(well.leases.held())
        run.resume()

    DO[3] = waver
    driver.drain()

    assert outcomes(run)[0] == ("walk", "success", 10)


def test_a_worker_that_drains_gives_it_back(driver: Driver, house: Warehouse) -> None:
    """Behind the item, ready for others at once, without an attempt or a recovery counted."""
    run = Walk.start()
    DO[3] = lambda self: setattr(driver, "is_draining", True)
    driver.should_yield = True
    driver.activate(*driver.claim())

    assert run.state is RunState.READY
    assert house.lines() == items(0, 1, 2, 3)
    driver.is_draining = driver.should_yield = False
    driver.drain()
    assert run.state is RunState.COMPLETED
    assert [row.attempt for row in run.steps] == [1, 1, 1]
    assert run.info().recoveries == 0


# -- trouble -------------------------------------------------------------------------------------------------------


def test_a_zombie_stops_at_its_next_checkpoint(driver: Driver, well: Stepwell, house: Warehouse) -> None:
    """Another worker has taken the run over and finished it: what the late one writes is undone, and it stops there."""
    run = Walk.start()
    other = Stepwell(house.url, clock=well.clock, default=False)
    late: list[str] = []

    def take_over(self: Any) -> None:
        driver.clock.travel(well.lease * 2)
        with Driver(other) as second:
            second.finish(run)
        assert run.state is RunState.COMPLETED
        self.session.add(Line(text="too late"))
        DO[4] = lambda self: late.append("went on")

    DO[3] = take_over
    (claimed,) = driver.claim()
    assert driver.activate(claimed) is None
    other.close()

    assert house.lines() == items(*range(10))
    assert late == []
    assert outcomes(run)[0] == ("walk", "lost", 3)


def test_a_checkpoint_shows_how_far_it_has_come(driver: Driver, well: Stepwell) -> None:
    """With the cursor; between two of them the heartbeat tells it. The end leaves no trace of it."""
    heartbeat = Heartbeat(well, driver._claimer._contact, "by hand")
    seen: list[Any] = []
    run = Walk.start()

    def look(self: Any) -> None:
        (row,) = run.steps
        seen.append((row.state, row.cursor, row.details))

    def beat(self: Any) -> None:
        driver.clock.travel(timedelta(seconds=9))
        self.progress(77, 100)
        if well.database.dialect.name != "sqlite":
            heartbeat.beat()
            look(self)

    DO[2] = look
    DO[4] = beat
    driver.drain()

    assert seen[0] == ("in_progress", 2, {"progress": {"done": 1, "total": 10}})
    if well.database.dialect.name != "sqlite":
        assert seen[1] == ("in_progress", 4, {"progress": {"done": 77, "total": 100}})
    assert run.steps[0].details == {}


def test_an_execution_that_was_only_shown_keeps_the_cursor_that_it_took_over(
    driver: Driver, well: Stepwell, house: Warehouse
) -> None:
    """Its worker is lost after a heartbeat has made it visible and before its first checkpoint: the items before it are
    done all the same.
    """
    heartbeat = Heartbeat(well, driver._claimer._contact, "by hand")
    run = Walk.start()

    def die(self: Any) -> None:
        raise LeaseLost

    def die_visibly() -> None:
        driver.clock.travel(timedelta(seconds=9))
        heartbeat.beat()
        raise LeaseLost

    DO[3] = die
    driver.drain()
    AT_FIRST[True] = die_visibly
    while run.state in LIVE:
        driver.travel(well.lease)

    assert run.state is RunState.COMPLETED
    assert house.lines() == items(*range(10))
    assert outcomes(run)[:3] == [("walk", "lost", 3), ("walk", "lost", 3), ("walk", "success", 10)]
    first, second, third, _ = run.steps
    assert (second.continues_from, third.continues_from) == (first.position, second.position)


class Crossing(Workflow):
    """Locks two items for each of its own, one after the other."""

    workflow_name = "interrupting.Crossing"

    @resumable_step
    def walk(self) -> None:
        for number in self.cursor.iterate(range(4)):
            self.session.add(Line(text=f"item {number}"))
            first, second = self.session.get(Item, 1), self.session.get(Item, 2)
            first.rank = number
            self.session.flush()
            DO.pop(number, lambda self: None)(self)
            second.rank = number


def test_a_deadlock_at_a_checkpoint_is_run_again_from_the_last_one(server_house: Warehouse) -> None:
    """The database undid the item; the items before it are not done again, and no policy hears of it."""
    house = server_house
    house.stock(50)
    well = Stepwell(house.url, clock=ManualClock())
    threads: list[threading.Thread] = []

    def cross(self: Any) -> None:
        has_locked = threading.Event()

        def other() -> None:
            with house.engine.begin() as connection:
                if house.engine.dialect.name == "postgresql":
                    # The one that notices the deadlock is its victim: that shall be the walk.
                    connection.exec_driver_sql("SET LOCAL deadlock_timeout = '30s'")
                # MariaDB chooses the one that has written less.
                connection.execute(update(Item).where(Item.id != 1).values(shelf="b"))
                has_locked.set()
                connection.execute(update(Item).where(Item.id == 1).values(shelf="b"))

        threads.append(threading.Thread(target=other))
        threads[0].start()
        has_locked.wait(10)
        time.sleep(0.2)

    DO[2] = cross
    with Driver(well) as driver:
        run = Crossing.start()
        driver.drain()
    threads[0].join(timeout=30)
    steps, state = run.steps, run.state
    well.close()
    set_default_engine(None)

    assert state is RunState.COMPLETED
    assert house.lines() == items(0, 1, 2, 3)
    assert [(row.outcome, row.attempt) for row in steps] == [("success", 1)]


# -- killed --------------------------------------------------------------------------------------------------------


@contextmanager
def walker(url: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    module = "tests.integration.second_stage.walker"
    process = subprocess.Popen([sys.executable, "-m", module, url], cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_and_doubles_nothing(house: Warehouse) -> None:
    """``kill -9`` in the middle, several times: each item's line is there once, and the context has counted it once."""
    count = 240
    house.stock(count)
    well = Stepwell(house.url, lease=LEASE)
    run = Killed.start(count=count)
    kills = 0
    for share in (0.1, 0.35, 0.7):
        with walker(house.url) as process:
            _wait_until(lambda share=share: house.count() >= share * count)  # type: ignore[misc]
            assert process.poll() is None
            kills += run.state == RunState.RUNNING
    with walker(house.url):
        _wait_until(lambda: run.state == RunState.COMPLETED)
    lost = [row for row in run.steps if row.outcome == "lost"]
    context = dict(run.context)
    well.close()
    set_default_engine(None)

    assert kills == 3
    assert house.lines() == [f"item {number}" for number in range(1, count + 1)]
    assert context == {"count": count}
    assert len(lost) == 3


def _wait_until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < limit, "it takes too long"
        time.sleep(0.02)
