"""The mailbox: a signal is a row that is kept until it is read once, and a wake is never lost."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import Connection

from stepwell.states import RunState
from stepwell.store import reads
from stepwell.store.mailbox import (
    Message,
    consume,
    insert_signal,
    settle_pending,
    sweep_pending,
    unread,
    wake,
)
from stepwell.store.rows import SignalRow
from tests.integration.store.rig import NOON, SECOND, Rig, at_once


def send(
    rig: Rig,
    run_id: UUID,
    name: str | None = "paid",
    payload: str | None = None,
    *,
    is_pending: bool = False,
    idempotency_key: str | None = None,
) -> int | None:
    message = Message(run_id, name, payload, idempotency_key)
    return rig.do(
        lambda connection: insert_signal(connection, rig.dialect, message, rig.now, is_pending=is_pending)
    )


def next_unread(rig: Rig, run_id: UUID, name: str = "paid") -> SignalRow | None:
    with rig.database.read() as connection:
        return unread(connection, run_id, name)


def signals(rig: Rig, run_id: UUID) -> list[SignalRow]:
    with rig.database.read() as connection:
        return reads.signals_of(connection, run_id)


def test_signals_are_read_in_the_order_of_sending(rig: Rig) -> None:
    """Each is read once, the oldest first, and only under its own name and by its own run."""
    run_id, other = rig.add_parked("awaiting"), rig.add_parked("awaiting")
    first, second = send(rig, run_id, payload="1"), send(rig, run_id, payload="2")
    send(rig, run_id, "shipped")
    send(rig, other)

    for expected in (first, second):
        signal = next_unread(rig, run_id)
        assert signal is not None
        assert signal.id == expected
        assert rig.do(lambda connection, expected=expected: consume(connection, expected, 7, rig.now))
    assert next_unread(rig, run_id) is None
    assert [(row.consumed_by, row.consumed_at) for row in signals(rig, run_id)] == [(7, NOON)] * 2 + [
        (None, None)
    ]


def test_a_signal_is_consumed_once(rig: Rig) -> None:
    """Of several readers at one moment one gets it; a second look does not change who it was."""
    run_id = rig.add_parked("awaiting")
    signal_id = send(rig, run_id)

    def read(number: int) -> bool:
        return rig.database.retrying(lambda connection: consume(connection, signal_id, number, rig.now))

    winners = [number for number, won in enumerate(at_once(6, read)) if won]
    assert len(winners) == 1
    assert not read(99)
    assert signals(rig, run_id)[0].consumed_by == winners[0]


def test_a_signal_that_is_rolled_back_was_never_sent(rig: Rig) -> None:
    """A signal is a fact of its sender's transaction, and goes with it."""
    run_id = rig.add_parked("awaiting")
    with pytest.raises(ZeroDivisionError), rig.database.begin() as connection:
        insert_signal(connection, rig.dialect, Message(run_id, "paid"), rig.now)
        1 / 0
    assert signals(rig, run_id) == []


def test_a_key_counts_once_for_each_run_and_name(rig: Rig) -> None:
    """A webhook that is delivered twice is one signal; another run, name or no key is another signal."""
    run_id, other = rig.add_parked("awaiting"), rig.add_parked("awaiting")
    assert send(rig, run_id, idempotency_key="evt-1") is not None
    assert send(rig, run_id, idempotency_key="evt-1") is None
    send(rig, other, idempotency_key="evt-1")
    send(rig, run_id, "shipped", idempotency_key="evt-1")
    send(rig, run_id)
    send(rig, run_id)
    assert len(signals(rig, run_id)) == 4


def test_of_several_senders_of_one_key_one_sends(rig: Rig) -> None:
    """Deliveries at the same moment are one signal, and nobody's transaction is spoiled by it."""
    run_id = rig.add_parked("awaiting")

    def deliver(number: int) -> bool:
        def work(connection: Connection) -> bool:
            sent = insert_signal(connection, rig.dialect, Message(run_id, "paid", None, "evt"), rig.now)
            wake(connection, [run_id], rig.now)
            return sent is not None

        return rig.database.retrying(work)

    assert sum(at_once(6, deliver)) == 1
    assert len(signals(rig, run_id)) == 1
    assert rig.row(run_id).wakeups == 6


def test_a_wake_makes_an_awaiting_run_due(rig: Rig) -> None:
    """It is due from the wake on, in its own queue, and its deadline is gone: it will park anew."""
    run_id = rig.add_parked("awaiting", wake_at=NOON + 99 * SECOND, queue="mail", wakeups=3, reason="signal")
    rig.clock.travel(SECOND)
    rig.do(lambda connection: wake(connection, [run_id], rig.now))
    row = rig.row(run_id)
    assert (row.state, row.lane, row.due_at, row.wake_at) == ("ready", "mail", rig.now, None)
    assert (row.wakeups, row.changed_at) == (4, rig.now)


def test_a_wake_changes_nothing_else_of_other_runs(rig: Rig) -> None:
    """In every other state only the counter moves: a timer is not cut short, and what is over stays over."""
    for state in sorted({*RunState} - {RunState.AWAITING}):
        run_id = rig.add_parked(state, wake_at=NOON + SECOND, changed_at=NOON - SECOND)
        before = rig.row(run_id)
        rig.do(lambda connection, run_id=run_id: wake(connection, [run_id, run_id], rig.now))
        after = rig.row(run_id)
        assert (after.wakeups, after.state) == (before.wakeups + 1, state)
        assert (after.lane, after.due_at, after.wake_at) == (None, None, NOON + SECOND)
        assert after.changed_at == before.changed_at
    with rig.counting() as statements:
        rig.do(lambda connection: wake(connection, [], rig.now))
    assert statements.sent == []


def sweep(rig: Rig) -> int:
    return rig.database.repeating(lambda connection: sweep_pending(connection, rig.now))


def test_a_wake_that_never_came_is_made_up_for(rig: Rig) -> None:
    """A sender that died between its commit and the wake leaves a pending signal, which any tick wakes."""
    run_id = rig.add_parked("awaiting")
    send(rig, run_id, is_pending=True)
    assert sweep(rig) == 0, "its sender has a second for it"
    assert rig.row(run_id).state == "awaiting"

    rig.clock.travel(SECOND)
    with rig.database.read() as connection:
        assert rig.claims.look(connection, ["default"]).oldest_pending_at == NOON
    assert (sweep(rig), sweep(rig)) == (1, 0)
    assert rig.row(run_id).state == "ready"
    assert next_unread(rig, run_id) is not None


def test_a_wake_that_came_is_not_repeated(rig: Rig) -> None:
    """Once its sender has woken the run, a signal is pending no more."""
    run_id = rig.add_parked("awaiting")
    signal_id = send(rig, run_id, None, is_pending=True)

    def woken(connection: Connection) -> None:
        wake(connection, [run_id], rig.now)
        settle_pending(connection, [signal_id])

    rig.do(woken)
    rig.clock.travel(2 * SECOND)
    assert sweep(rig) == 0
    assert rig.row(run_id).wakeups == 1


def test_a_sweep_is_bounded(rig: Rig) -> None:
    """A tick wakes for two hundred signals at most, the oldest first; the next goes on."""
    run_ids = [rig.add_parked("awaiting") for _ in range(2)]

    def send_all(connection: Connection) -> None:
        for number in range(201):
            insert_signal(
                connection, rig.dialect, Message(run_ids[number // 200], None), rig.now, is_pending=True
            )

    rig.do(send_all)
    rig.clock.travel(SECOND)
    assert [sweep(rig), sweep(rig), sweep(rig)] == [200, 1, 0]
    assert [rig.row(run_id).wakeups for run_id in run_ids] == [1, 1]
