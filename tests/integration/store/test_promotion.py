"""Sleepers: a run that is parked until an instant becomes due when it has come, and not before."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.integration.store.rig import NOON, SECOND, Rig, at_once


def promote(rig: Rig) -> int:
    return rig.database.retrying(lambda connection: rig.claims.promote(connection, rig.now))


def test_only_runs_whose_instant_has_come_are_promoted(rig: Rig) -> None:
    """The instant itself counts as come, a microsecond before it does not; without one a run sleeps on."""
    now = rig.add_parked(wake_at=NOON)
    later = rig.add_parked(wake_at=NOON + timedelta(microseconds=1))
    never = rig.add_parked("awaiting")

    assert promote(rig) == 1
    assert [rig.row(run_id).state for run_id in (now, later, never)] == ["ready", "waiting", "awaiting"]
    rig.clock.travel(SECOND)
    assert (promote(rig), promote(rig)) == (1, 0)
    assert rig.row(later).state == "ready"


@pytest.mark.parametrize("state", ["waiting", "awaiting"])
def test_a_promoted_run_is_due_since_its_instant(rig: Rig, state: str) -> None:
    """It takes its place in the queue by when it should have woken, not by when somebody looked.

    An awaited deadline is an instant like any other.
    """
    run_id = rig.add_parked(
        state, wake_at=NOON - SECOND, reason="timer", queue="mail", changed_at=NOON - 9 * SECOND
    )
    promote(rig)
    row = rig.row(run_id)
    assert (row.state, row.lane, row.due_at, row.wake_at) == ("ready", "mail", NOON - SECOND, None)
    assert (row.reason, row.changed_at) == ("timer", NOON)


def test_a_promotion_is_bounded(rig: Rig) -> None:
    """However many sleep until one instant, a tick moves 500 of them, the longest due first."""
    late = rig.add_parked(wake_at=NOON)
    rows = [rig.least(state="waiting", lane=None, due_at=None, wake_at=NOON - SECOND) for _ in range(500)]
    rig.do(lambda connection: rig.dialect.insert_runs(connection, rows))

    assert promote(rig) == 500
    assert rig.row(late).state == "waiting"
    assert (promote(rig), promote(rig)) == (1, 0)


def test_ticks_at_one_moment_promote_each_sleeper_once(rig: Rig) -> None:
    """Workers that look at the same time share the sleepers between them."""
    for _ in range(20):
        rig.add_parked(wake_at=NOON)
    promoted = sum(at_once(4, lambda _: promote(rig))) + promote(rig)
    assert promoted == 20
    assert len(rig.claim(50)) == 20


def test_a_promotion_passes_over_a_locked_sleeper(server_rig: Rig) -> None:
    """A person's command on one sleeper holds up no other."""
    rig = server_rig
    first, second = rig.add_parked(wake_at=NOON), rig.add_parked(wake_at=NOON)
    with rig.database.begin() as connection:
        rig.commands.pause(connection, first, rig.now, None, None)
        assert promote(rig) == 1
    assert (rig.row(first).state, rig.row(second).state) == ("paused", "ready")
