"""What a worker's tick takes, leaves alone, and never loses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, update

from stepwell import ManualClock, Run, Stepwell
from stepwell.engine.store_journal import StoreJournal
from stepwell.entries import Execution, Settlement
from stepwell.states import ExecutionState, Kind, Outcome, RunState
from stepwell.store.database import AnswerLost
from stepwell.store.schema import runs
from stepwell.worker.claimer import Claimer
from stepwell.worker.contact import Contact
from stepwell.worker.worker import Worker
from tests.chaos.errands import Plain
from tests.integration.store.rig import quiet_place

LEASE = timedelta(seconds=30)


@pytest.fixture
def well(database_url: str) -> Iterator[Stepwell]:
    engine = Stepwell(database_url, lease=LEASE, default=False)
    engine.connect()
    yield engine
    engine.close()


def claimer_of(well: Stepwell, *queues: str, poll: float = 30.0) -> Claimer:
    return Claimer(well, queues or ("default",), "worker", Contact(LEASE.total_seconds() / 3), poll)


def start(well: Stepwell, queue: str = "default", **options: Any) -> Run:
    run: Run = Plain.with_options(engine=well, queue=queue, **options).start(account="a")
    return run


def test_what_was_claimed_before_an_error_is_handed_over_by_the_next_tick(
    well: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose lease is held and renewed must be driven: nobody else would ever take it."""
    run = start(well, "first")
    claimer = claimer_of(well, "first", "second")
    claim = well.claims.claim

    def breaks_at_the_second(connection: Any, lane: str, *arguments: Any, **named: Any) -> Any:
        if lane == "second":
            raise AnswerLost
        return claim(connection, lane, *arguments, **named)

    with monkeypatch.context() as broken:
        broken.setattr(well.claims, "claim", breaks_at_the_second)
        with pytest.raises(AnswerLost):
            claimer.tick(4)
    assert run.state is RunState.RUNNING
    claimed, _ = claimer.tick(4)
    assert [each.run.id for each in claimed] == [run.id]


def test_a_claim_whose_answer_was_lost_is_found_again(
    well: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is the client's own: what the database took for it is driven, and no recovery is counted."""
    run = start(well)
    claimer = claimer_of(well)
    retrying = well.database.retrying

    def loses_the_answer(work: Any, **named: Any) -> Any:
        retrying(work, **named)
        raise AnswerLost

    with monkeypatch.context() as broken:
        broken.setattr(well.database, "retrying", loses_the_answer)
        with pytest.raises(AnswerLost):
            claimer.tick(4)
    claimed, _ = claimer.tick(4)
    assert [each.run.id for each in claimed] == [run.id]
    assert run.info().recoveries == 0
    # How old the lease is nobody knows, so that the first body asks.
    assert claimed[0].lease.expires_at_monotonic <= well.clock.monotonic()


def test_a_claim_that_is_still_under_way_is_looked_for_again(
    well: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may finish a claim whose connection has broken: the runs are driven all the same, and soon."""
    run = start(well)
    claimer = claimer_of(well)
    retrying = well.database.retrying
    late: list[Any] = []

    def breaks_before_it_is_done(work: Any, **named: Any) -> Any:
        late.append(lambda: retrying(work, **named))
        raise AnswerLost

    with monkeypatch.context() as broken:
        broken.setattr(well.database, "retrying", breaks_before_it_is_done)
        with pytest.raises(AnswerLost):
            claimer.tick(4)
    run.reschedule(timedelta(hours=1))
    claimed, idle = claimer.tick(4)
    assert claimed == []
    assert idle < 1
    run.reschedule()
    late[0]()
    claimed, _ = claimer.tick(4)
    assert [each.run.id for each in claimed] == [run.id]
    assert claimed[0].lease.expires_at_monotonic <= well.clock.monotonic()


def test_an_idle_tick_writes_nothing(sqlite_url: str) -> None:
    """A worker with nothing to do never waits for SQLite's write lock, nor takes it from those who work."""
    well = Stepwell(sqlite_url, lease=LEASE, default=False)
    start(well, "elsewhere")
    claimer = claimer_of(well)
    other = create_engine(sqlite_url)
    answers: list[Any] = []
    with other.connect() as writer:
        writer.exec_driver_sql("BEGIN IMMEDIATE")
        ticking = threading.Thread(target=lambda: answers.append(claimer.tick(4)))
        ticking.start()
        ticking.join(timeout=5)
        had_to_wait = ticking.is_alive()
        writer.rollback()
    ticking.join(timeout=35)
    other.dispose()
    well.close()
    assert not had_to_wait
    claimed, idle = answers[0]
    assert claimed == []
    assert idle > 20


def test_a_tick_says_how_long_there_is_nothing_to_do(well: Stepwell) -> None:
    """A worker that looks seldom still looks when the next run is due."""
    start(well, at=timedelta(seconds=5))
    _, idle = claimer_of(well).tick(4)
    assert 4 < idle <= 5


def test_a_lease_that_may_not_be_taken_yet_is_looked_at_again_soon_and_without_spinning(
    well: Stepwell,
) -> None:
    """A worker whose contact is young leaves expired leases alone, and takes them up once it is proven."""
    run = start(well)
    lost, _ = claimer_of(well).tick(4)
    well.leases.remove(lost[0].lease)
    token = lost[0].lease.token
    with well.database.begin() as connection:
        expired = update(runs).values(lease_expires_at=well.now() - timedelta(seconds=60))
        connection.execute(expired.where(runs.c.id == run.id, runs.c.lease_token == token))
    contact = Contact(0.3)
    claimer = Claimer(well, ("default",), "heir", contact, 30.0)
    claimed, idle = claimer.tick(4)
    assert claimed == []
    assert run.state is RunState.RUNNING
    assert 0.1 <= idle <= 0.5
    threading.Event().wait(0.35)
    contact.made()
    claimer.tick(4)
    assert run.state is RunState.WAITING
    assert run.info().recoveries == 1


def test_a_run_that_parks_while_the_worker_looks_is_not_slept_over(
    well: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A park between a worker's look and its rest shortens that rest: a timer never waits for the poll."""
    worker = Worker(well, threads=1, poll=timedelta(seconds=30))
    ticks: list[float] = []
    tick = worker._claimer.tick

    def parks_after_the_look(room: int) -> Any:
        answer = tick(room)
        ticks.append(well.clock.monotonic())
        if len(ticks) == 1:
            worker._look_in_time(0.5)
        return answer

    monkeypatch.setattr(worker._claimer, "tick", parks_after_the_look)
    looking = threading.Thread(target=worker._claim_on)
    looking.start()
    threading.Event().wait(1.5)
    worker._is_draining = True
    worker._awake.set()
    looking.join(timeout=5)
    assert len(ticks) == 2
    assert 0.4 < ticks[1] - ticks[0] < 1.4


def test_a_second_claim_at_one_instant_knows_the_journal(sqlite_url: str) -> None:
    """A clock that stands still makes no run forget its steps: no entry is written in place of another."""
    well = Stepwell(sqlite_url, clock=ManualClock(), default=False)
    start(well)
    claimer = claimer_of(well)
    (first,), _ = claimer.tick(1)
    execution = Execution(
        1, "a", Kind.STEP, ExecutionState.COMPLETED, Outcome.SUCCESS, finished_at=well.now()
    )
    settlement = Settlement(RunState.READY, due_at=well.now())
    journal = StoreJournal(well, first.lease, quiet_place(), first.history, None, hero_is_optional=True)
    journal.write([execution], current_step="b", settlement=settlement)
    (second,), _ = claimer.tick(1)
    assert [row.name for row in second.history] == ["a"]
    well.close()
