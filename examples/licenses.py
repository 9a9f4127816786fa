"""The life of a license: timers that hang on a date in a record, and move with it."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from examples.outside import Service
from examples.records import License
from stepwell import Run, Workflow, step

mail = Service()
TWO_WEEKS = timedelta(weeks=2)


class LicenseLifecycle(Workflow[License]):
    """One at a time for each license: the hero is the identity.

    ``wait_until=`` is asked again when the run wakes, so a license that was renewed in the meantime waits again.
    """

    on_conflict = "skip"

    def before_expiry(self) -> datetime:
        return self.hero.expires_at - TWO_WEEKS

    @step(wait_until="before_expiry")
    def remind(self) -> None:
        mail("expires in two weeks", self.hero.id)

    @step(wait_until=lambda self: self.hero.expires_at)
    def expire(self) -> None:
        self.hero.state = "expired"

    @step(wait=TWO_WEEKS)
    def revoke(self) -> None:
        self.hero.state = "revoked"


def start_those_that_expire_soon(session: Session, now: datetime) -> list[Run]:
    """The daily starter, for dates that lie years ahead: to run it twice starts nothing anew."""
    soon = select(License).where(License.expires_at < now + timedelta(days=30), License.state == "valid")
    lifecycles = LicenseLifecycle.with_options(session=session)
    return [run for license in session.scalars(soon) if (run := lifecycles.start(license)).created]


def renew(session: Session, license: License, until: datetime) -> Run:
    """The date moves: the old run is canceled, the new one starts, both or neither with the new date."""
    license.expires_at = until
    license.state = "valid"
    return LicenseLifecycle.with_options(session=session, on_conflict="replace").start(license)
