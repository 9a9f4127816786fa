"""Recovery: what a lost worker held is taken up by others, and a run that kills its workers dies alone."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta

from stepwell.ids import new_token
from stepwell.states import ExecutionState, Kind, Outcome
from stepwell.store.recovery import Recovered, recover_expired
from tests.integration.store.rig import LEASE, NOON, SECOND, Held, Rig, at_once, done

DEAD = {"lease_expires_at": NOON - SECOND, "lease_owner": "host:7"}


def recover(rig: Rig, *, max_recoveries: int = 5, random: float = 0.5) -> list[Recovered]:
    return rig.database.retrying(
        lambda connection: recover_expired(
            connection, rig.dialect, rig.now, max_recoveries=max_recoveries, random=lambda: random
        )
    )


def test_only_expired_leases_are_taken(rig: Rig) -> None:
    """The instant of expiry itself is past; a microsecond before it the lease still holds."""
    dead = rig.hold(lease_expires_at=NOON)
    rig.hold(lease_expires_at=NOON + timedelta(microseconds=1))
    assert [each.run_id for each in recover(rig)] == [dead.id]
    assert recover(rig) == []


def test_the_late_worker_writes_nothing_more(rig: Rig) -> None:
    """Token, owner and lease are taken in one write; what the old holder still sends is refused."""
    held = rig.hold(**DEAD)
    (recovered,) = recover(rig)
    assert recovered == Recovered(held.id, "Onboarding", "host:7", 1, has_failed=False)

    row = rig.row(held.id)
    assert (row.lease_token, row.lease_owner, row.lease_expires_at) == (None, None, None)
    assert (row.state, row.reason, row.recoveries, row.changed_at) == ("waiting", "recovering", 1, NOON)
    assert not rig.write(held, done(7)).accepted
    assert [each.name for each in rig.journal(held.id)] == ["greet"]


def test_the_wait_doubles_with_each_loss_in_a_row(rig: Rig) -> None:
    """2ⁿ seconds after n losses, five minutes at most: a run that kills its workers soon runs alone."""
    expected = {0: 1, 1: 2, 2: 4, 4: 16, 40: 300}
    held = {losses: rig.hold(**DEAD, recoveries=losses) for losses in expected}
    recover(rig, max_recoveries=1000)
    waits = {losses: rig.row(each.id).wake_at for losses, each in held.items()}
    assert waits == {losses: NOON + seconds * SECOND for losses, seconds in expected.items()}


def test_the_wait_is_jittered_by_half(rig: Rig) -> None:
    """Runs that were lost together do not come back together."""
    least, most = rig.hold(**DEAD, recoveries=3), rig.hold(lease_expires_at=NOON)
    rig.set(most.id, lease_expires_at=NOON + SECOND, recoveries=3)
    recover(rig, random=0.0)
    rig.clock.travel(SECOND)
    recover(rig, random=1.0)
    assert rig.row(least.id).wake_at == NOON + 4 * SECOND
    assert rig.row(most.id).wake_at == NOON + SECOND + 12 * SECOND


def test_a_run_above_the_limit_fails_and_says_why(rig: Rig) -> None:
    """After so many losses without progress it stops for a person: who was lost, where, and what to do."""
    held = rig.hold(**DEAD, recoveries=5)
    (recovered,) = recover(rig, max_recoveries=5)
    assert (recovered.recoveries, recovered.has_failed) == (6, True)

    row = rig.row(held.id)
    assert (row.state, row.reason, row.error_class) == ("failed", "worker_lost", "stepwell.WorkerLost")
    assert row.error_message == (
        "6 workers in a row were lost while they drove this run (limit 5); "
        "the last was host:7 at step 'greet'. "
        "See what kills them (memory, a crash in native code), then run.resume()."
    )
    assert (row.lane, row.wake_at, row.lease_token) == (None, None, None)


def test_a_run_may_have_a_limit_of_its_own(rig: Rig) -> None:
    """The class's ``max_recoveries`` beats the engine's; options that cannot be read are as good as none."""
    expected = {
        '{"max_recoveries": 0}': True,
        '{"max_recoveries": 9}': False,
        '{"max_recoveries": "many"}': True,
        '{"queue": "mail"}': True,
        "{spoiled": True,
        "[]": True,
        None: True,
    }
    held = {rig.hold(**DEAD, recoveries=1, options=options).id: options for options in expected}
    answers = {held[each.run_id]: each.has_failed for each in recover(rig, max_recoveries=1)}
    assert answers == expected
    states = {options: rig.row(run_id).state for run_id, options in held.items()}
    assert states == {options: "failed" if fails else "waiting" for options, fails in expected.items()}


def test_progress_forgives_earlier_losses(rig: Rig) -> None:
    """Only losses in a row count: a journaled step sets the count to zero, an empty settlement does not."""
    worker, idle = rig.hold_many(2, recoveries=4)
    assert rig.write(worker, done(1)).accepted
    assert rig.row(worker.id).recoveries == 0

    rig.do(lambda connection: rig.claims.release(connection, [(idle.id, idle.token)], rig.now, "interrupted"))
    assert rig.row(idle.id).recoveries == 4


def test_a_request_is_honoured_without_delay(rig: Rig) -> None:
    """Whoever claims the run next has only to honour what was asked: no body runs, so nothing is put off.

    Also above the limit of losses: what a person asks for goes before a failure.
    """
    for verb, losses in itertools.product(("cancel", "pause", "skip"), (0, 5)):
        held = rig.hold(**DEAD, recoveries=losses, stop_request=json.dumps({"verb": verb}))
        (recovered,) = recover(rig)
        row = rig.row(held.id)
        assert (row.state, row.wake_at, recovered.has_failed) == ("waiting", NOON, False), (verb, losses)
        assert row.stop_request is not None


def test_a_visible_step_is_closed_as_lost(rig: Rig) -> None:
    """The row of a long body tells what became of it; no second row says the same."""
    held = rig.hold(**DEAD)
    rig.add_execution(held.id, 1)
    rig.add_execution(
        held.id, 2, name="import", state="in_progress", started_at=NOON - 60 * SECOND, worker="host:7"
    )
    recover(rig)

    first, lost = rig.journal(held.id)
    assert (first.state, first.outcome) == ("completed", None)
    assert (lost.position, lost.kind, lost.state, lost.outcome) == (2, "step", "failed", "lost")
    assert (lost.started_at, lost.finished_at) == (NOON - 60 * SECOND, NOON)
    assert (lost.error_class, lost.error_message) == ("stepwell.WorkerLost", "worker host:7 was lost")


def test_an_invisible_step_leaves_a_trace(rig: Rig) -> None:
    """Where no row told of the body, one of kind ``recovery`` says at which step the worker was lost."""
    held = rig.hold(**DEAD, recoveries=1)
    rig.add_execution(held.id, 1)
    rig.add_execution(held.id, 2, state="scheduled", scheduled_for=NOON)
    recover(rig)

    (_, scheduled, trace) = rig.journal(held.id)
    assert scheduled.state == ExecutionState.SCHEDULED
    assert (trace.position, trace.kind, trace.name, trace.attempt) == (3, Kind.RECOVERY, "greet", 2)
    assert (trace.state, trace.outcome, trace.worker) == ("failed", Outcome.LOST, "host:7")


def test_a_lost_run_comes_back_and_goes_on(rig: Rig) -> None:
    """Recovery, promotion, claim: another worker takes up what the dead one held, under its own token."""
    held = rig.hold(**DEAD)
    recover(rig)
    rig.clock.travel(2 * SECOND)
    rig.do(lambda connection: rig.claims.promote(connection, rig.now))
    (taken,) = rig.claim(owner="second")
    assert taken.id == held.id
    assert taken.lease_token is not None
    assert rig.write(Held(taken.id, taken.lease_token), done(2)).accepted


def test_workers_at_one_moment_recover_a_run_once(rig: Rig) -> None:
    """However many ticks see the same expired lease, one loss is counted and one trace left."""
    held = rig.hold_many(12, **DEAD)
    recovered = [each.run_id for share in at_once(4, lambda _: recover(rig)) for each in share]
    recovered += [each.run_id for each in recover(rig)]
    assert sorted(recovered) == sorted(each.id for each in held)
    assert {rig.row(each.id).recoveries for each in held} == {1}
    assert {len(rig.journal(each.id)) for each in held} == {1}


def test_a_recovery_passes_over_a_run_that_is_being_settled(server_rig: Rig) -> None:
    """An expired lease whose holder is just writing is not taken: the writer finishes, and has progressed."""
    rig = server_rig
    settling, dead = rig.hold_many(2, **DEAD)
    with rig.database.begin() as connection:
        assert rig.dialect.apply(connection, [rig.entry(settling, done(1))])[0].accepted
        assert [each.run_id for each in recover(rig)] == [dead.id]


def test_a_recovery_is_bounded(rig: Rig) -> None:
    """A tick takes a hundred at most, those first whose lease ended first; the next tick goes on."""
    held = {"state": "running", "lane": None, "lease_token": new_token(), "lease_owner": "x"}
    rows = [rig.least(**held, lease_expires_at=NOON - number * SECOND) for number in range(101)]
    rig.do(lambda connection: rig.dialect.insert_runs(connection, rows))
    first = recover(rig)
    assert len(first) == 100
    assert [each.run_id for each in recover(rig)] == [rows[0]["id"]]
    rig.clock.travel(LEASE)
    assert recover(rig) == []
