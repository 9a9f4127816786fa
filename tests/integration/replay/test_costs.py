"""What a run with ``run()`` costs is counted: as much as a declared one."""

from __future__ import annotations

from collections.abc import Callable

from stepwell import Stepwell, Workflow, step
from stepwell.engine.activation import activate
from stepwell.engine.leases import Lease
from stepwell.ids import new_token
from stepwell.states import RunState
from tests.integration.store.cable import Cable
from tests.integration.store.rig import LEASE, Statements, quiet_place
from tests.integration.store.test_costs import ENTRIES, wait_until_quiet


class TenCalls(Workflow):
    """Ten steps that do nothing, and their results."""

    workflow_name = "costs.TenCalls"

    def run(self) -> list[int]:
        return [self.nothing(number) for number in range(10)]

    @step
    def nothing(self, number: int) -> int:
        return number


def claimed(well: Stepwell) -> Callable[[], None]:
    """One run, started and claimed; what is answered drives it to its end, as a worker does."""
    TenCalls.with_options(engine=well).start()
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


def test_n_steps_cost_n_and_one_commits_on_sqlite(sqlite_url: str) -> None:
    """An update and an insert for a step, an update for the end."""
    well = Stepwell(sqlite_url, default=False)
    statements = Statements(well.database)
    claimed(well)()
    drive = claimed(well)
    statements.sent.clear()
    statements.commits = 0
    drive()
    statements.stop()
    well.close()
    assert statements.commits == ENTRIES
    assert len(statements.sent) == 2 * 10 + 1


def test_n_steps_cost_n_and_one_round_trips_on_postgresql(postgresql_url: str) -> None:
    """One statement that commits by itself for each."""
    cable = Cable(postgresql_url)
    well = Stepwell(cable.url, default=False)
    claimed(well)()
    drive = claimed(well)
    wait_until_quiet(cable)
    before = cable.round_trips
    drive()
    assert cable.round_trips - before == ENTRIES
    well.close()
    cable.close()


def test_n_steps_cost_n_and_one_commits_on_mariadb(mariadb_url: str) -> None:
    """Guard, its answer, the row, the commit and the pool's reset are a round trip each."""
    cable = Cable(mariadb_url)
    well = Stepwell(cable.url, default=False)
    claimed(well)()
    drive = claimed(well)
    statements, before = Statements(well.database), cable.round_trips
    drive()
    statements.stop()
    assert statements.commits == ENTRIES
    assert cable.round_trips - before == 5 * 10 + 4
    well.close()
    cable.close()
