"""Where runs are interrupted: an engine on a real database, and a journal at whose writes workers die.

A worker dies before a write or after it: its lease is left behind, and what it does on its way out is done by nobody.
People give their commands right after a write, so that with a crash and without one they come at the same place of the
run's history; the write's own answer tells of them, as that of a write which came a moment later would.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import accumulate
from typing import Any, Final

from hypothesis import strategies as st
from sqlalchemy import Engine, String, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from stepwell import ManualClock, Run, Stepwell
from stepwell.engine.activation import activate
from stepwell.engine.step_executions import stored_journal
from stepwell.engine.store_journal import StoreJournal
from stepwell.entries import Settlement, Verdict
from stepwell.execution.suspension import LeaseLost
from stepwell.states import LIVE
from stepwell.store.rows import ExecutionRow
from stepwell.store.schema import metadata
from stepwell.worker.heartbeat import Heartbeat
from tests.support.driving import Driver

__all__ = ["CRASHES", "ITEMS", "Boundary", "Died", "Item", "Stage", "stage_on", "write_line"]

_MOST: Final = 300
ITEMS: Final = 8

Boundary = Callable[[str, Settlement | None], None]
"""Told "before", "with" and "after" each durable write, with the settlement that it makes; may raise ``Died``."""


def _places(gaps: list[tuple[int, str]]) -> frozenset[tuple[int, str]]:
    numbers = accumulate(gap for gap, _ in gaps)
    return frozenset((number, moment) for number, (_, moment) in zip(numbers, gaps, strict=True))


CRASHES = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from(["before", "after"])), min_size=1, max_size=4
).map(_places)
"""Before or after which writes a worker dies; often soon after one that has died already."""


class Base(DeclarativeBase):
    """The application's tables."""


class Item(Base):
    """Something to go through; three of a rank, the highest rank first."""

    __tablename__ = "road_items"

    id: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int]


class Line(Base):
    """What a step has written."""

    __tablename__ = "road_lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(String(40))
    text: Mapped[str] = mapped_column(String(80))


class Died(LeaseLost):
    """The worker is dead from here on."""


def write_line(workflow: Any, text: str) -> None:
    """What a body writes through its session."""
    workflow.session.execute(insert(Line).values(run=str(workflow.run_id), text=text))


class WatchedJournal(StoreJournal):
    """A run's journal that tells when it writes."""

    def __init__(self, boundary: Boundary, run: Run, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._boundary = boundary
        self._run = run

    def write(self, executions: Any, *, settlement: Settlement | None = None, **more: Any) -> Verdict:
        if self._lease.is_lost:
            raise LeaseLost
        self._reach("before", settlement)
        verdict = super().write(executions, settlement=settlement, **more)
        if verdict.accepted:
            # As somebody else: what this thread does belongs to the step that it is in.
            contextvars.Context().run(self._reach, "with", settlement)
            if settlement is None:
                row = self._run.info()
                verdict = replace(verdict, wakeups=row.wakeups, stop_request=row.stop_request)
                self._lease.stop_requested = row.stop_request is not None
            self._reach("after", settlement)
        return verdict

    def _reach(self, moment: str, settlement: Settlement | None) -> None:
        try:
            self._boundary(moment, settlement)
        except Died:
            self._lease.is_lost = True
            raise


class Stage:
    """An engine and a worker's hands.

    Args:
        well: The engine, on a clock that is moved.
        driver: The hands.
    """

    def __init__(self, well: Stepwell, driver: Driver) -> None:
        self.well = well
        self._driver = driver
        self._heartbeat = Heartbeat(well, driver._claimer._contact, "by hand")

    def clear(self) -> None:
        """Forget all runs; what an example left behind that failed must not be driven with the next one."""
        with self.well.database.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())

    def show(self) -> None:
        """A heartbeat finds the body running, and makes it visible."""
        self._driver.clock.travel(timedelta(seconds=self._heartbeat.interval))
        self._heartbeat.beat()

    def drive(self, run: Run, boundary: Boundary) -> None:
        """Drive the run until it is over or waits for somebody; time passes, and dead workers are replaced."""
        for _ in range(_MOST):
            claimed = self._driver.claim()
            if claimed:
                (each,) = claimed
                make = partial(WatchedJournal, boundary, run)
                activate(self.well, each.run, each.lease, self._driver._place, each.history, make)
                continue
            row = run.info()
            instant = row.wake_at or row.lease_expires_at if row.state in LIVE else None
            if instant is not None:
                self._driver.clock.travel(max(timedelta(), instant - self.well.now()))
            elif row.state != "ready":
                return
        raise AssertionError(f"does not come to an end: {run.explain()}")

    def rows(self, run: Run) -> list[ExecutionRow]:
        """The run's journal as it is stored."""
        return stored_journal(self.well, run.id)

    def lines(self, run: Run) -> list[str]:
        """What the run's steps have committed, in the order of writing."""
        question = select(Line.text).where(Line.run == str(run.id)).order_by(Line.id)
        with self.well.database.engine.connect() as connection:
            return list(connection.scalars(question))


@contextmanager
def stage_on(engine: Engine) -> Iterator[Stage]:
    """A stage on a database that has Stepwell's tables."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(Item), [{"id": n, "rank": -(n // 3)} for n in range(1, ITEMS + 1)])
    url = engine.url.render_as_string(hide_password=False)
    well = Stepwell(url, clock=ManualClock(), default=False)
    well.chance = lambda: 0.5
    try:
        with Driver(well) as driver:
            yield Stage(well, driver)
    finally:
        well.close()
        Base.metadata.drop_all(engine)
