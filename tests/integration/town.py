"""A small application: people, workflows about them, and an engine beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Engine, String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from stepwell import ManualClock, Run, RunState, Stepwell, Workflow, step
from stepwell.engine.activation import activate
from stepwell.engine.leases import Lease
from stepwell.engine.store_journal import StoreJournal
from stepwell.entries import Settlement
from stepwell.ids import new_token
from stepwell.states import TERMINAL
from stepwell.store.journal import histories
from stepwell.store.recovery import recover_expired
from stepwell.store.rows import RunRow
from tests.integration.store.rig import quiet_place

__all__ = [
    "HOUR",
    "NOON",
    "SECOND",
    "Base",
    "Forever",
    "Greet",
    "Parcel",
    "Person",
    "Plain",
    "Town",
    "town_on",
]

NOON: Final = datetime(2030, 6, 1, 12, 0, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
HOUR: Final = timedelta(hours=1)


class Base(DeclarativeBase):
    """The application's tables."""


class Person(Base):
    """Somebody whom workflows are about."""

    __tablename__ = "town_people"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40))


class Greet(Workflow[Person]):
    """About a person: one open run for each."""

    workflow_name = "town.Greet"

    @step
    def hello(self) -> None: ...

    @step
    def goodbye(self) -> None: ...


class Parcel(Workflow):
    """Unique by one of its arguments."""

    workflow_name = "town.Parcel"
    unique_by = "number"
    queue = "parcels"
    priority = 50

    @step
    def send(self) -> None: ...


class Forever(Workflow):
    """An identity is used once."""

    workflow_name = "town.Forever"
    unique_by = "number"
    unique_for = "ever"

    @step
    def send(self) -> None: ...


class Plain(Workflow):
    """Without an identity: any number of runs."""

    workflow_name = "town.Plain"

    @step
    def first(self) -> None: ...

    @step
    def second(self) -> None: ...


class Town:
    """The application's engine and Stepwell's, on one database.

    Args:
        url: The database.
    """

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(NOON)
        self.well = Stepwell(url, clock=self.clock, default=False)
        self.engine: Engine = create_engine(url)

    def session(self, **options: Any) -> Session:
        return Session(self.engine, **options)

    def person(self, name: str = "Ada") -> Person:
        """Somebody who is in the database, as an object without a session."""
        with Session(self.engine, expire_on_commit=False) as session:
            person = Person(name=name)
            session.add(person)
            session.commit()
        return person

    def count(self) -> int:
        return self.well.runs().count()

    def claim(self, run: Run) -> RunRow:
        """Drive this run from now on, as a worker does."""
        well, now = self.well, self.clock.now()
        row = well.database.retrying(
            lambda connection: well.claims.claim_one(
                connection, run.id, owner="first", token=new_token(), now=now, until=now + well.lease
            )
        )
        assert row is not None, f"{run.explain()}"
        return row

    def drive(self, row: RunRow, state: RunState | None = None) -> None:
        """Drive a claimed run as a worker does; with a state, leave it there instead."""
        token: Any = row.lease_token
        lease = Lease(row.id, token, self.clock.monotonic() + self.well.lease.total_seconds())
        self.well.leases.add(lease)
        if state is None:
            with self.well.database.read() as connection:
                known = histories(connection, [row.id])[row.id]
            assert activate(self.well, row, lease, quiet_place(), known) is not None
            return
        wake_at = self.clock.now() + HOUR if state is RunState.WAITING else None
        settlement = Settlement(state, wake_at=wake_at, frees_identity=state in TERMINAL)
        journal = StoreJournal(self.well, lease, quiet_place(), (), None, True)
        assert journal.write((), current_step=row.current_step, settlement=settlement).accepted

    def bring(self, run: Run, state: RunState) -> None:
        """Bring a run that is due into a state."""
        if state is RunState.READY:
            return
        row = self.claim(run)
        if state is not RunState.RUNNING:
            self.drive(row, state)

    def promote(self) -> None:
        """Look after the sleepers, as a worker does."""
        self.well.database.retrying(lambda connection: self.well.claims.promote(connection, self.clock.now()))

    def recover(self) -> None:
        """Take up what lost workers held, as a worker does."""
        well = self.well
        well.database.retrying(
            lambda connection: recover_expired(
                connection, well.database.dialect, well.now(), max_recoveries=5, random=lambda: 0.5
            )
        )


@contextmanager
def town_on(url: str) -> Iterator[Town]:
    town = Town(url)
    yield town
    town.well.close()
    town.engine.dispose()
