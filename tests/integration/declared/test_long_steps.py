"""Steps that last: their leases are renewed beside them, and what they wrote is committed at the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text

from stepwell import Stepwell, Worker, Workflow, step
from stepwell.states import RunState
from tests.databases import PostgreSQL
from tests.integration.declared.shop import Base, Entry, Shop, story

SECOND = timedelta(seconds=1)


class Long(Workflow[None]):
    """Holds a transaction open for as long as it is told."""

    workflow_name = "long_steps.Long"

    @step
    def work(self) -> None:
        self.session.add(Entry(text=f"begun {self.args['name']}"))
        self.session.flush()
        end = time.monotonic() + self.args["seconds"]
        while time.monotonic() < end:
            time.sleep(0.05)
        self.session.add(Entry(text=f"ended {self.args['name']}"))


class Short(Workflow[None]):
    """Several short steps, one of which writes."""

    workflow_name = "long_steps.Short"

    @step
    def first(self) -> None: ...

    @step
    def second(self) -> None:
        self.session.add(Entry(text=f"short {self.args['name']}"))

    @step
    def third(self) -> None: ...


@pytest.fixture
def repeatable_read_url(postgresql: PostgreSQL) -> Iterator[str]:
    """A database on PostgreSQL whose transactions are REPEATABLE READ unless somebody says otherwise."""
    with postgresql.database() as url:
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            name = connection.execute(text("SELECT current_database()")).scalar_one()
            connection.exec_driver_sql(
                f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"
            )
        Base.metadata.create_all(engine)
        with engine.connect() as connection:
            assert (
                connection.exec_driver_sql("SHOW default_transaction_isolation").scalar() == "repeatable read"
            )
        yield url


@pytest.mark.servers
def test_a_step_over_three_renewals_where_the_default_is_repeatable_read(repeatable_read_url: str) -> None:
    """Renewals change the very row that the step's guard looks at in the end; the step commits all the same."""
    shop = Shop(repeatable_read_url)
    well = Stepwell(repeatable_read_url, lease=SECOND, default=False)
    beats: list[float] = []
    with Worker(well, threads=2) as worker:
        renew = worker.engine.renew_leases
        worker.engine.renew_leases = lambda leases: (beats.append(time.monotonic()), renew(leases))[1]
        run = Long.with_options(engine=well).start(name="one", seconds=1.2)
        run.result(timeout=20 * SECOND)

    assert len(beats) >= 3
    assert story(run) == ["work success"]
    assert shop.ledger == ["begun one", "ended one"]
    well.close()
    shop.engine.dispose()


@pytest.mark.slow
def test_a_long_transaction_on_sqlite_beside_fifteen_threads(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds the write lock for five seconds: renewals and the others wait their turn, and nobody fails."""
    shop = Shop(sqlite_url)
    Base.metadata.create_all(shop.engine)
    well = Stepwell(sqlite_url, lease=9 * SECOND, default=False)
    caplog.set_level(logging.WARNING)
    with Worker(well, threads=16) as worker:
        long = Long.with_options(engine=well).start(name="long", seconds=5)
        while not well.database._gate or well.database._gate._holder is None or shop_is_free(well):
            time.sleep(0.01)
        began = time.monotonic()
        starter = threading.Thread(target=start_many, args=(well,))
        starter.start()
        long.result(timeout=30 * SECOND)
        held = time.monotonic() - began
        starter.join()
        for run in well.runs(Short).all():
            run.result(timeout=30 * SECOND)
        leases = worker.engine.leases.held()

    assert held > 4
    assert leases == []
    assert long.state is RunState.COMPLETED
    assert [row.recoveries for row in well.runs().infos()] == [0] * 16
    assert {story(run)[-1] for run in well.runs(Short).all()} == {"third success"}
    assert len(shop.ledger) == 17
    messages = [record.getMessage() + str(record.exc_info) for record in caplog.records]
    assert not [message for message in messages if "locked" in message or "could not be renewed" in message]
    assert any("held SQLite's write lock for long" in message for message in messages)
    well.close()
    shop.engine.dispose()


def shop_is_free(well: Stepwell) -> bool:
    """The long step has not begun yet."""
    with well.database.read() as connection:
        return not connection.execute(text("SELECT 1 FROM stepwell_runs WHERE state = 'running'")).first()


def start_many(well: Stepwell) -> None:
    for number in range(15):
        Short.with_options(engine=well).start(name=str(number))


def test_a_long_body_is_visible_with_its_progress(shop: Shop, shared_url: str) -> None:
    """A heartbeat that finds it writes what a short step never needs: that it runs, and how far it is."""
    seen: list[Any] = []
    release = threading.Event()

    class Visible(Workflow[None]):
        @step
        def work(self) -> None:
            self.progress(3, 10)
            release.wait(20)

    well = Stepwell(shared_url, lease=SECOND, default=False)
    with Worker(well, threads=1):
        run = Visible.with_options(engine=well).start()
        limit = time.monotonic() + 15
        while time.monotonic() < limit and not seen:
            seen = [row for row in run.steps if row.state == "in_progress" and row.details]
            time.sleep(0.05)
        release.set()
        run.result(timeout=20 * SECOND)

    assert seen[0].name == "work"
    assert seen[0].started_at is not None
    assert seen[0].details["progress"]["done"] == 3
    assert [(row.position, row.outcome) for row in run.steps] == [(1, "success")]
    well.close()
