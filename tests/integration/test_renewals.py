"""Renewing the leases of a process, beside what holds its runs' rows."""

from __future__ import annotations

import threading
from datetime import timedelta
from uuid import uuid4

from sqlalchemy import text

from stepwell import Stepwell, Workflow, step
from stepwell.engine.leases import Lease


class Errand(Workflow):
    @step
    def go(self) -> None: ...


def test_a_lease_whose_row_is_locked_is_renewed_a_moment_later(database_url: str) -> None:
    """A step that checkpoints all the time has its row locked half of the time, and keeps its lease all the same."""
    well = Stepwell(database_url, default=False, lease=timedelta(seconds=30))
    run, token, now = Errand.with_options(engine=well).start(), uuid4(), well.now()
    taken = well.database.retrying(
        lambda connection: well.claims.claim_one(
            connection, run.id, owner="me", token=token, now=now, until=now + well.lease
        )
    )
    assert taken is not None
    lease = Lease(run.id, token, 0.0)
    well.leases.add(lease)
    is_locked = threading.Event()

    def hold() -> None:
        with well.database.begin() as connection:
            connection.execute(text("UPDATE stepwell_runs SET reason = 'held'"))
            is_locked.set()
            threading.Event().wait(0.3)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_locked.wait(5)
    renewal = well.renew_leases([lease])[run.id]
    holder.join()
    assert (renewal.is_ours, renewal.is_renewed) == (True, True)
    assert lease.expires_at_monotonic > 0
    expires = run.info().lease_expires_at
    assert expires is not None
    assert expires > now + well.lease
    well.close()
