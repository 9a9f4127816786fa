"""How soon a worker process turns to what is due."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.states import RunState
from tests.chaos.errands import Delayed, Plain
from tests.chaos.fleet import until
from tests.chaos.scene import Scene

BUSY_MACHINE = 1.0


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with Scene(database_url, tmp_path) as scene:
        yield scene


def test_a_timer_fires_within_a_second(scene: Scene) -> None:
    """A run goes on within a second of its instant and never before it, however seldom its worker looks."""
    # What was there before the worker's first look needs no wake.
    runs = scene.start_many(Delayed, 8)
    scene.worker(threads=8, poll=30, lease=60)
    scene.wait_until_completed(runs, within=20)
    began = {each.account: each.at for each in scene.traced() if each.step == "after"}
    for run in runs:
        [row] = [row for row in run.steps if row.name == "after"]
        assert row.scheduled_for is not None
        late = began[run.args["account"]] - row.scheduled_for.timestamp()
        assert 0 <= late < 1 + BUSY_MACHINE


@pytest.mark.parametrize("product", [pytest.param("postgresql", marks=pytest.mark.servers)], indirect=True)
def test_a_worker_in_another_process_is_woken(scene: Scene) -> None:
    """On PostgreSQL a start wakes the workers of other processes; they need not look by themselves for that."""
    worker = scene.worker(poll=30)
    worker.wait_until_started()
    latencies = []
    for number in range(5):
        # Idle again, so that nothing but a wake makes it look.
        run = scene.start(Plain)
        started_at = run.info().created_at.timestamp()
        body = scene.wait_until_body(run.args["account"], "work", within=10)
        latencies.append(body.at - started_at)
        until("it is idle again", lambda run=run: run.state is RunState.COMPLETED)
        assert worker.is_alive(), number
    assert sorted(latencies)[len(latencies) // 2] < 1.0
    assert max(latencies) < 5.0
