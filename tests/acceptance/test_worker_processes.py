"""Several worker processes on one database."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.errands import Chain
from tests.chaos.scene import Scene


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with Scene(database_url, tmp_path) as scene:
        yield scene


@pytest.mark.slow
def test_processes_share_the_work_and_stay_out_of_each_others_way(scene: Scene) -> None:
    """Four processes with four threads each drive a hundred runs of five steps, each step once; on SQLite nobody sees
    that the database is locked, and on no database does anybody complain of anything.
    """
    workers = [scene.worker(threads=4, lease=10) for _ in range(4)]
    for worker in workers:
        worker.wait_until_started()
    runs = scene.start_many(Chain, 100)
    scene.wait_until_completed(runs, within=60)
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [worker.exit_code() for worker in workers] == [0] * 4

    assert set(scene.bodies().values()) == {1}
    assert len(scene.bodies()) == 500
    assert scene.ledger() == Counter((run.args["account"], step) for run in runs for step in ("two", "four"))
    complaints = [
        record
        for worker in workers
        for record in worker.records()
        if record["level"] not in ("INFO", "DEBUG")
    ]
    assert complaints == []
    assert not any("locked" in worker.log_text() for worker in workers)
    # On one processor one of them may be quickest; but all of them were there, and more than one had work.
    assert len({each.process for each in scene.traced()}) > 1
