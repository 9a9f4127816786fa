"""Rolling deploys: a worker puts off what it does not know, for a while, and counts nothing against the run."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from stepwell import ManualClock, Run, Stepwell, Workflow, step
from stepwell.states import Reason, RunState
from tests.integration.declared.shop import story
from tests.integration.declared.test_bad_rows import set_raw
from tests.support.driving import Driver

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class Known(Workflow[None]):
    """What this worker has."""

    workflow_name = "deploys.Known"

    version = 3

    @step
    def first(self) -> None: ...

    @step(wait=timedelta(days=7))
    def second(self) -> None: ...


def unknown_workflow(well: Stepwell, run: Run) -> None:
    set_raw(well, run, "workflow", "FromTheFuture")


def unknown_step(well: Stepwell, run: Run) -> None:
    set_raw(well, run, "current_step", "from_the_future")


def newer_version(well: Stepwell, run: Run) -> None:
    set_raw(well, run, "version", "4")


CASES: dict[str, tuple[Any, Reason]] = {
    "workflow": (unknown_workflow, Reason.UNKNOWN_WORKFLOW),
    "step": (unknown_step, Reason.UNKNOWN_STEP),
    "version": (newer_version, Reason.NEWER_VERSION),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_worker_does_not_know_is_put_off(driver: Driver, well: Stepwell, case: str) -> None:
    """Fifteen seconds, doubling up to five minutes; nothing is counted, nothing of the run is touched."""
    change, reason = CASES[case]
    run = Known.start()
    change(well, run)
    waits = []
    driver.drain()
    for _ in range(7):
        waits.append(driver.waits(run))
        row = run.info()
        assert (row.state, row.reason, row.recoveries) == (RunState.WAITING, reason, 0)
        driver.travel(waits[-1] or SECOND)

    assert waits == [15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 4 * MINUTE, 5 * MINUTE, 5 * MINUTE]
    assert list(run.steps) == []


@pytest.mark.parametrize("case", CASES)
def test_after_the_grace_it_fails_and_says_what_to_do(driver: Driver, well: Stepwell, case: str) -> None:
    """For an hour somebody might come who knows it; then the run waits for a person."""
    change, reason = CASES[case]
    run = Known.start()
    change(well, run)
    began = driver.clock.now()
    driver.finish(run)

    row = run.info()
    assert (row.state, row.reason) == (RunState.FAILED, reason)
    assert "Deploy a worker that knows it, then run.resume()" in str(row.error_message)
    assert driver.clock.now() - began < timedelta(hours=1, minutes=6)
    assert "deferred" not in json.loads(row.details or "{}")


@pytest.mark.parametrize("case", CASES)
def test_a_worker_that_knows_it_goes_on(driver: Driver, well: Stepwell, case: str) -> None:
    """As if nothing had been: the steps run, and no attempt is missing."""
    change, _ = CASES[case]
    run = Known.start()
    change(well, run)
    driver.drain()
    driver.travel(MINUTE)
    for column, value in {"workflow": Known.workflow_name, "current_step": "first", "version": "3"}.items():
        set_raw(well, run, column, value)
    driver.travel(MINUTE)

    assert story(run) == ["first success", "second scheduled"]
    assert run.steps[0].attempt == 1


def test_a_run_that_failed_for_want_of_a_worker_is_resumed(driver: Driver, well: Stepwell) -> None:
    """And if there still is none, it is put off from the beginning."""
    run = Known.start()
    unknown_workflow(well, run)
    driver.finish(run)
    run.resume()
    driver.drain()
    assert (run.state, driver.waits(run)) == (RunState.WAITING, 15 * SECOND)

    set_raw(well, run, "workflow", Known.workflow_name)
    driver.travel(MINUTE)
    assert story(run)[0] == "first success"


def test_the_next_deploy_has_a_grace_of_its_own(driver: Driver, well: Stepwell) -> None:
    """A run that was put off, then driven, then put off again a week later has not been unknown for a week."""
    run = Known.start()
    unknown_workflow(well, run)
    driver.drain()
    driver.travel(MINUTE)
    set_raw(well, run, "workflow", Known.workflow_name)
    driver.travel(5 * MINUTE)
    assert story(run) == ["first success", "second scheduled"]

    unknown_workflow(well, run)
    driver.travel(timedelta(days=8))
    assert (run.state, driver.waits(run)) == (RunState.WAITING, 15 * SECOND)


def test_another_cause_is_another_deferral(driver: Driver, well: Stepwell) -> None:
    """First the class is unknown, then its version is too new: the grace counts from the change."""
    run = Known.start()
    unknown_workflow(well, run)
    driver.drain()
    driver.travel(MINUTE)
    set_raw(well, run, "workflow", Known.workflow_name)
    newer_version(well, run)
    driver.travel(5 * MINUTE)

    assert (run.reason, driver.waits(run)) == (Reason.NEWER_VERSION, 15 * SECOND)


@pytest.fixture
def patient(shared_url: str, shop: object) -> Iterator[Driver]:
    """An engine that waits for a deploy for a week."""
    well = Stepwell(shared_url, clock=ManualClock(), unknown_grace=timedelta(days=7))
    with Driver(well) as driver:
        yield driver
    well.close()


def test_a_long_grace_is_kept(patient: Driver) -> None:
    """However often it was put off by then, the pause stays at five minutes."""
    run = Known.start()
    unknown_workflow(patient.well, run)
    patient.drain()
    for _ in range(80):
        patient.travel(5 * MINUTE)

    assert (run.state, patient.waits(run)) == (RunState.WAITING, 5 * MINUTE)
    details = json.loads(run.info().details or "{}")
    assert details["deferred"]["times"] > 70


def test_outside_commands_reach_a_deferred_run(driver: Driver, well: Stepwell) -> None:
    """It can be paused, resumed and canceled like any run that waits."""
    run = Known.start()
    unknown_workflow(well, run)
    driver.drain()
    run.pause()
    assert run.state is RunState.PAUSED
    run.resume()
    driver.drain()
    assert run.reason == Reason.UNKNOWN_WORKFLOW
    run.cancel("not needed")
    assert (run.state, run.reason) == (RunState.CANCELED, "not needed")


def test_neighbours_of_an_unknown_run_go_on(driver: Driver, well: Stepwell) -> None:
    """It does not hold up its queue."""
    unknown = Known.start()
    others = [Known.start() for _ in range(3)]
    unknown_workflow(well, unknown)
    driver.drain()

    assert {story(other)[0] for other in others} == {"first success"}


def test_a_class_that_was_thrown_away_is_unknown(driver: Driver) -> None:
    """What a worker knows is what is loaded: a class that nobody holds any more is none."""

    def make() -> Run:
        class Passing(Workflow[None]):
            @step
            def first(self) -> None: ...

        return Passing.start()

    run = make()
    gc.collect()
    driver.drain()

    assert run.reason in (Reason.UNKNOWN_WORKFLOW, None)
