"""Claims: each due run is taken once, in order, and in few statements."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from stepwell.ids import new_run_id, new_token
from stepwell.states import RunState
from stepwell.store.claims import Look
from stepwell.store.rows import RunRow
from tests.integration.store.rig import LEASE, NOON, SECOND, Rig, at_once

BEFORE = NOON - timedelta(hours=1)


def test_runs_are_taken_in_the_order_of_their_lane(rig: Rig) -> None:
    """The most urgent first; among equals the one that has been due for longest; then the one made first."""
    urgent = rig.add(priority=0, due_at=NOON)
    oldest = rig.add(due_at=BEFORE)
    first, second = rig.add(due_at=NOON), rig.add(due_at=NOON)
    late = rig.add(priority=200, due_at=BEFORE)
    elsewhere = rig.add(lane="mail", queue="mail", priority=0)

    assert [run.id for run in rig.claim(4)] == [urgent, oldest, first, second]
    assert [run.id for run in rig.claim(4)] == [late]
    assert [run.id for run in rig.claim(4, "mail")] == [elsewhere]


def test_a_claim_takes_at_most_what_it_asks_for(rig: Rig) -> None:
    """A worker is never given more than it has room for, and the rest stays for others."""
    rig.add_many(5)
    assert [len(rig.claim(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_claim_answers_the_rows_as_they_are_now(rig: Rig) -> None:
    """Owner, token, lease and state of a claimed run need no second look: the answer equals the row."""
    rig.add_many(3, reason="recovering", wakeups=2)
    token = new_token()
    taken = rig.claim(3, token=token, owner="first")

    assert taken == [rig.row(run.id) for run in taken]
    assert {(run.state, run.lease_token, run.lease_owner, run.reason) for run in taken} == {
        ("running", token, "first", None)
    }
    assert {(run.lane, run.lease_expires_at) for run in taken} == {(None, rig.now + LEASE)}


def test_a_run_begins_once(rig: Rig) -> None:
    """``started_at`` is the instant of the first claim and stays so."""
    run_id = rig.add()
    (first,) = rig.claim()
    token = first.lease_token
    assert token is not None
    rig.do(lambda connection: rig.claims.release(connection, [(run_id, token)], rig.now, "test"))
    rig.clock.travel(SECOND)
    (second,) = rig.claim()
    assert (first.started_at, second.started_at, second.changed_at) == (NOON, NOON, NOON + SECOND)


def test_only_ready_runs_are_taken(rig: Rig) -> None:
    """A run that waits, is held, stopped or over is nobody's to claim."""
    for state in sorted({*RunState} - {RunState.READY}):
        run_id = rig.add_parked(state)
        assert rig.claim() == []
        assert claim_one(rig, run_id) is None
        assert rig.row(run_id).state == state


def claim_one(rig: Rig, run_id: UUID) -> RunRow | None:
    return rig.do(
        lambda connection: rig.claims.claim_one(
            connection, run_id, owner="x", token=new_token(), now=rig.now, until=rig.now + LEASE
        )
    )


def test_one_run_can_be_taken_by_its_id(rig: Rig) -> None:
    """``claim_one`` takes that run and no other, and takes it once."""
    other, wanted = rig.add(), rig.add()
    assert claim_one(rig, wanted) == rig.row(wanted)
    assert claim_one(rig, wanted) is None
    assert rig.row(other).state == "ready"


def test_a_claim_whose_answer_was_lost_is_found_by_its_token(rig: Rig) -> None:
    """The token is the claimer's own, so that ``taken`` finds what the database did without telling."""
    rig.add_many(3)
    token = new_token()
    taken = rig.claim(2, token=token)
    rig.claim(1)

    with rig.database.read() as connection:
        assert sorted(run.id for run in rig.claims.taken(connection, token)) == sorted(
            run.id for run in taken
        )
        assert rig.claims.taken(connection, new_token()) == []


def test_eight_claimers_take_each_run_once(rig: Rig) -> None:
    """However many workers ask at the same moment, a run has one holder, and none is left over."""
    expected = set(rig.add_many(200))

    def claim_all(number: int) -> list[UUID]:
        mine: list[UUID] = []
        chance = random.Random(number)
        while batch := rig.claim(chance.randint(1, 7), owner=str(number)):
            mine += [run.id for run in batch]
        return mine

    taken = Counter(run_id for share in at_once(8, claim_all) for run_id in share)
    # A claim passes by a row that another claimer holds: the last look of each may have been too early.
    taken.update(run.id for run in rig.claim(200))
    assert set(taken) == expected
    assert set(taken.values()) == {1}


@pytest.mark.slow
def test_claimers_in_several_processes_take_each_run_once(
    sqlite_url: str, postgresql_url: str, mariadb_url: str
) -> None:
    """The same between processes, four of two claiming threads each, which share nothing but the database."""
    rigs = [Rig(url) for url in (sqlite_url, postgresql_url, mariadb_url)]
    expected = {rig.url: set(rig.add_many(_RUNS)) for rig in rigs}
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    ready = context.Barrier(4)
    args = (list(expected), ready, answers)
    processes = [context.Process(target=claim_in_a_process, args=args) for _ in range(4)]
    for process in processes:
        process.start()
    shares = [answers.get(timeout=100) for _ in processes]
    for process in processes:
        process.join(timeout=30)

    for rig in rigs:
        taken = Counter(UUID(run_id) for share in shares for run_id in share[rig.url])
        taken.update(run.id for run in rig.claim(_RUNS))
        rig.close()
        assert set(taken) == expected[rig.url]
        assert set(taken.values()) == {1}


_RUNS = 160


def claim_in_a_process(urls: list[str], ready: Any, answers: Any) -> None:
    shares: dict[str, list[str]] = {}
    for url in urls:
        rig = Rig(url)
        with rig.database.read():
            ready.wait(timeout=100)
        shares[url] = [
            run_id for share in at_once(2, lambda _, rig=rig: claim_a_share(rig)) for run_id in share
        ]
        rig.close()
    answers.put(shares)


def claim_a_share(rig: Rig) -> list[str]:
    mine: list[str] = []
    # No claimer can take all of them before the others have begun.
    while len(mine) < _RUNS // 4 and (batch := rig.claim(3)):
        mine += [str(run.id) for run in batch]
    return mine


def test_a_claim_passes_over_rows_that_another_is_taking(server_rig: Rig) -> None:
    """A claimer that has not committed yet makes nobody wait: the next one takes the runs after its."""
    rig = server_rig
    first, second, third = rig.add_many(3)
    with rig.database.begin() as connection:
        assert [run.id for run in rig.claim(1, on=connection)] == [first]
        assert [run.id for run in rig.claim(2)] == [second, third]
        assert rig.claim(2) == []


def test_the_statements_of_a_claim_do_not_grow_with_it(rig: Rig) -> None:
    """Fifty runs cost the statements of one: a batch is one look and one write."""
    rig.add_many(51)
    with rig.counting() as of_one:
        assert len(rig.claim(1)) == 1
    with rig.counting() as of_fifty:
        assert len(rig.claim(50)) == 50

    allowed = 1 if rig.dialect.updates_return_rows else 2
    assert len(of_one.sent) == len(of_fifty.sent) == allowed
    assert of_one.commits == of_fifty.commits == 1


def test_a_look_tells_what_there_is_to_do(rig: Rig) -> None:
    """One statement answers: is something due in my lanes, and when is the next sleeper, lease or signal."""

    def look(*lanes: str) -> Look:
        with rig.database.read() as connection:
            return rig.claims.look(connection, lanes)

    assert look("default") == Look(False, None, None, None)
    rig.add_parked(wake_at=NOON + 2 * SECOND)
    rig.add_parked(wake_at=NOON + SECOND)
    rig.hold(lease_expires_at=NOON + LEASE)
    rig.add(lane="mail", queue="mail")

    expected = (NOON + SECOND, NOON + LEASE, None)
    with rig.counting() as statements:
        assert look("default") == Look(False, *expected)
    assert len(statements.sent) == 1
    assert look("default", "mail") == Look(True, *expected)
    assert look() == Look(False, *expected)


def test_a_token_is_made_anew_for_each_claim() -> None:
    """Tokens never repeat, and a run's ids are in the order of their making."""
    assert len({new_token() for _ in range(1000)}) == 1000
    ids = [new_run_id() for _ in range(1000)]
    assert ids == sorted(ids)
