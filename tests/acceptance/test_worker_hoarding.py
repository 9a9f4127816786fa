"""A worker whose threads are busy for long keeps no run from those that are idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stepwell import Run, Stepwell, Worker, Workflow, step
from stepwell.states import RunState
from stepwell.store.database import AnswerLost
from tests.chaos.errands import Long
from tests.chaos.fleet import until
from tests.chaos.scene import Scene

SOON = 2.0


class Held(Workflow):
    """Its body lasts until the test opens the gate of its run."""

    gates: dict[str, threading.Event] = {}

    @step
    def work(self) -> None:
        self.gates[self.args["gate"]].wait(60)


class Heard(Held):
    """It wants to be told when it is canceled."""

    told: list[str] = []

    def on_cancel(self, reason: str | None) -> None:
        self.told.append(self.args["gate"])


class Quick(Workflow):
    @step
    def work(self) -> None: ...


@pytest.fixture
def well(database_url: str) -> Iterator[Stepwell]:
    engine = Stepwell(database_url, default=False)
    engine.connect()
    Held.gates.clear()
    Heard.told.clear()
    yield engine
    for gate in Held.gates.values():
        gate.set()
    engine.close()


def start(well: Stepwell, gate: str, workflow: type[Workflow[Any]] = Held) -> Run:
    Held.gates[gate] = threading.Event()
    run: Run = workflow.with_options(engine=well).start(gate=gate)
    return run


def holding(worker: Worker) -> Callable[[], bool]:
    """The worker has a run in its body, and one more in hand."""
    return lambda: len(worker._driven) == 1 and len(worker._inbox) == 1


def test_an_idle_worker_gets_the_run_that_a_busy_one_has_claimed_ahead(
    database_url: str, tmp_path: Path
) -> None:
    """Of two runs a worker with one thread takes both at once; the second one goes to the idle worker soon, without
    a loss and while the first one's step goes on.
    """
    with Scene(database_url, tmp_path, lease=timedelta(seconds=30)) as scene:
        runs = [scene.start(Long, seconds=8) for _ in range(2)]
        scene.worker(threads=1, lease=30, name="busy")
        until("a body runs", lambda: len(scene.traced()) == 1)
        idle = scene.worker(threads=1, lease=30, name="idle", pace=0)
        idle.wait_until_started()
        started_at = time.time()
        until("the other one's runs", lambda: len(scene.traced()) > 1, within=10)
        assert scene.traced()[1].at - started_at < SOON
        scene.wait_until_completed(runs)
        assert set(scene.bodies().values()) == {1}
        assert [run.info().recoveries for run in runs] == [0, 0]


def test_a_run_that_waits_for_a_thread_is_given_back(well: Stepwell) -> None:
    """It is ready in its old place, without a reason or a count; its worker takes it when its thread is free."""
    first, second = start(well, "first"), start(well, "second")
    due_at = second.info().due_at
    with Worker(well, threads=1) as worker:
        until("it holds one", holding(worker))
        until("it is given back", lambda: second.state is RunState.READY, within=SOON)
        row = second.info()
        assert (row.due_at, row.reason, row.recoveries, row.lease_owner) == (due_at, None, 0, None)
        assert {lease.run_id for lease in well.leases.held()} == {first.id}
        third = start(well, "third")
        time.sleep(0.7)
        assert third.state is RunState.READY, "it claimed ahead again while its thread was busy"
        for gate in ("second", "third", "first"):
            Held.gates[gate].set()
        for run in (first, second, third):
            run.result(timeout=timedelta(seconds=10))
    assert worker._outstanding == 0


def test_a_busy_worker_takes_nothing_new(well: Stepwell) -> None:
    """A run that comes while all threads are in long steps is left to the others from the start."""
    start(well, "first")
    with Worker(well, threads=1) as worker:
        until("its thread is busy", lambda: len(worker._driven) == 1)
        time.sleep(0.6)
        second = start(well, "second")
        seen = set()
        limit = time.monotonic() + 1.5
        while time.monotonic() < limit:
            seen.add(second.state)
            time.sleep(0.01)
        assert seen == {RunState.READY}
        assert worker._claimer.has_backlog, "the time slice would not end for it"
        for gate in Held.gates.values():
            gate.set()


@pytest.mark.parametrize(("verb", "state"), [("cancel", RunState.CANCELED), ("pause", RunState.PAUSED)])
def test_what_is_asked_of_a_run_in_hand_is_done_when_it_is_given_back(
    well: Stepwell, verb: str, state: RunState
) -> None:
    """Asked to stop while a busy worker has it, a run stops then and not when a thread is free."""
    start(well, "first")
    second = start(well, "second")
    with Worker(well, threads=1) as worker:
        until("it holds one", holding(worker))
        assert getattr(second, verb)("enough", by="Ada") == "requested"
        until("it has stopped", lambda: second.state is state, within=SOON)
        [row] = [each for each in second.steps if each.kind == "command"]
        assert row.name == verb
        assert second.info().reason == "enough"
        Held.gates["first"].set()


def test_a_hook_is_left_to_whoever_claims_the_run(well: Stepwell) -> None:
    """A class that wants to hear of its cancellation does so on a worker's thread, once there is one."""
    start(well, "first")
    second = start(well, "second", Heard)
    with Worker(well, threads=1) as worker:
        until("it holds one", holding(worker))
        second.cancel()
        until("it is given back", lambda: second.state is RunState.READY, within=SOON)
        assert Heard.told == []
        Held.gates["first"].set()
        until("it has stopped", lambda: second.state is RunState.CANCELED)
        assert Heard.told == ["second"]


def test_a_run_that_could_not_be_given_back_is_not_begun(
    well: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may have given it to another already: it is given back again, and driven by no thread until then."""
    first, second = start(well, "first"), start(well, "second")
    put_back, tries = well.claims.put_back, list[int]()

    def loses_the_answer(connection: Any, *arguments: Any) -> Any:
        tries.append(len(tries))
        if len(tries) <= 4:
            raise AnswerLost
        return put_back(connection, *arguments)

    monkeypatch.setattr(well.claims, "put_back", loses_the_answer)
    with Worker(well, threads=1) as worker:
        until("it holds one", holding(worker))
        until("it was tried", lambda: len(tries) == 2, within=SOON)
        assert second.id in {lease.run_id for lease in well.leases.held()}, "nobody renews its lease"
        assert len(worker._inbox) == 0, "a thread could begin with it"
        until("it is given back", lambda: second.state is RunState.READY, within=5)
        for gate in Held.gates.values():
            gate.set()
        for run in (first, second):
            run.result(timeout=timedelta(seconds=10))
    assert second.info().recoveries == 0
    assert worker._outstanding == 0


def test_a_stop_gives_back_what_is_still_in_hand(well: Stepwell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what could not be given back before: the worker does not wait for it, and no lease has to run out."""
    start(well, "first")
    second = start(well, "second")

    def loses_the_answer(*_: Any) -> Any:
        raise AnswerLost

    monkeypatch.setattr(well.claims, "put_back", loses_the_answer)
    worker = Worker(well, threads=1)
    worker.start()
    until("it could not be given back", lambda: bool(worker._late), within=SOON)
    threading.Timer(0.5, Held.gates["first"].set).start()
    assert worker.stop(timedelta(seconds=5))
    assert second.state is RunState.READY
    assert worker._outstanding == 0


def test_short_runs_are_claimed_ahead_as_ever(well: Stepwell) -> None:
    """Threads that are free in no time find the next run in hand: claims stay few."""
    Quick.with_options(engine=well).start_many([{} for _ in range(200)])
    worker = Worker(well, threads=4)
    rooms: list[int] = []
    tick = worker._claimer.tick

    def counted(room: int) -> Any:
        answer = tick(room)
        rooms.append(len(answer[0]))
        return answer

    worker._claimer.tick = counted  # type: ignore[method-assign]  # counts
    with worker:
        until("all are done", lambda: not well.runs(Quick).live().count())
    claims = [count for count in rooms if count]
    assert sum(claims) == 200
    assert len(claims) <= 80
    assert max(claims) == 8
