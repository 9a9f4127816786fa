"""Pausing and canceling runs that nobody drives, whose class wants to hear of it: a worker does it, and tells it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import InvalidTransition, Retry, Run, Signal, Stepwell, Workflow, step
from stepwell.states import RunState
from stepwell.store.commands import Answer
from tests.integration.declared.shop import story
from tests.integration.declared.test_bad_rows import set_raw
from tests.support.driving import Driver

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
DONE, REQUESTED, UNCHANGED = Answer.DONE, Answer.REQUESTED, Answer.UNCHANGED
heard: list[tuple[str, str | None]] = []
DO: dict[str, Callable[[Any], Any]] = {}


class Silent(Workflow[None]):
    """Waits a day, then for a signal; hears nothing."""

    workflow_name = "told.Silent"

    @step
    def begin(self) -> None:
        DO.get("begin", lambda self: None)(self)

    @step(wait=DAY)
    def remind(self) -> None: ...

    @step(awaits=Signal("verdict", timeout=9 * DAY))
    def decide(self, verdict: str) -> None: ...


class Told(Silent):
    """Hears of both."""

    workflow_name = "told.Told"

    def on_pause(self, reason: str | None) -> None:
        heard.append(("pause", reason))

    def on_cancel(self, reason: str | None) -> None:
        heard.append(("cancel", reason))


class Mourner(Silent):
    """Hears of its end only."""

    workflow_name = "told.Mourner"

    def on_cancel(self, reason: str | None) -> None:
        heard.append(("cancel", reason))


class ToldRun(Workflow[None]):
    """Waits a day in ``run()``, and hears of both."""

    workflow_name = "told.ToldRun"

    def run(self) -> None:
        self.sleep(DAY)

    def on_pause(self, reason: str | None) -> None:
        heard.append(("pause", reason))

    def on_cancel(self, reason: str | None) -> None:
        heard.append(("cancel", reason))


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()
    DO.clear()


def fail(workflow: Any) -> None:
    raise ValueError("no paper")


def bring(driver: Driver, state: RunState, workflow: Any = Told) -> Run:
    """A run of the class in this state, which nobody drives."""
    if state is RunState.FAILED:
        DO["begin"] = fail
    if state is RunState.PAUSED:
        DO["begin"] = lambda self: self.pause("by itself")
    run: Run = workflow.start()
    if state is not RunState.READY:
        driver.drain()
    if state is RunState.AWAITING:
        driver.travel(DAY)
    assert run.state is state, run.explain()
    heard.clear()
    return run


PARKED = [RunState.READY, RunState.WAITING, RunState.AWAITING]
STOPPED = [RunState.PAUSED, RunState.FAILED]


@pytest.mark.parametrize(
    ("verb", "state"),
    [*(("pause", state) for state in PARKED), *(("cancel", state) for state in [*PARKED, *STOPPED])],
)
def test_a_worker_does_it_and_tells_the_class(driver: Driver, verb: str, state: RunState) -> None:
    """It is asked for, and the run is due at once; no body runs. The journal says who asked, why, and of what."""
    run = bring(driver, state)
    bodies, due_at = story(run), run.info().due_at
    driver.clock.travel(timedelta(seconds=1))
    assert getattr(run, verb)("enough", by="ann") is REQUESTED
    row = run.info()
    assert (row.state, row.lane, heard) == ("ready", "default", [])
    assert row.due_at == (due_at if state is RunState.READY else driver.clock.now())
    driver.drain()

    row = run.info()
    assert (row.state, row.reason, row.stop_request) == (
        f"{verb}{'d' if verb == 'pause' else 'ed'}",
        "enough",
        None,
    )
    assert heard == [(verb, "enough")]
    asked = run.steps[-1]
    assert (asked.kind, asked.name) == ("command", verb)
    said = asked.details
    assert said.pop("asked_at") == driver.clock.now().isoformat()
    assert said == {"by": "ann", "from": state, "reason": "enough"}
    assert [each.replace("scheduled", "canceled") for each in bodies] == [
        each.replace("scheduled", "canceled") for each in story(run)
    ]


def test_who_paused_a_run_whose_class_hears_of_it_keeps_its_instant(driver: Driver) -> None:
    """What it waits for, and until when, is kept as by any pause."""
    run = bring(driver, RunState.WAITING)
    due = run.info().wake_at
    run.pause()
    driver.travel(HOUR)
    run.resume()
    driver.drain()

    assert (run.state, run.info().wake_at) == (RunState.WAITING, due)


@pytest.mark.parametrize(("workflow", "verb"), [(Silent, "pause"), (Silent, "cancel"), (Mourner, "pause")])
@pytest.mark.parametrize("state", PARKED)
def test_where_nobody_listens_it_is_done_at_once(
    driver: Driver, workflow: Any, verb: str, state: RunState
) -> None:
    """No worker is needed for it; a hook for the one verb does not hold up the other."""
    run = bring(driver, state, workflow)
    assert getattr(run, verb)() is DONE
    assert run.state is {"pause": RunState.PAUSED, "cancel": RunState.CANCELED}[verb]
    assert heard == []


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_class_that_is_not_loaded_here_hears_nothing(driver: Driver, well: Stepwell, verb: str) -> None:
    """Its workers might be gone for good: the run is stopped at once."""
    run = bring(driver, RunState.WAITING)
    set_raw(well, run, "workflow", "Elsewhere")
    assert getattr(run, verb)() is DONE
    assert run.state is {"pause": RunState.PAUSED, "cancel": RunState.CANCELED}[verb]


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_class_with_run_is_told_alike(driver: Driver, verb: str) -> None:
    """The wait that it stands in is kept by a pause and called off by a cancel."""
    run = ToldRun.start()
    driver.drain()
    due = run.info().wake_at
    assert getattr(run, verb)("enough", by="ann") is REQUESTED
    driver.drain()

    assert heard == [(verb, "enough")]
    assert [(row.name, row.state) for row in run.steps] == [
        ("sleep", "scheduled" if verb == "pause" else "canceled"),
        (verb, "completed"),
    ]
    if verb == "pause":
        run.resume()
        driver.drain()
        assert (run.state, run.info().wake_at) == (RunState.WAITING, due)


def test_to_ask_again_changes_nothing(driver: Driver) -> None:
    """The first one stands, with its reason; a stronger one takes its place, a weaker one does not."""
    run = bring(driver, RunState.WAITING)
    assert [run.pause("lunch"), run.pause("dinner")] == [REQUESTED] * 2
    assert [run.cancel("enough"), run.cancel("really"), run.pause()] == [REQUESTED, REQUESTED, UNCHANGED]
    driver.drain()

    assert heard == [("cancel", "enough")]
    assert run.cancel() is UNCHANGED
    with pytest.raises(InvalidTransition):
        run.pause()


def test_a_pause_that_is_withdrawn_before_a_worker_came(driver: Driver) -> None:
    """Nothing has happened: the run waits on, and nobody is told."""
    run = bring(driver, RunState.WAITING)
    due = run.info().wake_at
    run.pause()
    assert run.resume() is DONE
    driver.drain()

    assert (run.state, run.info().wake_at, heard) == (RunState.WAITING, due, [])


def test_a_worker_that_dies_on_the_way_changes_nothing(driver: Driver, well: Stepwell) -> None:
    """The next one does it."""
    run = bring(driver, RunState.WAITING)
    run.cancel("enough")
    assert driver.claim()
    driver.travel(well.lease + timedelta(seconds=1))

    assert (run.state, heard) == (RunState.CANCELED, [("cancel", "enough")])


def test_a_request_to_a_dead_worker_is_taken_over_by_the_next_command(driver: Driver, well: Stepwell) -> None:
    """Asked for before the worker was lost and once more after it: honoured once, for the one who asked first."""
    run = Told.start()
    assert driver.claim()
    assert run.cancel("first") is REQUESTED
    driver.clock.travel(well.lease + timedelta(seconds=1))
    driver.claim(0)
    assert run.cancel("second") is REQUESTED
    driver.drain()

    assert heard == [("cancel", "first")]
    assert run.steps[-1].details["from"] == "running"


def test_the_end_is_an_end_like_any_other(driver: Driver) -> None:
    """The identity is free, a retry that was announced is called off, unread signals are counted."""
    DO["begin"] = fail

    class Unique(Told):
        unique_by = "number"
        policies = [Retry(wait=DAY)]

    run = Unique.start(number=1)
    driver.drain()
    assert run.state is RunState.WAITING
    run.signal("verdict", "yes")
    run.cancel()
    with pytest.raises(Exception, match="exists already"):
        Unique.start(number=1)
    driver.drain()

    assert Unique.start(number=1).created
    row = run.info()
    assert (row.finished_at, row.active_key, row.wake_at) == (driver.clock.now(), None, None)
    assert json.loads(row.details or "") == {"unread_signals": 1}
    assert story(run) == ["begin retried", "begin canceled"]


def test_many_at_once(driver: Driver, well: Stepwell) -> None:
    """A query counts those that are asked like those that are stopped; each class is told of its own."""
    for workflow in (Told, Silent, Mourner):
        for _ in range(2):
            bring(driver, RunState.WAITING, workflow)
    assert well.runs().live().pause("closed") == 6
    driver.drain()
    assert (well.runs().in_state("paused").count(), heard) == (6, [("pause", "closed")] * 2)

    heard.clear()
    assert well.runs().attention().cancel("for good") == 6
    driver.drain()
    assert (well.runs().in_state("canceled").count(), heard) == (6, [("cancel", "for good")] * 4)


def test_a_run_that_is_replaced_gives_way_at_once(driver: Driver) -> None:
    """The newcomer takes its place in the same transaction: nobody is called for that."""

    class Unique(Told):
        unique_by = "number"

    old = Unique.start(number=1)
    driver.drain()
    new = Unique.with_options(on_conflict="replace").start(number=1)

    assert (old.state, new.state, heard) == (RunState.CANCELED, RunState.READY, [])
    (row,) = [row for row in old.steps if row.kind == "command"]
    assert row.details == {"by": None, "from": "waiting", "reason": "replaced"}
