"""A worker process that is told to stop."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stepwell import Run
from stepwell.states import ExecutionState, Reason, RunState
from tests.chaos.errands import Long, LongAsync, LongInSession
from tests.chaos.fleet import until
from tests.chaos.scene import Scene

SIGNALS = (signal.SIGTERM, signal.SIGINT)
AT_ONCE = 4.0
"""Seconds in which a process ends that need not wait for anything, on a busy machine."""


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with Scene(database_url, tmp_path) as scene:
        yield scene


def states(runs: Sequence[Run]) -> list[tuple[str, str | None]]:
    return [(row.state, row.reason) for row in (run.info() for run in runs)]


def wait_until_bodies_run(scene: Scene, runs: Sequence[Run], count: int = 1) -> list[Run]:
    """Wait until so many of them are in their bodies, and answer which."""

    def begun() -> list[Run]:
        accounts = {each.account for each in scene.traced()}
        return [run for run in runs if run.args["account"] in accounts]

    until(f"{count} bodies run", lambda: len(begun()) >= count)
    return begun()


def test_a_stop_finishes_what_runs_and_gives_back_what_waits(scene: Scene) -> None:
    """Told to stop by either signal, a worker gives its queue back at once, lets the running bodies end and journals
    them, begins nothing more, and ends with 0; nothing of this counts as a loss.
    """
    runs = {number: [scene.start(Long, queue=number.name, seconds=3) for _ in range(4)] for number in SIGNALS}
    workers = {number: scene.worker(queues=[number.name], threads=1, name=number.name) for number in SIGNALS}
    begun = {number: wait_until_bodies_run(scene, runs[number])[0] for number in SIGNALS}
    for number, worker in workers.items():
        worker.send(number)
    for number, each in begun.items():
        others = [run for run in runs[number] if run != each]
        until(
            "the queue is given back", lambda others=others: {run.state for run in others} == {RunState.READY}
        )
        assert each.state is RunState.RUNNING, "the queue waited for the body"
    assert [worker.exit_code() for worker in workers.values()] == [0, 0]
    for number, each in begun.items():
        assert scene.done(each) == ["work"]
        assert [run.state for run in runs[number]] == [RunState.READY] * 4
        assert [run.info().recoveries for run in runs[number]] == [0] * 4
    assert len(scene.traced()) == len(SIGNALS)

    scene.worker(queues=[number.name for number in SIGNALS], pace=0, name="next")
    everything = [run for part in runs.values() for run in part]
    scene.wait_until_completed(everything)
    assert set(scene.bodies().values()) == {1}


def test_a_body_that_outlasts_the_grace_period_is_given_back(scene: Scene) -> None:
    """After the grace period coroutines are cancelled, other bodies are left, and the process ends with 0; their runs
    are given back as interrupted at once, and neither an attempt nor a loss is counted.
    """
    runs = [scene.start(Long, seconds=60), scene.start(LongAsync, seconds=60), scene.start(Long, seconds=60)]
    worker = scene.worker(threads=3, grace=1.5, lease=30)
    wait_until_bodies_run(scene, runs, 3)
    worker.send(signal.SIGTERM)
    told_at = time.monotonic()
    assert worker.exit_code() == 0
    took = time.monotonic() - told_at
    assert 1.5 <= took < 1.5 + AT_ONCE
    assert states(runs) == [(RunState.READY, Reason.INTERRUPTED)] * 3
    assert scene.bodies()[runs[1].args["account"], "cancelled"] == 1

    scene.worker(pace=0, name="next")
    scene.wait_until_completed(runs, within=20)
    for run in runs:
        [work] = [row for row in run.steps if row.name == "work"]
        assert (work.state, work.attempt) == (ExecutionState.COMPLETED, 1)
        assert run.info().recoveries == 0


def test_a_second_signal_ends_the_worker_at_once(scene: Scene) -> None:
    """Whoever says it twice does not wait for the grace period: the runs are given back all the same."""
    runs = [scene.start(Long, seconds=60), scene.start(Long, seconds=60)]
    worker = scene.worker(threads=1, grace=60, lease=30)
    [begun] = wait_until_bodies_run(scene, runs)
    worker.send(signal.SIGINT)
    [waiting] = [run for run in runs if run != begun]
    scene.wait_until_state(waiting, RunState.READY)
    assert worker.is_alive()
    worker.send(signal.SIGTERM)
    assert worker.exit_code(within=AT_ONCE) == 1
    assert states([begun]) == [(RunState.READY, Reason.INTERRUPTED)]
    # It may have been given back before, since its worker was busy.
    assert states([waiting])[0] in [(RunState.READY, Reason.INTERRUPTED), (RunState.READY, None)]
    assert scene.bodies() == {(begun.args["account"], "work"): 1}


def test_a_body_with_an_open_transaction_does_not_keep_the_process(scene: Scene) -> None:
    """What a body wrote that outlasts the grace period is gone with its process; on SQLite, where it holds the write
    lock to the last, its lease has to run out. The step is committed once, by the next worker.
    """
    run = scene.start(LongInSession, seconds=60)
    worker = scene.worker(threads=1, grace=0.5)
    wait_until_bodies_run(scene, [run])
    worker.send(signal.SIGTERM)
    assert worker.exit_code(within=3 * AT_ONCE) == 0
    if not scene.well.database.dialect.has_one_writer:
        assert states([run]) == [(RunState.READY, Reason.INTERRUPTED)]
    scene.worker(pace=0, name="next")
    scene.wait_until_completed([run])
    assert scene.ledger() == {(run.args["account"], "work"): 1}


def test_an_idle_worker_ends_at_once(scene: Scene) -> None:
    """A worker that rests, however seldom it looks, ends when it is told to."""
    worker = scene.worker(poll=60)
    worker.wait_until_started()
    worker.send(signal.SIGTERM)
    assert worker.exit_code(within=AT_ONCE) == 0
