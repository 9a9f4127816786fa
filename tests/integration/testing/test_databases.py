"""A workbench stands on its own database, on one that is named, or on an engine that is there already."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, func, select

from stepwell import ManualClock, Stepwell, StoreError
from stepwell.definition.starting import default_engine, set_default_engine
from stepwell.store.schema import metadata
from stepwell.testing import Workbench
from tests.integration.testing.examples import Month


def file_of(bench: Workbench) -> Path:
    return Path(str(bench.engine.database.engine.url.database))


def test_each_workbench_has_a_database_of_its_own(stepwell: Workbench) -> None:
    """Nothing is shared, and nothing stays: the file is gone with the workbench."""
    Month.start()
    with Workbench() as other:
        assert other.engine.runs().count() == 0
        assert file_of(other).exists()
    assert not file_of(other).parent.exists()
    assert stepwell.engine.runs().count() == 1


def test_a_named_database_gets_its_tables(empty_database_url: str) -> None:
    """A URL or an application's engine is enough, on every product; a second time finds the runs again."""
    with Workbench(empty_database_url) as bench:
        run = Month.start()
        bench.drain()
    application = create_engine(empty_database_url)
    with Workbench(application) as bench:
        bench.travel_to(bench.now + timedelta(days=3))
        assert bench.drain() == 1
        again = bench.engine.run(run.id)
        bench.assert_steps(again, "one", "two")
    with application.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
    application.dispose()


def test_an_engine_is_used_as_it_is(database_url: str) -> None:
    """Its clock stands still while it is on the bench, and is its own again afterwards; it is not closed."""
    well = Stepwell(database_url, default=False)
    clock, chance = well.clock, well.chance
    with Workbench(well) as bench:
        assert bench.engine is well
        bench.travel(timedelta(days=400))
        assert well.now() == bench.now
        run = Month.start()
        bench.run_to_end(run)
    assert (well.clock, well.database.clock, well.chance) == (clock, clock, chance)
    assert well.runs().count() == 1
    well.close()


def test_a_clock_that_can_be_moved_is_kept(sqlite_url: str) -> None:
    """An engine that was made with a ManualClock keeps that one."""
    clock = ManualClock()
    well = Stepwell(sqlite_url, clock=clock, default=False)
    with Workbench(well) as bench:
        assert bench.clock is clock
        bench.travel(timedelta(days=1))
    assert well.clock is clock
    well.close()


def test_the_default_engine_is_put_back(sqlite_url: str) -> None:
    """Whatever it was before, an engine or none, also when the block raises."""
    before = Stepwell(sqlite_url, default=False)
    for engine in (before, None):
        set_default_engine(engine)
        with pytest.raises(ZeroDivisionError):
            with Workbench() as bench:
                assert default_engine() is bench.engine
                raise ZeroDivisionError
        if engine is not None:
            assert default_engine() is engine
    with pytest.raises(StoreError, match="no default engine"):
        default_engine()
    before.close()


def test_a_database_in_memory_is_refused() -> None:
    """As by the engine: the message says what to do instead, and nothing is left open."""
    set_default_engine(None)
    with pytest.raises(StoreError, match=r"Workbench\(\), brings a database of its own"):
        Workbench("sqlite://")
    with pytest.raises(StoreError, match="no default engine"):
        default_engine()


def test_all_runs_can_be_forgotten(bench: Workbench) -> None:
    """A database that tests share is empty again."""
    run = Month.start()
    bench.drain()
    run.signal("hello")
    bench.delete_all_runs()
    assert bench.engine.runs().count() == 0
    with bench.engine.database.read() as connection:
        for table in metadata.sorted_tables:
            assert connection.execute(select(func.count()).select_from(table)).scalar_one() == 0


def test_a_commit_does_not_wait_for_the_disk(stepwell: Workbench) -> None:
    """A test's own file may be lost with the power; that makes it fast."""

    def level(connection: Any) -> Any:
        return connection.exec_driver_sql("PRAGMA synchronous").scalar_one()

    with stepwell.engine.database.read() as connection:
        assert level(connection) == 0
    Month.start()
    stepwell.drain()
    with stepwell.engine.database.begin() as connection:
        assert level(connection) == 0
