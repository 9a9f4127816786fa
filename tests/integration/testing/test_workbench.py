"""Time passes when the test says so, and only then is anything done."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import Run, RunFailed, RunState, Workflow, step
from stepwell.testing import Workbench
from tests.integration.testing.examples import (
    DAY,
    Chain,
    Charge,
    Echo,
    Month,
    Needy,
    Places,
    Review,
    Waiting,
    open_ledger,
)


def refuse(name: str) -> None:
    raise ConnectionError(f"no line for {name}")


@pytest.fixture
def charge(bench: Workbench) -> type[Charge]:
    """A workflow that writes through its session; each test says what the service does."""
    open_ledger(bench)
    Charge.calls = []
    Charge.charge = lambda name: None
    return Charge


# -- drain ------------------------------------------------------------------------------------------


def test_nothing_happens_by_itself(stepwell: Workbench) -> None:
    """A started run stays as it is until the test has it driven."""
    run = Month.start()
    assert run.state is RunState.READY
    assert run.steps == []
    assert stepwell.drain() == 1
    assert run.state is RunState.WAITING


def test_drain_does_what_is_due_now_and_no_more(bench: Workbench) -> None:
    """A run that waits until an instant is driven at that instant and not a microsecond before."""
    run = Month.start()
    bench.drain()
    bench.travel(3 * DAY - timedelta(microseconds=1))
    assert bench.drain() == 0
    bench.travel(timedelta(microseconds=1))
    assert bench.drain() == 1
    bench.assert_steps(run, "one", "two")


def test_drain_serves_every_queue(bench: Workbench) -> None:
    """Whatever queue a step names, and however often the run is handed on: it is due, so it is driven."""
    run = Places.start()
    assert bench.drain() > 1
    bench.assert_state(run, "completed")
    assert [row.outcome for row in run.steps] == ["success", "success", "success", "skipped", "skipped"]


def test_a_drain_without_an_end_is_noticed(stepwell: Workbench) -> None:
    """Runs that start runs are cut off by a limit, and the message says which."""

    class Restless(Workflow):
        @step
        def again(self) -> None:
            Restless.start()

    Restless.start()
    with pytest.raises(AssertionError, match="taken up 7 times"):
        stepwell.drain(max_activations=7)


def test_a_drain_within_its_limit_is_none(stepwell: Workbench) -> None:
    """As many activations as the limit says are allowed."""
    for _ in range(3):
        Month.start()
    assert stepwell.drain(max_activations=3) == 3


def test_a_signal_from_anothers_transaction_is_delivered(bench: Workbench) -> None:
    """What was sent through a connection, whose commit tells nobody, reaches the run all the same."""
    run = Review.start()
    bench.drain()
    with bench.engine.database.engine.begin() as connection:
        run.signal("answer", "yes", connection=connection)
    assert bench.drain() == 1
    assert run.context["answer"] == "yes"


# -- time -------------------------------------------------------------------------------------------


def test_the_clock_begins_where_the_test_says(sqlite_url: str) -> None:
    """``start=`` is the first instant; runs are created at it."""
    noon = datetime(2030, 6, 1, 12, tzinfo=UTC)
    with Workbench(sqlite_url, start=noon) as bench:
        assert bench.now == noon
        assert Month.start().info().created_at == noon
        assert bench.travel_to(noon + DAY) == bench.now == noon + DAY
        with pytest.raises(ValueError, match="forward"):
            bench.travel_to(noon)
        with pytest.raises(TypeError, match="time zone"):
            bench.travel_to(datetime(2031, 1, 1))


def test_delays_with_jitter_are_the_ones_that_the_policy_names(charge: Any, bench: Workbench) -> None:
    """Chance is left out: the first retry of a minute's backoff comes after a minute, the second after two."""
    charge.charge = refuse
    run = charge.start(name="Ada")
    bench.raise_errors = False
    start = bench.now
    waits = []
    for _ in range(2):
        bench.drain()
        wake_at = run.info().wake_at
        waits.append(wake_at - bench.now)
        bench.travel_to(wake_at)
    bench.drain()
    assert waits == [timedelta(minutes=1), timedelta(minutes=2)]
    assert bench.now == start + timedelta(minutes=3)
    bench.assert_state(run, "failed")


# -- one step ---------------------------------------------------------------------------------------


def test_one_step_at_a_time(bench: Workbench) -> None:
    """Each call makes one attempt, and time passes until that is due; past the last step there is none."""
    run, start = Month.start(), bench.now
    names = []
    while (row := bench.run_next_step(run)) is not None:
        names.append(row.name)
    assert names == [spec.name for spec in Month.plan.steps]
    assert bench.now == start + 30 * DAY
    bench.assert_state(run, "completed")


def test_a_step_of_another_queue_is_one_step(bench: Workbench) -> None:
    """A run that has to change its queue first still makes its attempt in the same call."""
    run = Places.start()
    for names in [("heavy",), ("heavy", "alone")]:
        row = bench.run_next_step(run)
        assert row is not None
        assert (row.name, row.outcome) == (names[-1], "success")
        bench.assert_steps(run, *names)


def test_a_look_at_a_condition_is_no_step(bench: Workbench) -> None:
    """The run is taken up as often as it takes until a body has run, and time passes between."""
    Waiting.looks = []
    run, start = Waiting.start(comes=True), bench.now
    assert [getattr(bench.run_next_step(run), "name", None) for _ in range(3)] == ["order", "go", None]
    assert bench.now == start + timedelta(hours=2)


def test_one_attempt_is_one_step(charge: Any, bench: Workbench) -> None:
    """A step that is retried takes several calls, each with its outcome."""
    charge.charge = refuse
    bench.raise_errors = False
    run = charge.start(name="Ada")
    outcomes = []
    while (row := bench.run_next_step(run)) is not None:
        outcomes.append((row.name, row.outcome))
    assert outcomes == [("prepare", "success"), ("pay", "retried"), ("pay", "retried"), ("pay", "failed")]


def test_the_next_step_of_one_run_leaves_others_alone(bench: Workbench) -> None:
    """Only the run that is named is driven."""
    other, run = Month.start(), Month.start()
    bench.run_next_step(run)
    bench.assert_steps(run, "one")
    bench.assert_steps(other)


def test_there_is_no_next_step_while_a_person_is_awaited(bench: Workbench) -> None:
    """A run that waits for a signal without a limit, or is paused, answers None and stays where it is."""
    run = Review.start()
    bench.drain()
    assert bench.run_next_step(run) is None
    run.signal("answer", "yes")
    row = bench.run_next_step(run)
    assert row is not None
    assert row.name == "note"
    run.pause()
    assert bench.run_next_step(run) is None


# -- to the end -------------------------------------------------------------------------------------


def test_a_run_is_driven_to_its_end(bench: Workbench) -> None:
    """Time passes over all waits, exactly as long as they are."""
    run, start = Month.start(), bench.now
    assert bench.run_to_end(run) is RunState.COMPLETED
    assert bench.now == start + 30 * DAY
    assert run.result(timeout=timedelta()) == "thirty days"


def test_a_run_is_driven_up_to_a_person(bench: Workbench) -> None:
    """A wait for a signal without a limit ends the drive; one with a limit is waited out."""
    run, start = Review.start(), bench.now
    assert bench.run_to_end(run) is RunState.AWAITING
    assert bench.now == start
    run.signal("answer", "yes")
    assert bench.run_to_end(run) is RunState.COMPLETED
    assert bench.now == start + 7 * DAY
    assert dict(run.context) == {"answer": "yes", "second": "silence"}


def test_other_runs_are_driven_at_their_own_instants(bench: Workbench) -> None:
    """A run that another one depends on does its part on time, not when the first one's wait is over."""
    run, start = Chain.start(), bench.now
    assert bench.run_to_end(run) is RunState.COMPLETED
    assert run.context["said"] == (start + 2 * DAY).isoformat()
    echo = bench.engine.runs(Echo).first()
    assert echo is not None
    bench.assert_state(echo, "completed")


def test_a_run_that_never_ends_is_noticed(stepwell: Workbench) -> None:
    """A condition that never holds is looked at for as often as the limit says; the message shows the history."""
    Waiting.looks = []
    run = Waiting.start(comes=False)
    with pytest.raises(AssertionError, match=r"no end after 20 activations(.|\n)*go \(poll\)"):
        stepwell.run_to_end(run, max_activations=20)


def test_a_run_that_has_stopped_stays_where_it_is(stepwell: Workbench) -> None:
    """To the end of a paused run is no way at all."""
    run = Month.start()
    run.pause()
    assert stepwell.run_to_end(run) is RunState.PAUSED
    assert [entry.name for entry in run.steps] == ["pause"]


# -- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["drain", "run_next_step", "run_to_end"])
def test_the_error_by_which_a_run_fails_is_raised_in_the_test(stepwell: Workbench, verb: str) -> None:
    """It is the author's own, from the author's line, with the run's history as a note; the run is failed."""
    run = Needy.start(what="money")
    drive: Any = getattr(stepwell, verb)
    with pytest.raises(LookupError, match="there is no money") as caught:
        drive() if verb == "drain" else drive(run)
    stepwell.assert_state(run, "failed")
    assert caught.value.__notes__ == [stepwell.timeline(run)]
    library = [entry for entry in caught.traceback if "stepwell/execution" in str(entry.path)]
    assert library == []
    assert caught.traceback[-1].name == "_give"


def test_an_error_that_is_retried_is_none(charge: Any, bench: Workbench) -> None:
    """Only a failure of the run is raised: what a policy gets over is part of the story."""

    def once(name: str) -> None:
        if len(charge.calls) < 3:
            refuse(name)

    charge.charge = once
    run = charge.start(name="Ada")
    assert bench.run_to_end(run) is RunState.COMPLETED
    assert len(set(charge.calls)) == 1


def test_errors_may_be_left_to_the_run(stepwell: Workbench) -> None:
    """With ``raise_errors=False`` a failed run is looked at like any other."""
    stepwell.raise_errors = False
    run = Needy.start(what="money")
    assert stepwell.run_to_end(run) is RunState.FAILED
    stepwell.assert_step(run, "need", outcome="failed")


def test_a_failure_without_an_error_is_told_by_its_record(stepwell: Workbench) -> None:
    """A run that no class is loaded for fails after its grace, and the message says so."""

    def start() -> Run:
        class Gone(Workflow):
            workflow_name = "testing.Gone"

            @step
            def go(self) -> None: ...

        run = Gone.start()
        # As after a deploy that no longer has the class.
        Gone.workflow_name = "testing.Another"
        return run

    run = start()
    with pytest.raises(RunFailed, match=r"no workflow 'testing\.Gone'"):
        stepwell.run_to_end(run)


def test_the_rest_stays_due_when_a_run_fails(stepwell: Workbench) -> None:
    """One failure ends the drain; the next one goes on with what is left."""
    Needy.start(what="money")
    run = Month.start()
    with pytest.raises(LookupError):
        stepwell.drain()
    assert stepwell.drain() == 1
    stepwell.assert_steps(run, "one")


# -- what it costs ----------------------------------------------------------------------------------


def test_a_month_passes_in_milliseconds(stepwell: Workbench) -> None:
    """A workbench, and a run of ten steps in thirty days, take less than a tenth of a second of work.

    Whatever else a machine does makes it slower, and nothing makes it faster: one of many tries must show it.
    """

    def cost() -> float:
        began = time.process_time()
        with Workbench() as bench:
            bench.run_to_end(Month.start())
        return time.process_time() - began

    assert any(cost() < 0.1 for _ in range(20))


def test_no_thread_is_left_behind(sqlite_url: str) -> None:
    """What asynchronous steps and limits need is started for the first of them and ended with the workbench."""
    before = set(threading.enumerate())
    with Workbench(sqlite_url) as bench:
        bench.run_to_end(Month.start())
        assert set(threading.enumerate()) == before
        bench.run_to_end(Places.start())
        assert set(threading.enumerate()) > before
    deadline = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) == before
