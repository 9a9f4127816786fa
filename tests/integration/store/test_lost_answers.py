"""Connections that break at the worst moment: what was written is found again, nothing is written twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import insert, select

from stepwell.engine.engine import Stepwell
from stepwell.engine.leases import Lease
from stepwell.engine.run import Run
from stepwell.engine.store_journal import StoreJournal
from stepwell.entries import Execution, Settlement, Verdict
from stepwell.execution.journal import TransientConflict
from stepwell.execution.suspension import LeaseLost
from stepwell.ids import new_token
from stepwell.states import RunState
from stepwell.store.database import AnswerLost
from stepwell.store.mailbox import Message, insert_signal
from stepwell.store.reads import signals_of
from tests.integration.store.cable import Cable, Cut
from tests.integration.store.rig import LEASE, NOON, Held, Rig, done, ledger, quiet_place


def is_commit(message: bytes) -> bool:
    """The statement COMMIT, as psycopg and PyMySQL send it."""
    return message[5:].rstrip(b"\0") == b"COMMIT"


@dataclass
class Scene:
    """An activation's journal on a connection that can be cut, and the database seen from elsewhere."""

    rig: Rig
    cable: Cable
    well: Stepwell
    held: Held
    lease: Lease
    journal: StoreJournal

    def cut(self, how: Cut, *, in_transaction: bool = False) -> None:
        """Cut the connection at the message that makes the next journal entry durable."""
        names_the_run = str(self.held.id).encode()
        commits_alone = self.rig.dialect.groups_commits and not in_transaction
        self.cable.cut(how, (lambda message: names_the_run in message) if commits_alone else is_commit)

    def write(self, *rows: Execution, **more: Any) -> Verdict:
        return self.journal.write(rows, current_step="next", **more)

    def positions(self) -> list[int]:
        return [row.position for row in self.rig.journal(self.held.id)]

    def in_ledger(self) -> list[int]:
        with self.rig.database.read() as connection:
            return list(connection.execute(select(ledger.c.n)).scalars())


@pytest.fixture
def scene(server_rig: Rig) -> Iterator[Scene]:
    rig = server_rig
    cable = Cable(rig.url)
    well = Stepwell(cable.url, clock=rig.clock, default=False)
    held = rig.hold()
    lease = Lease(held.id, held.token, rig.clock.monotonic() + LEASE.total_seconds())
    well.leases.add(lease)
    scene = Scene(rig, cable, well, held, lease, StoreJournal(well, lease, quiet_place(), (), None, True))
    # The connection is there, and the statement known to it: what is cut is the write and nothing before it.
    for position in range(1, 9):
        scene.write(done(position))
    yield scene
    cable.close()
    well.close()


@contextmanager
def let_through_soon(cable: Cable) -> Iterator[None]:
    """What the cable holds back reaches the server a little later; it has answered when the block is left."""

    def let_through() -> None:
        time.sleep(_SOON)
        cable.let_through()

    late = threading.Thread(target=let_through)
    late.start()
    yield
    late.join()


_SOON = 0.2
WRITTEN = list(range(1, 10))


@pytest.mark.parametrize("how", [Cut.DONE, Cut.LOST])
def test_an_entry_whose_answer_was_lost_is_there_once(scene: Scene, how: Cut) -> None:
    """Committed or not: under a new token the journal looks for the position, and writes it if absent."""
    scene.cut(how)
    assert scene.write(done(9, result='"mine"')).accepted
    assert (scene.cable.cuts, scene.positions()) == (1, WRITTEN)

    row = scene.rig.row(scene.held.id)
    assert row.lease_token == scene.lease.token != scene.held.token
    assert not scene.rig.write(scene.held, done(10)).accepted
    assert scene.write(done(10)).accepted
    assert scene.positions() == [*WRITTEN, 10]


def test_an_entry_that_arrives_late_changes_nothing(scene: Scene) -> None:
    """What was still on its way when its connection broke meets the new token, or is waited for by it."""
    scene.cut(Cut.LATE)
    with let_through_soon(scene.cable):
        assert scene.write(done(9)).accepted
    assert (scene.cable.cuts, scene.positions()) == (1, WRITTEN)
    assert scene.write(done(10)).accepted


def test_what_the_answer_would_have_told_is_looked_up(scene: Scene) -> None:
    """A request that came in the meantime is not missed because an answer was."""
    scene.rig.do(lambda connection: scene.rig.commands.cancel(connection, scene.held.id, NOON, None, None))
    scene.cut(Cut.DONE)
    verdict = scene.write(done(9))
    assert (verdict.accepted, verdict.wakeups) == (True, 1)
    assert '"cancel"' in (verdict.stop_request or "")


def test_a_settlement_whose_answer_was_lost_ends_the_activation(scene: Scene) -> None:
    """The lease went with the settlement: whoever asks finds it gone, and the run stands right."""
    scene.cut(Cut.DONE)
    settlement = Settlement(RunState.WAITING, wake_at=NOON + LEASE)
    with pytest.raises(LeaseLost):
        scene.write(done(9), settlement=settlement)
    row = scene.rig.row(scene.held.id)
    assert (row.state, row.wake_at, scene.positions()) == ("waiting", NOON + LEASE, WRITTEN)
    assert (scene.lease.is_lost, len(scene.well.leases)) == (True, 0)


def test_a_settlement_that_never_arrived_is_sent_again(scene: Scene) -> None:
    """The run is still ours then, and is settled under the new token."""
    scene.cut(Cut.LOST)
    assert scene.write(done(9), settlement=Settlement(RunState.COMPLETED)).accepted
    assert (scene.rig.row(scene.held.id).state, scene.positions()) == ("completed", WRITTEN)


# -- a step's own transaction -----------------------------------------------------------------------------


def write_in_a_step(scene: Scene, number: int) -> Verdict:
    scope = scene.journal.open_scope()
    try:
        scope.session.execute(insert(ledger), {"n": number})
        return scene.write(done(9), scope=scope)
    finally:
        scope.close()


def test_a_steps_writes_that_were_committed_are_not_repeated(scene: Scene) -> None:
    """The row of the step tells that its transaction is durable, the step's own writes included."""
    scene.cut(Cut.DONE, in_transaction=True)
    assert write_in_a_step(scene, 1).accepted
    assert (scene.positions(), scene.in_ledger()) == (WRITTEN, [1])


def test_a_steps_writes_that_were_lost_are_made_anew(scene: Scene) -> None:
    """Without the row nothing of that transaction is there: the step is run again, and is there once."""
    scene.cut(Cut.LOST, in_transaction=True)
    with pytest.raises(TransientConflict):
        write_in_a_step(scene, 1)
    assert (scene.positions(), scene.in_ledger()) == (WRITTEN[:-1], [])
    assert write_in_a_step(scene, 2).accepted
    assert (scene.positions(), scene.in_ledger()) == (WRITTEN, [2])


def test_a_commit_that_is_still_under_way_is_waited_for(scene: Scene) -> None:
    """Absent now is not absent for ever: the new token waits for the old transaction before it looks."""
    scene.cut(Cut.LATE, in_transaction=True)
    began_at = time.monotonic()
    with let_through_soon(scene.cable):
        assert write_in_a_step(scene, 1).accepted
        assert time.monotonic() - began_at > _SOON
    assert (scene.positions(), scene.in_ledger()) == (WRITTEN, [1])


# -- other writes -----------------------------------------------------------------------------------------


def test_a_claim_whose_answer_was_lost_is_found_again(scene: Scene) -> None:
    """The database gave the runs away and the claimer never heard: its own token finds them."""
    rig, token = Rig(scene.cable.url), new_token()
    wanted = set(rig.add_many(3))
    scene.cable.cut(Cut.DONE, is_commit)
    with pytest.raises(AnswerLost):
        rig.claim(2, token=token)
    with rig.database.read() as connection:
        found = {run.id for run in rig.claims.taken(connection, token)}
    rig.close()
    assert len(found) == 2
    assert found < wanted


def test_a_command_whose_answer_was_lost_is_repeated(scene: Scene) -> None:
    """A command may harmlessly be given twice: whoever gave it does not hear of the broken connection."""
    for how in (Cut.DONE, Cut.LOST):
        run_id: UUID = scene.rig.add_parked(wake_at=NOON + timedelta(days=1))
        handle = scene.well.run(run_id)
        scene.cable.cut(how, is_commit)
        handle.pause("lunch")
        assert scene.rig.row(run_id).state == "paused"
    assert scene.cable.cuts == 2


def waiting_run(scene: Scene) -> Run:
    return scene.well.run(scene.rig.add_parked("awaiting"))


def send(run: Run) -> bool:
    return run.signal("paid", idempotency_key="evt-1")


def between_the_tries(scene: Scene, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Do this after the connection broke and before the signal is sent again."""
    retrying = scene.well.database.retrying

    def watched(*arguments: Any, **named: Any) -> Any:
        try:
            return retrying(*arguments, **named)
        except AnswerLost:
            work()
            raise

    monkeypatch.setattr(scene.well.database, "retrying", watched)


def sent(scene: Scene, run: Run) -> int:
    """How many signals are in its mailbox."""
    with scene.rig.database.read() as connection:
        return len(signals_of(connection, run.id))


@pytest.mark.parametrize("how", list(Cut))
def test_a_signal_whose_answer_was_lost_is_sent_by_this_call(scene: Scene, how: Cut) -> None:
    """A sender with a key of its own hears True of the call that has sent the signal, and False of each later one."""
    run = waiting_run(scene)
    scene.cable.cut(how, is_commit)
    with let_through_soon(scene.cable) if how is Cut.LATE else nullcontext():
        assert send(run) is True
    assert send(run) is False
    assert (scene.cable.cuts, sent(scene, run)) == (1, 1)


def test_a_signal_that_was_sent_may_have_been_read_by_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has read it and is over before the sender asks again: it was sent all the same."""
    run = waiting_run(scene)
    scene.cable.cut(Cut.DONE, is_commit)
    between_the_tries(scene, monkeypatch, lambda: scene.rig.set(run.id, state="completed"))
    assert send(run) is True
    assert (scene.cable.cuts, sent(scene, run)) == (1, 1)


def test_a_signal_that_another_has_sent_meanwhile_is_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours never arrived, and another with the same key did: it is not taken for ours."""
    run = waiting_run(scene)
    message = Message(run.id, "paid", "null", "evt-1")
    scene.cable.cut(Cut.LOST, is_commit)
    between_the_tries(
        scene,
        monkeypatch,
        lambda: scene.rig.do(
            lambda connection: insert_signal(connection, scene.rig.dialect, message, scene.rig.now)
        ),
    )
    assert send(run) is False
    assert (scene.cable.cuts, sent(scene, run)) == (1, 1)
