"""Renewing the leases of a process, beside what holds its runs' rows, its connections, or cuts them."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import TimeoutError as NoConnection

from stepwell import Stepwell, Worker, Workflow, step
from stepwell.engine.leases import Lease
from stepwell.worker.contact import Contact
from stepwell.worker.heartbeat import Heartbeat
from tests.integration.conftest import SERVERS
from tests.integration.store.cable import Cable, Cut

bodies: list[str] = []
both = threading.Barrier(2)


class Errand(Workflow):
    @step
    def go(self) -> None: ...


class Holding(Workflow):
    """Holds a connection for longer than a lease, once both of two runs do."""

    @step
    def hold(self) -> None:
        bodies.append(str(self.run_id))
        self.session.execute(text("SELECT 1"))
        both.wait(timeout=10)
        threading.Event().wait(2.5)


@pytest.fixture(autouse=True)
def _nobody() -> None:
    bodies.clear()
    both.reset()


def claimed(well: Stepwell) -> Lease:
    """The lease of a run that this process has just claimed; past its time as far as it knows."""
    run, token, now = Errand.with_options(engine=well).start(), uuid4(), well.now()
    taken = well.database.retrying(
        lambda connection: well.claims.claim_one(
            connection, run.id, owner="me", token=token, now=now, until=now + well.lease
        )
    )
    assert taken is not None
    lease = Lease(run.id, token, 0.0)
    well.leases.add(lease)
    return lease


def expiry(well: Stepwell, lease: Lease) -> datetime:
    expires = well.run(lease.run_id).info().lease_expires_at
    assert expires is not None
    return expires


def test_a_lease_whose_row_is_locked_is_renewed_a_moment_later(database_url: str) -> None:
    """A step that checkpoints all the time has its row locked half of the time, and keeps its lease all the same."""
    well = Stepwell(database_url, default=False, lease=timedelta(seconds=30))
    lease, before = claimed(well), well.now() + well.lease
    is_locked = threading.Event()

    def hold() -> None:
        with well.database.begin() as connection:
            connection.execute(text("UPDATE stepwell_runs SET reason = 'held'"))
            is_locked.set()
            threading.Event().wait(0.3)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_locked.wait(5)
    renewal = well.renew_leases([lease])[lease.run_id]
    holder.join()
    assert (renewal.is_ours, renewal.is_renewed) == (True, True)
    assert lease.expires_at_monotonic > 0
    assert expiry(well, lease) > before
    well.close()


def test_a_process_without_a_free_connection_renews_its_leases(database_url: str) -> None:
    """Renewals have a connection reserved for them: bodies may hold all others for as long as they like."""
    theirs = create_engine(database_url, pool_size=2, max_overflow=0, pool_timeout=0.1)
    well = Stepwell(theirs, default=False)
    lease, before = claimed(well), well.now() + well.lease
    heartbeat = Heartbeat(well, Contact(10.0), "worker")
    # Everything that a beat may do: the clock is due, too.
    heartbeat._clock_set_at = 0.0
    with ExitStack() as stack:
        with pytest.raises(NoConnection):
            while True:
                stack.enter_context(well.database.engine.connect())
        heartbeat.beat()
    assert lease.expires_at_monotonic > well.clock.monotonic()
    assert expiry(well, lease) > before
    well.close()
    theirs.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("product", SERVERS, indirect=True)
def test_steps_that_hold_all_connections_keep_their_leases(database_url: str) -> None:
    """Their bodies outlive a lease while nothing is left in the pool: nobody takes the runs over."""
    other = Stepwell(database_url, default=False, lease=timedelta(seconds=1))
    listening = 1 if other.database.dialect.notifies else 0
    theirs = create_engine(database_url, pool_size=2 + listening, max_overflow=0)
    well = Stepwell(theirs, default=False, lease=timedelta(seconds=1))
    with Worker(well, threads=2), Worker(other, threads=2, queues="other"):
        runs = [Holding.with_options(engine=other).start() for _ in range(2)]
        for run in runs:
            run.result(timeout=timedelta(seconds=20))
    assert sorted(bodies) == sorted(str(run.id) for run in runs)
    assert [[entry.outcome for entry in run.steps] for run in runs] == [["success"]] * 2
    for each in (other, well):
        each.close()
    theirs.dispose()


@pytest.mark.parametrize("product", SERVERS, indirect=True)
@pytest.mark.parametrize("how", [Cut.LOST, Cut.DONE])
def test_a_renewal_whose_connection_broke_is_made_on_a_new_one(database_url: str, how: Cut) -> None:
    """Within the same beat: a connection that was cut costs neither the lease nor the proof of contact."""
    cable = Cable(database_url)
    well = Stepwell(cable.url, default=False)
    lease, before = claimed(well), well.now() + well.lease
    heartbeat = Heartbeat(well, Contact(10.0), "worker")
    heartbeat.beat()
    cable.cut(how, lambda message: b"stepwell_runs" in message)
    lease.expires_at_monotonic = 0.0
    heartbeat.beat()
    assert (cable.cuts, lease.is_lost) == (1, False)
    assert lease.expires_at_monotonic > well.clock.monotonic()
    assert expiry(well, lease) > before
    well.close()
    cable.close()
