"""Leases: they are kept by renewing, given back, exchanged, and never renewed for somebody else."""

from __future__ import annotations

import threading

from stepwell.engine.leases import Lease, LeaseBook
from stepwell.ids import new_token
from stepwell.states import RunState
from stepwell.store.claims import Renewal
from tests.integration.store.rig import LEASE, NOON, SECOND, Held, Rig, done, wait_until

LATER = NOON + LEASE + SECOND


def renew(rig: Rig, *held: Held) -> list[Renewal]:
    pairs = [(each.id, each.token) for each in held]
    answers = rig.database.retrying(
        lambda connection: rig.claims.renew(connection, pairs, LATER), urgent=True
    )
    assert list(answers) == [run_id for run_id, _ in pairs]
    return list(answers.values())


def expiries(rig: Rig, *held: Held) -> list[object]:
    return [rig.row(each.id).lease_expires_at for each in held]


def test_a_renewal_moves_the_leases_that_are_named(rig: Rig) -> None:
    """Each lease of ours runs on; one that was not asked for is left alone."""
    ours, other = rig.hold_many(3), rig.hold()
    assert renew(rig, *ours) == [Renewal(True)] * 3
    assert expiries(rig, *ours, other) == [LATER] * 3 + [NOON + LEASE]


def test_a_lease_that_was_taken_is_reported_lost(rig: Rig) -> None:
    """Under a token that is no longer the run's nothing is renewed: the new holder's lease keeps its end."""
    ours, lost = rig.hold_many(2)
    rig.set(lost.id, lease_token=new_token())
    given_up = rig.hold()
    rig.set(given_up.id, state="waiting", lease_token=None, lease_expires_at=None)
    unknown = Held(new_token(), new_token())

    answers = renew(rig, ours, lost, given_up, unknown)
    assert [answer.is_ours for answer in answers] == [True, False, False, False]
    assert expiries(rig, ours, lost, given_up) == [LATER, NOON + LEASE, None]


def test_a_renewal_tells_what_somebody_asks_of_the_run(rig: Rig) -> None:
    """The heartbeat is how a long body learns that it should stop."""
    asked, quiet = rig.hold_many(2)
    rig.do(lambda connection: rig.commands.cancel(connection, asked.id, rig.now, "enough", "ann"))
    told, untold = renew(rig, asked, quiet)
    assert told.is_ours
    assert '"cancel"' in (told.stop_request or "")
    assert untold == Renewal(True, None)


def test_the_statements_of_a_renewal_do_not_grow(rig: Rig) -> None:
    """A process renews all its leases in the same few statements, however many they are."""
    one, many = rig.hold_many(1), rig.hold_many(40)
    with rig.counting() as of_one:
        renew(rig, *one)
    with rig.counting() as of_many:
        renew(rig, *many)
    assert len(of_one.sent) == len(of_many.sent) == (3 if rig.dialect.skips_locked_rows else 2)
    assert of_many.commits == 1


def test_a_run_that_is_being_settled_is_passed_over(server_rig: Rig) -> None:
    """A locked row is in its own settlement: the renewal neither waits for it nor reports it lost."""
    rig = server_rig
    settling, quiet = rig.hold_many(2)
    with rig.database.begin() as connection:
        entry = rig.entry(settling, done(1))
        assert rig.dialect.apply(connection, [entry])[0].accepted
        assert renew(rig, settling, quiet) == [Renewal(True, is_renewed=False), Renewal(True)]
    assert expiries(rig, settling, quiet) == [NOON + LEASE, LATER]


def test_a_renewal_that_comes_late_shortens_nothing(rig: Rig) -> None:
    """One that was sent earlier may arrive after a later one: the lease runs as long as the later one said."""
    held = rig.hold()
    pair = [(held.id, held.token)]
    rig.do(lambda connection: rig.claims.renew(connection, pair, LATER))
    rig.do(lambda connection: rig.claims.renew(connection, pair, LATER - SECOND))
    assert expiries(rig, held) == [LATER]


def test_renewals_go_ahead_of_steps_on_sqlite(sqlite_url: str) -> None:
    """Behind a long transaction the renewal is served first, although it came last."""
    rig = Rig(sqlite_url)
    held, order = rig.hold(), list[str]()

    def step(number: int) -> None:
        rig.do(lambda _: order.append(f"step {number}"))

    def beat() -> None:
        with rig.database.begin(urgent=True) as connection:
            rig.claims.renew(connection, [(held.id, held.token)], LATER)
            order.append("renewal")

    works = [lambda number=number: step(number) for number in range(3)]
    threads = [threading.Thread(target=work) for work in (*works, beat)]
    with rig.database.begin():
        for queued, thread in enumerate(threads, 1):
            thread.start()
            wait_until(lambda queued=queued: len(rig.database._gate._waiting) == queued)  # type: ignore[misc,union-attr]
    for thread in threads:
        thread.join()
    assert order == ["renewal", "step 0", "step 1", "step 2"]
    assert expiries(rig, held) == [LATER]
    rig.close()


def test_the_book_notes_what_a_renewal_answered() -> None:
    """A lost lease stops its activation; an answer about a token exchanged meanwhile means nothing."""
    book = LeaseBook(LEASE)
    kept, lost, rotated, settled = (Lease(new_token(), new_token(), 0.0) for _ in range(4))
    for lease in (kept, lost, rotated, settled):
        book.add(lease)
    pairs = [(lease.run_id, lease.token) for lease in (kept, lost, rotated, settled)]
    rotated.token = new_token()
    book.remove(settled)
    answers = {
        kept.run_id: Renewal(True, '{"verb": "pause"}'),
        lost.run_id: Renewal(False),
        rotated.run_id: Renewal(False),
        settled.run_id: Renewal(False),
    }

    assert book.renewed(pairs, answers, 99.0) == [lost]
    assert [lease.is_lost for lease in (kept, lost, rotated, settled)] == [False, True, False, False]
    assert (kept.expires_at_monotonic, kept.stop_requested, rotated.expires_at_monotonic) == (99.0, True, 0.0)
    assert set(book.held()) == {kept, rotated}


def test_a_lease_is_given_back_without_a_penalty(rig: Rig) -> None:
    """A released run is due at once, in its queue; neither an attempt nor a lost worker is counted."""
    held, other = rig.hold(queue="mail", recoveries=2), rig.hold()
    rig.clock.travel(SECOND)
    pairs = [(held.id, held.token), (other.id, new_token())]
    assert rig.do(lambda connection: rig.claims.release(connection, pairs, rig.now, "interrupted")) == 1

    row = rig.row(held.id)
    assert (row.state, row.reason, row.lane, row.due_at) == ("ready", "interrupted", "mail", rig.now)
    assert (row.lease_token, row.lease_expires_at, row.lease_owner, row.recoveries) == (None, None, None, 2)
    assert rig.row(other.id).state == RunState.RUNNING
    assert not rig.write(held, done(1)).accepted


def test_a_run_that_nobody_has_begun_with_keeps_its_place(rig: Rig) -> None:
    """Put back, a run is ready where it was in the queue, without a reason or a count; what was asked is told."""
    held, asked, other = rig.hold(queue="mail", recoveries=2), rig.hold(), rig.hold()
    due_at = rig.row(held.id).due_at
    rig.set(asked.id, stop_request='{"verb": "pause"}')
    rig.clock.travel(SECOND)
    pairs = [(held.id, held.token), (asked.id, asked.token), (other.id, new_token())]
    for _ in range(2):  # the first answer may be lost
        told = rig.do(lambda connection: rig.claims.put_back(connection, pairs, rig.now))
        assert told == {asked.id: '{"verb": "pause"}'}

    row = rig.row(held.id)
    assert (row.state, row.reason, row.lane, row.due_at) == ("ready", None, "mail", due_at)
    assert row.due_at is not None
    assert (row.lease_token, row.lease_expires_at, row.lease_owner, row.recoveries) == (None, None, None, 2)
    assert rig.row(other.id).state == RunState.RUNNING
    assert not rig.write(held, done(1)).accepted


def test_an_exchanged_token_fences_the_old_one_off(rig: Rig) -> None:
    """After a rotation only the new token writes; rotating again with the same tokens changes nothing."""
    held, new = rig.hold(), new_token()
    for _ in range(2):
        assert rig.do(lambda connection: rig.claims.rotate(connection, held.id, held.token, new))
    assert not rig.write(held, done(1)).accepted
    assert rig.write(Held(held.id, new), done(1)).accepted


def test_only_a_lease_that_is_ours_is_exchanged(rig: Rig) -> None:
    """A run that was settled, or that another worker has, keeps its token."""
    settled, taken = rig.hold(state="waiting"), rig.hold()
    rig.set(taken.id, lease_token=new_token())
    before = rig.row(taken.id).lease_token
    for held in (settled, taken):
        assert not rig.do(
            lambda connection, held=held: rig.claims.rotate(connection, held.id, held.token, new_token())
        )
    assert rig.row(taken.id).lease_token == before


def test_a_rotation_waits_for_the_transaction_whose_answer_was_lost(rig: Rig) -> None:
    """As long as the old transaction may still commit, the rotation waits; then it sees what became of it."""
    held, new = rig.hold(), new_token()
    rotated = threading.Event()

    def rotate() -> None:
        assert rig.database.retrying(
            lambda connection: rig.claims.rotate(connection, held.id, held.token, new)
        )
        rotated.set()

    thread = threading.Thread(target=rotate)
    with rig.database.begin() as connection:
        assert rig.dialect.apply(connection, [rig.entry(held, done(1))])[0].accepted
        thread.start()
        assert not rotated.wait(0.1)
    thread.join()
    assert rotated.is_set()
    assert [row.position for row in rig.journal(held.id)] == [1]
    assert rig.row(held.id).lease_token == new
