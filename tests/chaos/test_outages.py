"""An outage that outlasts the leases: of the database, or of the machines on which the workers are."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from stepwell import Run
from tests.chaos.errands import Long
from tests.chaos.fleet import WorkerProcess
from tests.chaos.proxy import Proxy
from tests.chaos.scene import SERVERS, Scene
from tests.databases import Product

LEASE = 2.0
OUTAGE = 2 * LEASE
BODY = OUTAGE + 2.0


def start_long_steps(
    scene: Scene, count: int, url: str | None = None
) -> tuple[list[Run], list[WorkerProcess]]:
    """One worker in the middle of long steps, and an idle one beside it that would take them over if it might."""
    runs = scene.start_many(Long, count, seconds=BODY)
    busy = scene.worker(url, lease=LEASE, threads=count, name="busy")
    for number in range(1, count + 1):
        scene.wait_until_body(f"account-{number}", "work")
    idle = scene.worker(url, lease=LEASE, threads=count, name="idle")
    idle.wait_until_started()
    return runs, [busy, idle]


def check_nothing_ran_twice(scene: Scene, runs: Sequence[Run], workers: Sequence[WorkerProcess]) -> None:
    scene.wait_until_completed(runs, within=30)
    each_once = Counter((run.args["account"], step) for run in runs for step in ("work", "finish_up"))
    assert scene.bodies() == each_once
    assert scene.ledger() == each_once
    assert [worker.logged("claim.recover") for worker in workers] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("product", SERVERS, indirect=True)
def test_an_outage_of_the_database_repeats_no_body(product: Product, tmp_path: Path) -> None:
    """All leases run out while the database is away; then the living renew before anybody takes from them. No body
    begins twice, whether connections hung or broke, and everything is finished.
    """
    with ExitStack() as stack:
        scenes: list[Scene] = []
        for name in ("hangs", "breaks"):
            folder = tmp_path / name
            folder.mkdir()
            scenes.append(stack.enter_context(Scene(stack.enter_context(product.database()), folder)))
        hangs, breaks = (stack.enter_context(Proxy(scene.url)) for scene in scenes)
        started = [
            start_long_steps(scene, 16, proxy.url)
            for scene, proxy in zip(scenes, (hangs, breaks), strict=True)
        ]
        hangs.stall()
        breaks.refuse()
        threading.Event().wait(OUTAGE)
        hangs.resume()
        breaks.resume()
        for scene, (runs, workers) in zip(scenes, started, strict=True):
            check_nothing_ran_twice(scene, runs, workers)


@pytest.mark.slow
def test_workers_that_stood_still_together_repeat_no_body(scene: Scene) -> None:
    """Machines that were suspended together go on together: the living renew first, and nothing runs twice."""
    runs, workers = start_long_steps(scene, 8)
    for worker in workers:
        worker.stop()
    threading.Event().wait(OUTAGE)
    for worker in reversed(workers):
        worker.go_on()
    check_nothing_ran_twice(scene, runs, workers)
