"""Stepwell: one worker with n threads."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from sqlalchemy import select

from bench.systems.base import STEPS, Counts, Unfinished, tally
from bench.systems.copies import Copied, copy_run
from bench.systems.loops import EVERY, Item, note_on, open_engine
from stepwell import RunState, Stepwell, Worker, Workflow, resumable_step, step

__all__ = ["StepwellLoop", "StepwellSystem"]

_MODE = "worker"
_PATIENCE_SECONDS = 120.0
_UNFINISHED = " + ".join(
    f"(SELECT count(*) FROM stepwell_runs WHERE {column} IS NOT NULL)"
    for column in ("lane", "wake_at", "lease_expires_at")
)
_COUNTS = (
    "SELECT (SELECT count(*) FROM stepwell_runs WHERE state = 'completed'), "
    "(SELECT count(*) FROM stepwell_step_executions WHERE kind = 'step' AND state = 'completed')"
)


class Ten(Workflow):
    """Ten steps that do nothing."""

    for _number in range(1, STEPS + 1):

        @step(name=f"step_{_number:02}")
        def nothing(self) -> None:
            tally.begin()


class Sleeper(Workflow):
    """One step that does nothing, at the instant that the start names."""

    @step(wait_until=lambda self: self.args["due"])
    def rise(self) -> None:
        tally.begin()


class Notes(Workflow):
    """The loop of (f), which goes on from its last checkpoint wherever it was interrupted."""

    @resumable_step(checkpoint_every=EVERY)
    def write(self) -> None:
        tally.begin()
        for item in self.cursor.iterate(select(Item)):
            self.session.add(note_on(item))


class StepwellSystem:
    """Stepwell on PostgreSQL or SQLite."""

    def __init__(self, url: str) -> None:
        self._path = url.removeprefix("sqlite:///") if url.startswith("sqlite:") else None
        self._url = url
        self._well = Stepwell(url.replace("postgresql:", "postgresql+psycopg:"))
        self._worker: Worker | None = None
        self._connection: Any = None

    def modes(self, threads: int) -> Sequence[str]:
        return (_MODE,)

    def create(self) -> None:
        self._well.migrate()

    def prepare(self, runs: int, mode: str) -> None:
        self.start_bulk(runs)

    def work(self, threads: int, mode: str) -> None:
        self._worker = Worker(self._well, threads=threads)
        self._worker.start()

    def rest(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def unfinished(self) -> int:
        return int(self._ask(f"SELECT {_UNFINISHED}")[0])

    def counts(self) -> Counts:
        return Counts(*self._ask(_COUNTS))

    def start(self) -> None:
        Ten.start()

    def start_bulk(self, runs: int) -> None:
        Ten.start_many({} for _ in range(runs))

    def listen(self) -> None:
        self.work(4, _MODE)

    def start_idle(self) -> None:
        self.start()

    def waking_mode(self, threads: int) -> str:
        return _MODE

    def park(self, sleepers: int, due: float) -> None:
        """Started and parked for real: a worker takes up each one and finds that it has to wait."""
        instant = datetime.fromtimestamp(due, UTC)
        Sleeper.start_many({"due": instant} for _ in range(sleepers))
        self.work(16, _MODE)
        parked = "SELECT count(*) FROM stepwell_runs WHERE wake_at IS NOT NULL"
        while self._ask(parked)[0] < sleepers and time.time() < due:
            time.sleep(0.05)
        self.rest()

    def seed(self, runs: int) -> None:
        self.start_bulk(1)
        self.work(1, _MODE)
        while self.unfinished():
            time.sleep(0.01)
        self.rest()
        run = self._ask("SELECT id FROM stepwell_runs")[0]
        # Ordered by time, as the ones that it makes.
        if self._path:
            made = "printf('00000000000070008000%012x', n)"
        else:
            made = "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
        tables = [
            (Copied("stepwell_runs", "id", {"id": made}), run),
            (Copied("stepwell_step_executions", "run_id", {"run_id": made}), run),
        ]
        copy_run(self._database(), tables, runs - 1)

    def close(self) -> None:
        self._well.close()
        if self._connection is not None:
            self._connection.close()

    def _ask(self, question: str) -> Any:
        connection = self._database()
        row = connection.execute(question).fetchone()
        connection.commit()
        return row

    def _database(self) -> Any:
        if self._connection is None:
            self._connection = sqlite3.connect(self._path) if self._path else psycopg.connect(self._url)
        return self._connection


class StepwellLoop(StepwellSystem):
    """One resumable step, driven by a worker with one thread."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.engine = open_engine(url)

    def go(self) -> float:
        tally.expect(1)
        run = Notes.start()
        try:
            self.work(1, _MODE)
            tally.wait(_PATIENCE_SECONDS)
            while self.unfinished():
                time.sleep(0.005)
            seconds = time.perf_counter() - tally.first_at
        finally:
            self.rest()
        if run.state is not RunState.COMPLETED:
            raise Unfinished(f"the run is {run.state}")
        return seconds

    def close(self) -> None:
        self.engine.dispose()
        super().close()
