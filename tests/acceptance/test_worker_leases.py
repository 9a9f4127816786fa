"""Whether a lease that has run out may still be used: asked before each body, of the row itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from stepwell import Stepwell
from stepwell.engine.leases import Lease
from stepwell.engine.store_journal import StoreJournal
from stepwell.execution.suspension import LeaseLost
from stepwell.store.recovery import recover_expired
from stepwell.worker.claimer import Claimer
from stepwell.worker.contact import Contact
from tests.chaos.errands import Plain
from tests.chaos.scene import SERVERS
from tests.integration.store.rig import quiet_place

LEASE = timedelta(seconds=30)


@pytest.fixture
def well(database_url: str) -> Iterator[Stepwell]:
    engine = Stepwell(database_url, lease=LEASE, default=False)
    engine.connect()
    yield engine
    engine.close()


@pytest.fixture
def lease(well: Stepwell) -> Lease:
    """The lease of a claimed run, past its time as far as this process knows."""
    Plain.with_options(engine=well).start(account="a")
    (claimed,), _ = Claimer(well, ("default",), "worker", Contact(10.0), 1.0).tick(1)
    claimed.lease.expires_at_monotonic = 0.0
    return claimed.lease


def journal_of(well: Stepwell, lease: Lease) -> StoreJournal:
    return StoreJournal(well, lease, quiet_place(), (), None, hero_is_optional=True)


def test_a_lease_that_is_still_ours_is_renewed_before_the_body(well: Stepwell, lease: Lease) -> None:
    """A process that stood still for longer than its lease asks once, and then goes on."""
    journal_of(well, lease).ensure_lease()
    left = lease.expires_at_monotonic - well.clock.monotonic()
    assert LEASE.total_seconds() - 5 < left <= LEASE.total_seconds()


def test_a_lease_that_was_taken_begins_no_body(well: Stepwell, lease: Lease) -> None:
    """Whoever finds out late that the run has gone to another begins nothing more."""
    with well.database.begin() as connection:
        recover_expired(
            connection, well.database.dialect, well.now() + 2 * LEASE, max_recoveries=5, random=lambda: 0.5
        )
    with pytest.raises(LeaseLost):
        journal_of(well, lease).ensure_lease()
    assert lease.is_lost


@pytest.mark.parametrize("product", SERVERS, indirect=True)
def test_a_lease_that_is_just_being_taken_begins_no_body(well: Stepwell, lease: Lease) -> None:
    """A row that another has locked may be changing hands: the answer is waited for, and it is no."""
    answers: list[str] = []

    def ask() -> None:
        try:
            journal_of(well, lease).ensure_lease()
            answers.append("ours")
        except LeaseLost:
            answers.append("lost")

    asking = threading.Thread(target=ask)
    with well.database.begin() as connection:
        taken = recover_expired(
            connection, well.database.dialect, well.now() + 2 * LEASE, max_recoveries=5, random=lambda: 0.5
        )
        assert len(taken) == 1
        asking.start()
        asking.join(timeout=1)
        assert answers == []
    asking.join(timeout=20)
    assert answers == ["lost"]
