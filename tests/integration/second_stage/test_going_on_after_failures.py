"""Going on with runs that have failed, were taken back, put off or lost: what is kept, and what counts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from stepwell import (
    AsyncWorkflow,
    Retry,
    Run,
    RunNotLive,
    Stepwell,
    Workflow,
    resumable_step,
    step,
)
from stepwell.entries import Execution, Settlement
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from stepwell.testing import CrashPoint, Workbench
from tests.integration.second_stage.warehouse import Item, Line, Warehouse
from tests.integration.store.cable import Cable, Cut
from tests.integration.store.rig import NOON, Rig, done, wait_until
from tests.support.driving import Driver

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
BROKEN: set[str] = set()
BODIES: list[str] = []
LOADED: list[type[Workflow]] = []
"""Classes that a test has deployed: one that nobody holds is unknown."""


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    for each in (BROKEN, BODIES, LOADED):
        each.clear()


# -- a step with a cursor, called from run() -----------------------------------------------------------------------


def touch(workflow: Any, item: int) -> str:
    """Note in the context that the item is being done, and fail at the one that is broken."""
    workflow.context["last"] = item
    workflow.context["count"] = workflow.context.get("count", 0) + 1
    if str(item) in BROKEN:
        raise ConnectionError(f"item {item}")
    return f"item {item}"


class Yields(Workflow):
    """By a generator."""

    workflow_name = "going_on.Yields"

    def run(self) -> Any:
        self.walk(5)
        return dict(self.context)

    @resumable_step
    def walk(self, count: int) -> Iterator[int]:
        BODIES.append("walk")
        for item in range(self.cursor.value or 0, count):
            self.session.add(Line(text=touch(self, item)))
            yield item + 1


class Iterates(Workflow):
    """By ``cursor.iterate``."""

    workflow_name = "going_on.Iterates"

    def run(self) -> Any:
        self.walk(5)
        return dict(self.context)

    @resumable_step
    def walk(self, count: int) -> None:
        BODIES.append("walk")
        for item in self.cursor.iterate(range(count)):
            self.session.add(Line(text=touch(self, item)))


class Selects(Workflow):
    """The same over rows, several executions long."""

    workflow_name = "going_on.Selects"

    def run(self) -> Any:
        self.walk()
        return dict(self.context)

    @resumable_step(max_iterations=2)
    def walk(self) -> None:
        BODIES.append("walk")
        for item in self.cursor.iterate(select(Item)):
            self.session.add(Line(text=touch(self, item.id - 1)))


class Retries(Workflow):
    """It has used up its attempts by the time that it fails."""

    workflow_name = "going_on.Retries"

    def run(self) -> Any:
        self.walk(5)
        return dict(self.context)

    @resumable_step(on_exception=Retry(ConnectionError, attempts=3, wait=timedelta()))
    def walk(self, count: int) -> None:
        BODIES.append("walk")
        for item in self.cursor.iterate(range(count)):
            self.session.add(Line(text=touch(self, item)))


def _add(line: Line, session: Any) -> None:
    session.add(line)


class Awaits(AsyncWorkflow):
    """By an async generator."""

    workflow_name = "going_on.Awaits"

    async def run(self) -> Any:
        await self.walk(5)
        return dict(self.context)

    @resumable_step
    async def walk(self, count: int) -> AsyncIterator[int]:
        BODIES.append("walk")
        for item in range(self.cursor.value or 0, count):
            line = Line(text=touch(self, item))
            await self.in_session(partial(_add, line))
            yield item + 1


WALKS: list[Any] = [Yields, Iterates, Selects, Retries, Awaits]
ITEMS = [f"item {n}" for n in range(5)]


@pytest.fixture(params=WALKS)
def stopped(request: pytest.FixtureRequest, driver: Driver, house: Warehouse) -> Run:
    """A run that has failed at the third of five items."""
    house.stock(5)
    BROKEN.add("2")
    run: Run = request.param.start()
    driver.drain()
    assert run.state is RunState.FAILED, run.explain()
    assert house.lines() == ITEMS[:2]
    assert run.context == {"last": 1, "count": 2}
    return run


def test_resume_goes_on_from_the_cursor(stopped: Run, driver: Driver, house: Warehouse) -> None:
    """Each item is written once, in order, and what the checkpoints changed in the context is kept."""
    bodies = len(BODIES)
    BROKEN.clear()
    stopped.resume()
    driver.drain()
    assert house.lines() == ITEMS
    assert stopped.result(timedelta()) == stopped.context == {"last": 4, "count": 5}
    assert json.loads(stopped.info().context or "") == {"last": 4, "count": 5}
    # The one that takes two items at a time goes on twice.
    assert len(BODIES) - bodies == (2 if stopped.workflow == "going_on.Selects" else 1)


def test_resume_goes_on_however_often_it_fails(stopped: Run, driver: Driver, house: Warehouse) -> None:
    """At the same item again, then at a later one; every retry that a policy allows is there anew."""
    per_failure = 3 if stopped.workflow == "going_on.Retries" else 1
    BODIES.clear()
    stopped.resume()
    driver.travel(timedelta(seconds=1))
    assert (stopped.state, house.lines()) == (RunState.FAILED, ITEMS[:2])
    assert ["walk"] * per_failure == BODIES
    BROKEN.clear()
    BROKEN.add("4")
    stopped.resume()
    driver.drain()
    assert (stopped.state, house.lines()) == (RunState.FAILED, ITEMS[:4])
    assert stopped.context == {"last": 3, "count": 4}
    BROKEN.clear()
    stopped.resume()
    driver.drain()
    assert house.lines() == ITEMS
    assert stopped.result(timedelta()) == {"last": 4, "count": 5}


def test_skip_leaves_the_rest_of_it_out(stopped: Run, driver: Driver, house: Warehouse) -> None:
    """What its checkpoints have written stays, and ``run()`` goes on behind it."""
    BODIES.clear()
    assert stopped.skip("no more", by="Ada") == "done"
    driver.drain()
    assert stopped.state is RunState.COMPLETED, stopped.explain()
    assert (house.lines(), BODIES) == (ITEMS[:2], [])
    assert stopped.result(timedelta()) == stopped.context == json.loads(stopped.info().context or "")
    assert [row.outcome for row in stopped.steps if row.name == "walk"][-1] == "skipped"
    assert not any(row.outcome is None for row in stopped.steps)


# -- a context of which something was taken back -------------------------------------------------------------------

SEEN: list[Any] = []


class Marks(Workflow):
    """Its second step puts something into the context, or does not."""

    workflow_name = "going_on.Marks"

    def run(self) -> Any:
        self.first()
        self.mark()
        SEEN.append(dict(self.context))
        self.sleep(HOUR)
        self.last()
        return dict(self.context)

    @step
    def first(self) -> None:
        self.context["first"] = 1

    @step
    def mark(self) -> None:
        if "mark" not in BROKEN:
            self.context["mark"] = 1

    @step
    def last(self) -> None: ...


def whole(run: Run) -> Any:
    """The context as it is read, once it is seen to be the row's."""
    assert run.context == json.loads(run.info().context or "{}")
    return dict(run.context)


@pytest.mark.parametrize("name", ["first", "mark"])
def test_what_is_taken_back_is_in_no_context(name: str, driver: Driver) -> None:
    """A change that the new pass does not make is gone for ``run()``, for ``run.context`` and in the row."""
    SEEN.clear()
    run = Marks.start()
    driver.drain()
    assert whole(run) == SEEN[-1] == {"first": 1, "mark": 1}
    BROKEN.add("mark")
    run.pause()
    run.resume(from_step=name)
    driver.drain()
    assert run.state is RunState.WAITING
    assert whole(run) == SEEN[-1] == {"first": 1}
    driver.travel(HOUR)
    assert run.result(timedelta()) == whole(run) == {"first": 1}


def deploy_ships(*, is_wrong: bool) -> type[Workflow]:
    """The class as it is from now on; wrong, it calls its step with something else."""

    class Ships(Workflow):
        workflow_name = "going_on.Ships"

        def run(self) -> Any:
            self.ship("a")
            if is_wrong:
                self.context["wrong"] = True
            self.ship("c" if is_wrong else "b")
            self.sleep(HOUR)
            return dict(self.context)

        @step
        def ship(self, what: str) -> None:
            self.context[what] = 1

    LOADED.append(Ships)
    return Ships


def test_code_that_did_not_fit_leaves_nothing_in_the_context(driver: Driver) -> None:
    """What its ``run()`` had put there before the mismatch is gone, at once and after code that fits."""
    run = deploy_ships(is_wrong=False).start()
    driver.drain()
    deploy_ships(is_wrong=True)
    driver.travel(HOUR)
    assert (run.state, run.reason) == (RunState.FAILED, Reason.HISTORY_MISMATCH)
    assert whole(run) == {"a": 1, "b": 1}
    deploy_ships(is_wrong=False)
    run.resume()
    driver.drain()
    assert run.result(timedelta()) == whole(run) == {"a": 1, "b": 1}


def test_a_context_that_differs_from_the_journal_is_put_right(driver: Driver, house: Warehouse) -> None:
    """Whatever the row says when a replay begins, it says what ``run()`` sees when the run stands still again."""
    rig = Rig(house.url, driver.clock)
    run = deploy_ships(is_wrong=False).start()
    driver.drain()
    rig.set(run.id, context='{"a": 1, "b": 1, "wrong": true}')
    driver.travel(HOUR)
    rig.close()
    assert run.result(timedelta()) == whole(run) == {"a": 1, "b": 1}


# -- runs that are put off -----------------------------------------------------------------------------------------


def deploy_long(style: str, version: int) -> type[Workflow]:
    """A workflow that does something every ten minutes, in the version that this process knows from now on."""

    class Declared(Workflow):
        workflow_name = "going_on.LongDeclared"

        @resumable_step
        def work(self) -> None:
            number = self.cursor.value or 0
            self.session.add(Line(text=f"round {number}"))
            self.cursor.skip_to(number + 1, wait=10 * MINUTE)

    class Procedural(Workflow):
        workflow_name = "going_on.LongProcedural"

        def run(self) -> None:
            for number in range(100):
                self.work(number)
                self.sleep(10 * MINUTE)

        @step
        def work(self, number: int) -> None:
            self.session.add(Line(text=f"round {number}"))

    cls: Any = Declared if style == "declared" else Procedural
    cls.version = version
    LOADED.append(cls)
    return cls  # type: ignore[no-any-return]  # one of the two


@pytest.mark.parametrize("style", ["declared", "run()"])
def test_the_grace_counts_from_when_it_was_driven_last(style: str, driver: Driver, house: Warehouse) -> None:
    """Old and new workers take turns for hours, and it does not fail; left to old ones it does, an hour later."""
    run = deploy_long(style, 2).start()
    driver.drain()
    for number in range(1, 16):
        deploy_long(style, 1)
        driver.travel(driver.waits(run) or MINUTE)
        assert (run.state, run.reason) == (RunState.WAITING, Reason.NEWER_VERSION)
        assert driver.waits(run) == timedelta(seconds=15), "it is put off from the beginning"
        deploy_long(style, 2)
        driver.travel(timedelta(seconds=15))
        assert house.count() == number + 1, run.explain()

    deploy_long(style, 1)
    driven_at = driver.clock.now()
    driver.finish(run)
    assert (run.state, run.reason) == (RunState.FAILED, Reason.NEWER_VERSION)
    assert HOUR < driver.clock.now() - driven_at < timedelta(hours=1, minutes=16)


def test_what_others_do_to_it_does_not_prolong_the_grace(driver: Driver) -> None:
    """A change of its context, a pause and a resume are nobody's driving of it."""
    run = deploy_long("declared", 2).start()
    driver.drain()
    deploy_long("declared", 1)
    driver.travel(10 * MINUTE)
    began_at = driver.clock.now()
    number = 0
    while run.state is RunState.WAITING:
        number += 1
        assert number < 50
        driver.clock.travel(timedelta(seconds=1))
        run.context.update(n=number)
        run.pause()
        run.resume()
        driver.drain()
        driver.travel(driver.waits(run) or timedelta())
    assert (run.state, run.reason) == (RunState.FAILED, Reason.NEWER_VERSION)
    assert driver.clock.now() - began_at < timedelta(hours=1, minutes=6)


# -- changes of the context are no progress ------------------------------------------------------------------------


class Kills(Workflow):
    """Its worker dies in its only step."""

    workflow_name = "going_on.Kills"

    @step
    def work(self) -> None: ...


class KillsInRun(Workflow):
    """The same, called from ``run()``."""

    workflow_name = "going_on.KillsInRun"

    def run(self) -> None:
        self.work()

    @step
    def work(self) -> None: ...


@pytest.mark.parametrize("cls", [Kills, KillsInRun])
def test_a_run_that_kills_its_workers_fails_though_its_context_changes(cls: Any, house: Warehouse) -> None:
    """Somebody else's change is not the run's progress, and losses in a row are counted across it."""
    with Workbench(house.url, raise_errors=False) as bench:
        run = cls.start()
        losses = 0
        while run.state is not RunState.FAILED:
            run.context.update(n=losses)
            with bench.crash_at(CrashPoint.BEFORE_COMMIT, step="work"):
                bench.run_to_end(run)
            losses += 1
            assert losses <= 6
            bench.travel(timedelta(minutes=1))
            if losses == 6:
                bench.drain()
        assert run.reason == Reason.WORKER_LOST
        assert losses == 6
        assert run.context == {"n": 5}


@pytest.mark.parametrize("settlement", [None, Settlement(RunState.WAITING, wake_at=NOON)])
@pytest.mark.parametrize("is_alone", [True, False])
def test_an_entry_of_a_change_keeps_the_count(
    settlement: Settlement | None, is_alone: bool, house: Warehouse
) -> None:
    """An entry that begins with somebody's change of the context keeps the lost workers; a step's does not."""
    rig = Rig(house.url)
    change = Execution(1, "update", Kind.CONTEXT, ExecutionState.COMPLETED, Outcome.SUCCESS, finished_at=NOON)

    def write(row: Execution) -> int:
        held = rig.hold(recoveries=4)
        entry = rig.entry(held, row, settlement=settlement)
        if is_alone:
            assert rig.database.write(entry).accepted
        else:
            assert rig.do(lambda connection: rig.dialect.apply(connection, [entry])[0]).accepted
        return int(rig.row(held.id).recoveries)

    assert (write(change), write(done(1))) == (4, 0)
    rig.close()


# -- a caller's transaction that began before ----------------------------------------------------------------------


class Waits(Workflow):
    """Until somebody says so."""

    workflow_name = "going_on.Waits"

    def run(self) -> Any:
        return [self.wait_for_signal("go"), dict(self.context)]


@contextmanager
def older_transaction(house: Warehouse, level: str | None) -> Iterator[Connection]:
    """A caller's transaction that has looked at something; it is committed at the end of the block."""
    engine = house.engine
    if level is not None and engine.dialect.name != "sqlite":
        engine = engine.execution_options(isolation_level=level)
    with engine.connect() as connection, connection.begin():
        connection.execute(select(func.count()).select_from(Line))
        yield connection


SENDS: dict[str, Callable[[Run, Connection], object]] = {
    "signal": lambda run, connection: run.signal("go", "now", connection=connection),
    "context": lambda run, connection: run.context.with_options(connection=connection).update(n=1),
}


@pytest.mark.parametrize("what", SENDS)
def test_a_snapshot_does_not_hide_that_the_run_is_over(
    what: str, driver: Driver, well: Stepwell, house: Warehouse
) -> None:
    """A transaction that began before the run ended still sees it wait: its message would be read by nobody."""
    if not well.database.dialect.keeps_snapshots:
        pytest.skip("transactions see what others have committed")
    run = Waits.start()
    driver.drain()
    with older_transaction(house, "REPEATABLE READ") as connection:
        run.signal("go", "first")
        driver.drain()
        assert run.state is RunState.COMPLETED
        with pytest.raises(RunNotLive, match=rf"^run {run.id} is completed: it is over and "):
            SENDS[what](run, connection)


LEVELS = pytest.mark.parametrize("level", [None, "REPEATABLE READ"])


@LEVELS
def test_a_run_is_signalled_in_the_transaction_that_starts_it(
    level: str | None, driver: Driver, house: Warehouse
) -> None:
    """Where nobody else can see it yet."""
    with older_transaction(house, level) as connection:
        run = Waits.with_options(connection=connection).start()
        assert SENDS["signal"](run, connection)
    driver.drain()
    assert run.result(timedelta()) == ["now", {}]


@LEVELS
def test_a_context_is_changed_in_the_transaction_that_starts_the_run(
    level: str | None, driver: Driver, house: Warehouse
) -> None:
    """As it is signalled there."""
    with older_transaction(house, level) as connection:
        run = Waits.with_options(connection=connection).start()
        SENDS["context"](run, connection)
        SENDS["signal"](run, connection)
    driver.drain()
    assert run.result(timedelta()) == ["now", {"n": 1}]


@LEVELS
def test_a_run_that_waits_is_reached_from_a_callers_transaction(
    level: str | None, driver: Driver, house: Warehouse
) -> None:
    """As long as it is not over, nothing is refused."""
    run = Waits.start()
    driver.drain()
    with older_transaction(house, level) as connection:
        for send in SENDS.values():
            send(run, connection)
    driver.travel(MINUTE)
    assert run.result(timedelta()) == ["now", {"n": 1}]


# -- by what a run is called -------------------------------------------------------------------------------------------


class Card(Workflow):
    """Called by one argument, unique by two."""

    workflow_name = "going_on.Card"
    identified_by = "card"
    unique_by = ("card", "style")

    def run(self, card: str, style: str = "plain") -> Any:
        return self.wait_for_signal("go")


@pytest.mark.parametrize("style", ["plain", "fancy"])
def test_a_run_is_found_by_what_it_is_called(style: str, driver: Driver) -> None:
    """Exactly the arguments of ``identified_by`` are its name, whatever else makes it unique."""
    run = Card.start("7", style)
    other = Card.start("8", style)
    assert Card.find(card="7") == run
    assert Card.find(card="7", style=style) == run
    driver.drain()
    assert Card.signal("go", "now", card="7")
    driver.drain()
    assert run.result(timedelta()) == "now"
    assert other.state is RunState.AWAITING


# -- commands that are given again ---------------------------------------------------------------------------------


class Sleeps(Workflow):
    """Waits before each of its steps."""

    workflow_name = "going_on.Sleeps"

    @step(wait=HOUR)
    def first(self) -> None:
        BODIES.append("first")

    @step(wait=HOUR)
    def second(self) -> None:
        BODIES.append("second")


class SleepsInRun(Workflow):
    """The same in ``run()``."""

    workflow_name = "going_on.SleepsInRun"

    def run(self) -> None:
        self.sleep(HOUR, name="first")
        self.sleep(HOUR, name="second")
        BODIES.append("second")


@pytest.mark.parametrize("cls", [Sleeps, SleepsInRun])
def test_a_skip_that_is_said_again_leaves_out_one_step(cls: Any, driver: Driver) -> None:
    """Until it is honoured it is about the step at which the run stood."""
    run = cls.start()
    driver.drain()
    assert [run.skip() for _ in range(3)] == ["done", "unchanged", "unchanged"]
    driver.drain()
    assert (run.state, run.current_step, BODIES) == (RunState.WAITING, "second", [])
    driver.travel(HOUR)
    assert (run.state, BODIES) == (RunState.COMPLETED, ["second"])
    assert [row.name for row in run.steps if row.outcome == "skipped"] == ["first"]


# -- connections that break while somebody waits -------------------------------------------------------------------


@pytest.fixture
def cable(server_house: Warehouse) -> Iterator[Cable]:
    cable = Cable(server_house.url)
    yield cable
    cable.close()


@pytest.fixture
def far(cable: Cable) -> Iterator[Stepwell]:
    """An engine at the other end of the cable."""
    well = Stepwell(cable.url, default=False)
    well.check()
    yield well
    well.close()


@pytest.fixture
def ended(server_house: Warehouse) -> Run:
    """A run that is over."""
    with Workbench(server_house.url) as bench:
        run = Waits.start()
        run.signal("go")
        bench.run_to_end(run)
        return run


def test_result_rides_out_connections_that_break(ended: Run, cable: Cable, far: Stepwell) -> None:
    """Several in a row; whoever waits hears of none."""
    run = far.run(ended.id)
    cable.cut(Cut.LOST)

    def cut_twice_more() -> None:
        for number in (1, 2):
            wait_until(lambda number=number: cable.cuts == number)  # type: ignore[misc]  # a loop's own
            cable.cut(Cut.LOST)

    cutting = Thread(target=cut_twice_more)
    cutting.start()
    assert run.result(timedelta(seconds=20)) == [None, {}]
    cutting.join()
    assert cable.cuts == 3


def test_result_gives_up_at_its_timeout(ended: Run, cable: Cable, far: Stepwell) -> None:
    """With the error of the database, where that stays away."""
    run = far.run(ended.id)
    cable.close()
    began_at = far.clock.monotonic()
    with pytest.raises(DBAPIError):
        run.result(timedelta(seconds=1))
    assert 1 <= far.clock.monotonic() - began_at < 5
