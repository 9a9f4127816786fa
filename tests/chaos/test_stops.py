"""A worker process that stands still for longer than its lease, as a suspended machine does, and then goes on."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from stepwell import Run
from stepwell.states import RunState
from tests.chaos.errands import Errand
from tests.chaos.faults import Fault
from tests.chaos.fleet import WorkerProcess, until
from tests.chaos.scene import Scene
from tests.databases import Product, SQLite

WRITING = ("collect", "pay", "deliver")

# At which passage it stops, and what it had committed by then.
STOPS: dict[str, tuple[int, tuple[str, ...]]] = {
    "claimed": (1, ()),
    "body.due": (2, ("collect",)),
    "body.inside": (2, ("collect",)),
    "body.in_session": (2, ("collect",)),
    "step.flushed": (2, ("collect",)),
    "step.guarded": (2, ("collect",)),
    "journal.before": (1, ("collect", "pay")),
    "settle.before": (1, ("collect", "pay", "note", "deliver")),
}
# A stopped process that holds SQLite's write lock stops all writers, and SQLite has no remedy.
HOLDS_THE_WRITE_LOCK = {"body.in_session", "step.flushed", "step.guarded"}


def is_held_in_note(scene: Scene, worker: WorkerProcess, run: Run) -> bool:
    account = run.args["account"]
    return any(
        (each.account, each.step, each.process) == (account, "note", worker.pid) for each in scene.traced()
    )


@pytest.mark.slow
def test_a_late_worker_writes_nothing(scene: Scene, product: Product, tmp_path: Path) -> None:
    """A worker that stood still past its lease, at whatever point, writes nothing more and begins no further body;
    another one finishes the run, even where the stopped one held locks in an open transaction.
    """
    points = [point for point in STOPS if not (isinstance(product, SQLite) and point in HOLDS_THE_WRITE_LOCK)]
    gate = tmp_path / "gate"
    runs = {point: scene.start(Errand, queue=point, gate=str(gate)) for point in points}
    late = {
        point: scene.worker(
            queues=[point], threads=1, fault=Fault(point, "SIGSTOP", STOPS[point][0]), pace=0, name=point
        )
        for point in points
    }
    for worker in late.values():
        worker.wait_until_stopped(within=60)
    bodies_before = len(scene.traced())
    heir = scene.worker(queues=points, threads=16, name="heir")
    # It stays in the middle of the runs, so that the late ones find them running, in other hands.
    for point, run in runs.items():
        if point == "settle.before":
            scene.wait_until_state(run, RunState.COMPLETED)
        else:
            until(f"{point} has a new holder", lambda run=run: is_held_in_note(scene, heir, run))
    for worker in late.values():
        worker.go_on()
    for worker in late.values():
        worker.wait_until_logged("activation.lost", within=20)
        worker.send(signal.SIGTERM)
    assert [worker.exit_code() for worker in late.values()] == [0] * len(points)
    gate.touch()
    scene.wait_until_completed(runs.values())

    accounts = {f"account-{number}": point for number, point in enumerate(points, start=1)}
    assert scene.ledger() == Counter((account, step) for account in accounts for step in WRITING)
    assert {account: scene.balance(account) for account in accounts} == dict.fromkeys(accounts, 3)
    assert {each.process for each in scene.traced()[bodies_before:]} == {heir.pid}
    for point, run in runs.items():
        authors = {row.name: row.worker for row in scene.journal(run) if row.state == "completed"}
        assert authors == {
            step: late[point].name if step in STOPS[point][1] else heir.name
            for step in ("collect", "pay", "note", "deliver")
        }, point
