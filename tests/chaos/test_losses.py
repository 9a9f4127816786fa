"""A worker that is gone: what is seen of it, how soon another takes over, and what becomes of a run that kills."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from stepwell import Run
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from stepwell.store.rows import ExecutionRow
from tests.chaos.errands import Innocent, Long, Poison
from tests.chaos.fleet import WorkerProcess, until
from tests.chaos.scene import Scene

LEASE = 2.0
INTERVAL = LEASE / 3
LONGEST_FIRST_BACKOFF = 1.5
BUSY_MACHINE = 1.5


@pytest.mark.slow
def test_a_lost_worker_is_seen_and_replaced_in_time(scene: Scene) -> None:
    """A body that outlives a heartbeat shows with its start; when its worker dies the row says so, the run begins
    again within a lease, a renewal and the first delay, however seldom the others look, and no attempt is counted.
    """
    runs = scene.start_many(Long, 4, seconds=60)
    doomed = scene.worker(lease=LEASE, name="doomed")
    shown = [until(f"{run} shows its body", lambda run=run: in_progress(run)) for run in runs]
    scene.worker(lease=LEASE, poll=30, pace=0, name="heir").wait_until_started()
    doomed.kill()
    killed_at = time.time()
    for run in runs:
        account = run.args["account"]
        until(f"{account} has begun again", lambda account=account: scene.bodies()[account, "work"] == 2)
    took = max(each.at for each in scene.traced()) - killed_at
    assert took <= LEASE + INTERVAL + LONGEST_FIRST_BACKOFF + BUSY_MACHINE

    scene.wait_until_completed(runs)
    began = {each.account: each.at for each in scene.traced() if each.process == doomed.pid}
    for run, row in zip(runs, shown, strict=True):
        assert (row.name, row.attempt, row.worker) == ("work", 1, doomed.name)
        assert row.started_at is not None
        assert abs(row.started_at.timestamp() - began[run.args["account"]]) < 1
        lost, again, last = scene.journal(run)
        assert (lost.state, lost.outcome, lost.worker) == (ExecutionState.FAILED, Outcome.LOST, doomed.name)
        assert (lost.position, lost.started_at) == (row.position, row.started_at)
        assert lost.error_class == "stepwell.WorkerLost"
        assert (again.name, again.attempt, again.state) == ("work", 1, ExecutionState.COMPLETED)
        assert (last.name, last.state) == ("finish_up", ExecutionState.COMPLETED)
        assert run.info().recoveries == 0


def in_progress(run: Run) -> ExecutionRow | None:
    return next((row for row in run.steps if row.state == ExecutionState.IN_PROGRESS), None)


@pytest.mark.slow
def test_a_poison_run_takes_no_neighbour_with_it(scene: Scene) -> None:
    """A run that kills each worker that drives it fails alone, as ``worker_lost``; the fifteen that were in the same
    hands each time are finished, each step once.
    """
    innocents = scene.start_many(Innocent, 15)
    poison = scene.start(Poison)
    workers = [scene.worker(lease=LEASE, threads=16, max_recoveries=2)]

    def is_over() -> bool:
        """As a supervisor would: whoever dies is replaced."""
        if not workers[-1].is_alive():
            workers.append(scene.worker(lease=LEASE, threads=16, max_recoveries=2, pace=0))
        return poison.state is RunState.FAILED

    until("the poison run has failed", is_over, within=45)
    scene.wait_until_completed(innocents)
    assert poison.reason == Reason.WORKER_LOST
    assert [(row.kind, row.outcome) for row in scene.journal(poison)] == [(Kind.RECOVERY, Outcome.LOST)] * 3
    assert "3 workers in a row were lost" in (poison.info().error_message or "")
    assert len(workers) == 4
    assert killed(workers[:-1])
    each_once = Counter((run.args["account"], step) for run in innocents for step in ("first", "second"))
    assert scene.ledger() == each_once


def killed(workers: list[WorkerProcess]) -> bool:
    return all(worker.exit_code() == -9 for worker in workers)
