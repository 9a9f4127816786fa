"""A run that a worker cannot drive, or must not yet, can be stopped all the same, also by an earlier request."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from stepwell import Run, Stepwell, Workflow, step
from stepwell.states import RunState
from tests.integration.declared.shop import story
from tests.integration.declared.test_bad_rows import set_raw
from tests.integration.declared.test_deploys import newer_version, unknown_step, unknown_workflow
from tests.support.driving import Driver

HOUR = timedelta(hours=1)
heard: list[tuple[str, str | None]] = []


class Sent(Workflow[None]):
    """Waits before its only step."""

    workflow_name = "any_run.Sent"
    unique_by = "number"

    @step(wait=HOUR)
    def send(self) -> None: ...


class Told(Sent):
    """Hears what is done to it."""

    workflow_name = "any_run.Told"

    def on_pause(self, reason: str | None) -> None:
        heard.append(("pause", reason))

    def on_cancel(self, reason: str | None) -> None:
        heard.append(("cancel", reason))


def unreadable(well: Stepwell, run: Run) -> None:
    set_raw(well, run, "args", "{broken")


CASES: dict[str, Callable[[Stepwell, Run], None]] = {
    "workflow": unknown_workflow,
    "step": unknown_step,
    "version": newer_version,
    "undecodable": unreadable,
}


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_request_to_a_dead_worker_is_honoured_by_whoever_comes(
    driver: Driver, well: Stepwell, case: str, verb: str
) -> None:
    """That worker does not know the run, or cannot read it; to stop it, it need not."""
    run = Sent.start(number=1)
    driver.drain()
    run.reschedule()
    assert driver.claim()
    assert str(getattr(run, verb)("enough", by="ann")) == "requested"
    CASES[case](well, run)
    driver.travel(well.lease + timedelta(seconds=1))

    row = run.info()
    state = {"pause": RunState.PAUSED, "cancel": RunState.CANCELED}[verb]
    assert (row.state, row.reason, row.stop_request, row.wake_at) == (state, "enough", None, None)
    asked = run.steps[-1]
    assert (asked.kind, asked.name) == ("command", verb)
    said = asked.details
    assert (said["by"], said["reason"], said["from"]) == ("ann", "enough", "running")
    assert [each.state for each in run.steps if each.kind == "step"] == [
        "scheduled" if verb == "pause" else "canceled"
    ]
    assert (row.finished_at is not None, row.active_key is None) == ((verb == "cancel",) * 2)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_request_that_comes_while_a_run_is_put_off_is_honoured_at_once(
    driver: Driver, well: Stepwell, case: str, verb: str
) -> None:
    """It was claimed before: that it is put off, or fails, is refused, and the next claim honours the request."""
    run = Sent.start(number=1)
    CASES[case](well, run)
    (claimed,) = driver.claim()
    assert str(getattr(run, verb)("enough")) == "requested"
    driver.activate(claimed)
    driver.drain()

    assert (run.state, run.reason) == ({"pause": "paused", "cancel": "canceled"}[verb], "enough")


def test_an_open_row_of_a_kind_that_a_newer_version_writes_is_closed(driver: Driver, well: Stepwell) -> None:
    """Whoever cancels the run need not know for what it waits."""
    run = Sent.start(number=1)
    driver.drain()
    with well.database.begin() as connection:
        connection.exec_driver_sql("UPDATE stepwell_step_executions SET kind = 'oracle'")
    run.reschedule()
    assert driver.claim()
    run.cancel()
    unknown_workflow(well, run)
    driver.travel(well.lease + timedelta(seconds=1))

    assert run.state is RunState.CANCELED
    assert (run.steps[0].kind, run.steps[0].state) == ("oracle", "canceled")


def test_a_skip_is_left_to_whoever_knows_the_step(driver: Driver, well: Stepwell) -> None:
    """What is skipped is a step of the plan: a run that is put off keeps the request."""
    run = Sent.start(number=1)
    run.skip()
    unknown_workflow(well, run)
    driver.drain()
    assert run.state is RunState.WAITING
    set_raw(well, run, "workflow", Sent.workflow_name)
    driver.travel(HOUR)
    assert story(run) == ["send skipped"]


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_run_that_waits_for_another_one_is_stopped(driver: Driver, verb: str) -> None:
    """It takes the place of one that is still driven: that one may take long. Its class hears of it."""
    old = Told.start(number=1)
    assert driver.claim()
    new = Told.with_options(on_conflict="replace").start(number=1)
    assert new.state is RunState.AWAITING
    assert str(getattr(new, verb)("enough")) == "requested"
    driver.drain()

    assert new.state is {"pause": RunState.PAUSED, "cancel": RunState.CANCELED}[verb]
    assert heard == [(verb, "enough")]
    assert old.state is RunState.RUNNING


def test_a_pause_that_is_withdrawn_leaves_the_run_where_it_waits(driver: Driver) -> None:
    """A run that takes the place of another one does not begin before that one is over."""
    Told.start(number=1)
    assert driver.claim()
    new = Told.with_options(on_conflict="replace").start(number=1)
    new.pause()
    new.resume()
    driver.drain()

    assert (new.state, new.reason, heard) == (RunState.AWAITING, "predecessor", [])
