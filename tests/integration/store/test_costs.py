"""What a run costs is counted, so that nobody adds a round trip without knowing it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine, text

from stepwell import Stepwell, Workflow, step
from stepwell.engine.activation import activate
from stepwell.engine.leases import Lease
from stepwell.ids import new_token
from stepwell.states import RunState
from tests.integration.store.cable import Cable
from tests.integration.store.rig import LEASE, Statements, quiet_place, wait_until


class TenSteps(Workflow):
    """Ten steps that do nothing."""

    workflow_name = "costs.TenSteps"

    for number in range(10):

        @step(name=f"step_{number}")
        def nothing(self) -> None: ...


ENTRIES = 11
"""Ten steps and the end."""


def claim(well: Stepwell) -> Callable[[], None]:
    """One run, started and claimed; what is answered drives it to its end, as a worker does."""
    TenSteps.with_options(engine=well).start()
    token, now = new_token(), well.now()
    (run,) = well.database.retrying(
        lambda connection: well.claims.claim(
            connection, "default", 1, owner="one", token=token, now=now, until=now + LEASE
        )
    )

    def drive() -> None:
        lease = Lease(run.id, token, well.clock.monotonic() + LEASE.total_seconds())
        well.leases.add(lease)
        activated = activate(well, run, lease, quiet_place(), ())
        assert activated is not None
        assert activated.state is RunState.COMPLETED

    return drive


@contextmanager
def engine_on(url: str) -> Iterator[Stepwell]:
    """An engine whose connections are there and whose statements are known to the server."""
    well = Stepwell(url, default=False)
    claim(well)()
    yield well
    well.close()


def test_a_run_on_sqlite_costs_a_commit_for_each_entry(sqlite_url: str) -> None:
    """Ten steps and the end are eleven commits: an update and an insert for a step, an update for the end."""
    well = Stepwell(sqlite_url, default=False)
    statements = Statements(well.database)
    claim(well)()
    drive = claim(well)
    statements.sent.clear()
    statements.commits = 0
    drive()
    statements.stop()
    well.close()
    assert statements.commits == ENTRIES
    assert len(statements.sent) == 2 * 10 + 1


def wait_until_quiet(cable: Cable) -> None:
    """The notification of the start travels on a connection of its own, a moment later: it is none of the run's."""
    seen, limit = -1, time.monotonic() + 5
    while seen != cable.round_trips and time.monotonic() < limit:
        seen = cable.round_trips
        time.sleep(0.3)


def test_a_run_on_postgresql_costs_a_round_trip_for_each_entry(postgresql_url: str) -> None:
    """An entry is one statement that commits by itself: eleven round trips and nothing besides."""
    cable = Cable(postgresql_url)
    with engine_on(cable.url) as well:
        drive = claim(well)
        wait_until_quiet(cable)
        before = cable.round_trips
        drive()
        assert cable.round_trips - before == ENTRIES
    cable.close()


def test_a_run_on_mariadb_costs_a_commit_for_each_entry(mariadb_url: str) -> None:
    """Eleven commits; guard, its answer, the row, the commit and the pool's reset are a round trip each."""
    cable = Cable(mariadb_url)
    with engine_on(cable.url) as well:
        drive = claim(well)
        statements, before = Statements(well.database), cable.round_trips
        drive()
        statements.stop()
        assert statements.commits == ENTRIES
        assert cable.round_trips - before == 5 * 10 + 4
    cable.close()


def test_every_step_is_a_hot_update_on_postgresql(postgresql_url: str) -> None:
    """A step touches no index of ``runs``: its new row stays on its page, and no index grows."""
    with engine_on(postgresql_url):
        pass
    assert updates_of_runs(postgresql_url) == {"all": 1 + 10 + 1, "hot": 10}


def updates_of_runs(url: str) -> dict[str, int]:
    """What the server has counted; it counts when a connection ends, and tells a little later."""
    counts = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'stepwell_runs'"
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    found: dict[str, int] = {}
    with engine.connect() as connection:

        def is_told() -> bool:
            found["all"], found["hot"] = connection.execute(text(counts)).one()
            return found["all"] > 10

        wait_until(is_told)
    engine.dispose()
    return found
