"""Starting runs: in a transaction of one's own or in the caller's, and visible when that one commits."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, cast
from uuid import UUID

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from stepwell import (
    Run,
    RunAlreadyExists,
    RunError,
    RunState,
    Stepwell,
    StoreError,
    Unstorable,
    Workflow,
    step,
)
from stepwell.entries import JournalEntry
from stepwell.store.database import AnswerLost
from tests.databases import PostgreSQL
from tests.integration.store.cable import Cable, Cut
from tests.integration.store.rig import Statements, done
from tests.integration.town import NOON, SECOND, Greet, Parcel, Person, Plain, Town, town_on


def plain(town: Town, **options: Any) -> Run:
    return Plain.with_options(engine=town.well, **options).start()


# -- a transaction of one's own ---------------------------------------------------------------------------


def test_a_start_is_committed_when_it_returns(town: Town) -> None:
    """Without options the run is there and due, for every other connection."""
    run = Parcel.with_options(engine=town.well).start(number=7)
    with town.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM stepwell_runs")).scalar() == 1

    row = run.info()
    assert (row.workflow, row.version, row.state, row.current_step) == ("town.Parcel", 1, "ready", "send")
    assert (row.queue, row.lane, row.priority, row.due_at) == ("parcels", "parcels", 50, NOON)
    assert (row.created_at, row.changed_at, row.started_at, row.finished_at) == (NOON, NOON, None, None)
    assert (row.wake_at, row.reason, row.context, row.wakeups, row.recoveries) == (None, None, None, 0, 0)
    assert (run.created, dict(run.args), run.steps) == (True, {"number": 7}, [])


def test_options_of_a_start_are_the_runs(town: Town) -> None:
    """Queue and priority may be another's than the class says; what was said is kept with the run."""
    row = Parcel.with_options(engine=town.well, queue="slow", priority=0).start(number=1).info()
    assert (row.queue, row.lane, row.priority) == ("slow", "slow", 0)
    assert row.options == '{"queue": "slow", "priority": 0}'


@pytest.mark.parametrize("at", [SECOND, NOON + SECOND], ids=["duration", "instant"])
def test_a_start_may_lie_ahead(town: Town, at: Any) -> None:
    """The run waits for its instant and is promoted then; one that has passed means now."""
    run = plain(town, at=at)
    row = run.info()
    assert (row.state, row.reason, row.wake_at, row.lane) == ("waiting", "timer", NOON + SECOND, None)
    town.clock.travel(2 * SECOND)
    town.promote()
    assert (run.info().state, run.info().due_at) == ("ready", NOON + SECOND)
    assert plain(town, at=NOON).info().state == "ready"


def test_many_runs_cost_few_statements(town: Town) -> None:
    """A batch is one transaction whose statements do not grow with it; answers are in the order of items."""
    town.well.connect()
    sent, start_many = [], Parcel.with_options(engine=town.well).start_many
    for size in (3, 400):
        numbers = [size * 1000 - n for n in range(size)]
        statements = Statements(town.well.database, thread=threading.current_thread().name)
        runs = start_many([{"number": number} for number in numbers])
        statements.stop()
        sent.append(statements.sent)
        assert statements.commits == 1
        assert [run.args["number"] for run in runs[:3]] == numbers[:3]
        assert all(run.created for run in runs)
    if town.well.database.dialect.has_one_writer:
        # It is told of each row by itself, and of one look at what was inserted.
        assert [len(each) for each in sent] == [3 + 1, 400 + 1]
    else:
        assert len(sent[0]) == len(sent[1]) <= 2
    assert town.count() == 403


def test_a_batch_may_be_empty(town: Town) -> None:
    """Nothing to start is nothing to do."""
    assert Plain.with_options(engine=town.well).start_many([]) == []


def test_what_cannot_be_stored_starts_nothing(town: Town) -> None:
    """Arguments are encoded before anything is written: of a batch with a bad one nothing is there."""
    calls = [Plain.with_args(n=1), Plain.with_args(n=object())]
    with pytest.raises(Unstorable, match="n"):
        Plain.with_options(engine=town.well).start_many(calls)
    assert town.count() == 0


@pytest.mark.servers
def test_a_start_whose_answer_was_lost_is_found_again(shared_server_url: str) -> None:
    """The id is the client's: whether the insert was committed or not, there is one run and no error."""
    cable = Cable(shared_server_url)
    with town_on(shared_server_url) as town:
        well = Stepwell(cable.url, clock=town.clock, default=False)
        for how in (Cut.DONE, Cut.LOST):
            plain_here = Plain.with_options(engine=well)
            plain_here.start()
            before = town.count()
            cable.cut(how, lambda message: b"INSERT INTO stepwell_runs" in message)
            assert plain_here.start().created
            assert town.count() == before + 1
        assert cable.cuts == 2
        well.close()
    cable.close()


def test_a_start_that_loses_a_callers_connection_is_the_callers(shared_server_url: str) -> None:
    """In somebody's transaction nothing is repeated: it has lost everything that was written before, too."""
    cable = Cable(shared_server_url)
    with town_on(shared_server_url) as town:
        engine = create_engine(cable.url)
        with engine.connect() as connection:
            plain(town, connection=connection)
            cable.cut(Cut.LOST, lambda message: b"INSERT INTO stepwell_runs" in message)
            with pytest.raises(Exception, match=r"(?i)connection") as caught:
                plain(town, connection=connection)
            assert not isinstance(caught.value, AnswerLost)
        assert town.count() == 0
        engine.dispose()
    cable.close()


# -- the caller's transaction -----------------------------------------------------------------------------


def test_a_run_exists_if_the_callers_session_commits(town: Town) -> None:
    """Not before, and not at all if it rolls back."""
    for commits in (False, True):
        with town.session() as session:
            run = plain(town, session=session)
            assert town.count() == 0
            session.commit() if commits else session.rollback()
        assert town.count() == int(commits)
    assert run.info().state == "ready"


def test_a_run_exists_if_the_callers_connection_commits(town: Town) -> None:
    """The same with a connection: the start begins its transaction if it has none yet."""
    for commits in (False, True):
        with town.engine.connect() as connection:
            plain(town, connection=connection)
            assert connection.in_transaction()
            assert town.count() == 0
            connection.commit() if commits else connection.rollback()
        assert town.count() == int(commits)
    with town.engine.begin() as connection:
        plain(town, connection=connection)
    assert town.count() == 2


def test_a_run_goes_with_its_savepoint(server_town: Town) -> None:
    """A savepoint that is rolled back takes the run along; one that is released leaves it to the transaction.

    SQLite's driver begins no transaction for a savepoint, so that the law is about the servers.
    """
    town = server_town
    with town.session() as session:
        nested = session.begin_nested()
        plain(town, session=session)
        nested.rollback()
        with session.begin_nested():
            kept = plain(town, session=session)
        session.commit()
    assert [run.id for run in town.well.runs().all()] == [kept.id]


def test_workers_are_woken_after_the_commit(town: Town) -> None:
    """The hint follows the commit; a rollback, of all or of a savepoint, leaves nothing to look for."""
    heard: list[str] = []
    town.well.hub.listen(heard.append)
    with town.session() as session:
        plain(town, session=session)
        session.rollback()
        assert heard == []
        plain(town, session=session, queue="mail")
        assert heard == []
        session.commit()
        assert heard == ["mail"]
        session.commit()
        session.rollback()
    assert heard == ["mail"]
    plain(town)
    assert heard == ["mail", "default"]


def test_a_released_savepoint_wakes_nobody_yet(server_town: Town) -> None:
    """Its run is not visible before the outer commit; if that never comes, nobody is woken."""
    town, heard = server_town, list[str]()
    town.well.hub.listen(heard.append)
    with town.session() as session:
        with session.begin_nested():
            plain(town, session=session, queue="kept")
        assert heard == []
        nested = session.begin_nested()
        plain(town, session=session, queue="dropped")
        with session.begin_nested():
            plain(town, session=session, queue="dropped too")
        nested.rollback()
        session.commit()
        assert heard == ["kept"]
        with session.begin_nested():
            plain(town, session=session, queue="lost")
        session.rollback()
    assert heard == ["kept"]


def test_a_failing_wake_does_not_spoil_the_callers_commit(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit has succeeded: what goes wrong in a hint after it is logged and nobody's error."""

    def broken(queue: str) -> None:
        raise OSError(queue)

    town.well.hub.listen(broken)
    with town.session() as session:
        plain(town, session=session)
        session.commit()
    assert "a wake after commit failed" in caplog.text
    assert town.count() == 1


def test_a_pending_hero_gets_its_key_first(town: Town) -> None:
    """A record that was just added can be the hero: it is flushed, and the run never exists without it."""
    with town.session() as session:
        person = Person(name="Ada")
        session.add(person)
        run = Greet.with_options(engine=town.well, session=session).start(person)
        session.commit()
        assert run.info().hero_id == str(person.id)
    with pytest.raises(Unstorable, match=r"no primary key yet"):
        Greet.with_options(engine=town.well).start(Person(name="Bob"))


def test_a_batch_of_pending_heroes_is_flushed_once(town: Town) -> None:
    """The same for many: their runs are about each of them."""
    with town.session() as session:
        people = [Person(name=str(n)) for n in range(3)]
        session.add_all(people)
        runs = Greet.with_options(engine=town.well, session=session).start_many(people)
        session.commit()
        assert [run.info().hero_id for run in runs] == [str(person.id) for person in people]


def test_another_databases_session_is_refused(town: Town, sqlite_url: str, postgresql: PostgreSQL) -> None:
    """A start joins a transaction of the database in which the runs are, and says so."""
    with postgresql.database() as other:
        url = sqlite_url if make_url(str(town.engine.url)).get_backend_name() != "sqlite" else other
        engine = create_engine(url)
        with Session(engine) as session, pytest.raises(StoreError, match="own database only"):
            plain(town, session=session)
        with engine.connect() as connection, pytest.raises(StoreError, match="own database only"):
            plain(town, connection=connection)
        engine.dispose()


def test_a_session_with_a_bind_for_each_class_is_asked_for_the_right_one(town: Town) -> None:
    """Which of its transactions is meant cannot be guessed; the message shows how to give it."""
    with Session(binds={Person: town.engine}) as session:
        session.add(Person(name="Ada"))
        with pytest.raises(StoreError, match=r"connection=session\.connection\(bind_arguments="):
            plain(town, session=session)
        plain(town, connection=session.connection(bind_arguments={"mapper": Person}))
        assert town.count() == 0
        session.commit()
    assert town.count() == 1


class Mother(Workflow):
    """Starts another run in its step."""

    workflow_name = "town.Mother"

    @step
    def bear(self) -> None:
        session = self.session if self.args["names_session"] else None
        child = Plain.with_options(queue="nursery", session=session).start()
        assert child.created
        if self.args["fails"]:
            raise ValueError("no")


@pytest.mark.parametrize("names_session", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_start_in_a_step_is_the_steps(town: Town, names_session: bool, fails: bool) -> None:
    """It commits with the step's journal entry, or goes with it; workers are woken after that commit."""
    heard: list[str] = []
    mother = Mother.with_options(engine=town.well).start(names_session=names_session, fails=fails)
    town.well.hub.listen(heard.append)
    town.drive(town.claim(mother))
    assert mother.state is (RunState.FAILED if fails else RunState.COMPLETED)
    assert town.well.runs(Plain).count() == int(not fails)
    assert heard == [] if fails else ["nursery"]


# -- asynchronous callers ---------------------------------------------------------------------------------


class _NotASession:
    sync_session = None

    def execute(self) -> None: ...


def test_an_asynchronous_session_is_refused_with_the_way_to_go(town: Town) -> None:
    """It cannot be used from synchronous code; the message shows what to write. Other objects are named."""
    with pytest.raises(RunError, match=r"await session\.run_sync\(lambda s: .*session=s.*\.start"):
        plain(town, session=_NotASession())
    with pytest.raises(RunError, match="takes a SQLAlchemy Session; got an Engine"):
        plain(town, session=_Executes())


class _Executes:
    __qualname__ = "Engine"

    def execute(self) -> None: ...


ASYNC_DRIVERS = {"sqlite": "aiosqlite", "postgresql": "asyncpg", "mysql": "aiomysql"}


def test_a_run_is_started_from_an_asynchronous_session(town: Town) -> None:
    """Through ``run_sync`` the start takes part in the session's transaction, whatever the driver."""
    url = make_url(str(town.engine.url.render_as_string(hide_password=False)))
    driver = ASYNC_DRIVERS[url.get_backend_name()]
    pytest.importorskip(driver)
    pytest.importorskip("greenlet")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    heard: list[str] = []
    town.well.hub.listen(heard.append)
    parcel = Parcel.with_options

    async def start() -> None:
        engine = create_async_engine(url.set(drivername=f"{url.get_backend_name()}+{driver}"))
        async with AsyncSession(engine) as session:
            for commits in (False, True):
                run = await session.run_sync(lambda s: parcel(engine=town.well, session=s).start(number=1))
                taken = await session.run_sync(
                    lambda s: parcel(engine=town.well, session=s, on_conflict="skip").start(number=1)
                )
                assert (taken, taken.created) == (run, False)
                await (session.commit() if commits else session.rollback())
                assert len(heard) == int(commits)
        async with engine.connect() as connection:
            await connection.run_sync(lambda c: plain(town, connection=c))
            await connection.commit()
        await engine.dispose()

    asyncio.run(start())
    assert town.count() == 2


# -- what a caller's transaction may be -------------------------------------------------------------------


def test_a_caller_may_be_at_repeatable_read(server_town: Town) -> None:
    """MariaDB's default. A start there works, and finds a holder that came after its snapshot."""
    town = server_town
    with town.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(text("SELECT * FROM stepwell_runs")).all()
        plain(town, connection=connection)
        held = Parcel.with_options(engine=town.well).start(number=1)
        if town.well.database.dialect.groups_commits:
            # PostgreSQL tells a serialization failure itself: the caller's to repeat.
            connection.commit()
        with pytest.raises(RunAlreadyExists) as caught:
            Parcel.with_options(engine=town.well, connection=connection).start(number=1)
        assert caught.value.run == held
        plain(town, connection=connection)
        connection.commit()
    assert town.count() == 3


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_callers_open_conflict_stops_no_worker(server_town: Town, isolation: Any) -> None:
    """A start that met an open run leaves its row alone: its worker goes on while the caller dawdles."""
    town = server_town
    run = Parcel.with_options(engine=town.well).start(number=1)
    row = town.claim(run)
    with town.engine.connect().execution_options(isolation_level=isolation) as connection:
        start = Parcel.with_options(engine=town.well, connection=connection).start
        with pytest.raises(RunAlreadyExists):
            start(number=1)
        content = Parcel.with_options(engine=town.well, connection=connection, on_conflict="skip").start(
            number=1
        )
        assert content == run

        began_at = time.monotonic()
        entry = JournalEntry(run.id, cast(UUID, row.lease_token), NOON, "first", "other", (done(1),))
        assert town.well.database.write(entry).accepted
        renewed = town.well.database.retrying(
            lambda c: town.well.claims.renew(c, [(run.id, cast(UUID, row.lease_token))], NOON + 3600 * SECOND)
        )
        assert time.monotonic() - began_at < 2
        assert (renewed[run.id].is_ours, run.info().lease_expires_at) == (True, NOON + 3600 * SECOND)


def test_nothing_is_left_of_a_batch_that_was_refused(town: Town) -> None:
    """Also in a caller's transaction that goes on: a batch is there whole, or not at all."""
    taken = Parcel.with_options(engine=town.well).start(number=2)
    with town.session() as session:
        with pytest.raises(RunAlreadyExists) as caught:
            Parcel.with_options(engine=town.well, session=session).start_many(
                [{"number": n} for n in range(4)]
            )
        plain(town, session=session)
        session.commit()
    assert caught.value.run == taken
    assert sorted(run.workflow for run in town.well.runs().all()) == ["town.Parcel", "town.Plain"]

    with pytest.raises(RunAlreadyExists):
        Parcel.with_options(engine=town.well).start_many([{"number": n} for n in range(4)])
    assert town.count() == 2
