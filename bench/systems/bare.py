"""The limit: the same journal writes through the driver alone, without claims, objects or an engine.

Each step inserts its journal row and updates its run, both fenced by the lease token, and waits until they
are durable. *direct* commits each step by itself; *grouped* lets steps that arrive during a commit share the
next one.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import psycopg
from sqlalchemy import create_engine

from bench.systems.base import STEPS, Counts, tally
from bench.systems.journals import NAMES, OWNER, Entry, Group, Journal, PostgreSQLJournal, SQLiteJournal
from stepwell.ids import new_run_id
from stepwell.store.schema import metadata

__all__ = ["Bare"]

_RUN = (
    "INSERT INTO stepwell_runs (id, workflow, version, state, args, queue, priority, lease_expires_at, "
    "lease_token, lease_owner, wakeups, recoveries, created_at, started_at, changed_at) "
    f"VALUES (%s, 'Ten', 1, 'running', '{{}}', 'default', 100, %s, %s, '{OWNER}', 0, 0, %s, %s, %s)"
)
_COUNTS = (
    f"SELECT (SELECT count(*) FROM stepwell_runs WHERE current_step = '{NAMES[-1]}'), "
    "(SELECT count(*) FROM stepwell_step_executions)"
)


class Bare:
    """Threads that write journals, on PostgreSQL or SQLite."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._path = url.removeprefix("sqlite:///") if url.startswith("sqlite:") else None
        self._ready: deque[tuple[Any, Any]] = deque()
        self._threads: list[threading.Thread] = []
        self._journals: list[Journal] = []
        self._errors: list[BaseException] = []

    def modes(self, threads: int) -> Sequence[str]:
        return ("direct",) if threads == 1 else ("direct", "grouped")

    def create(self) -> None:
        engine = create_engine(self._url.replace("postgresql:", "postgresql+psycopg:"))
        metadata.create_all(engine)
        engine.dispose()

    def prepare(self, runs: int, mode: str) -> None:
        now = time.time_ns() // 1000
        pairs = [(new_run_id(), uuid4()) for _ in range(runs)]
        if self._path:
            # SQLite stores an id as its 32 hexadecimal digits.
            keys: list[tuple[Any, Any]] = [(run.hex, token.hex) for run, token in pairs]
        else:
            keys = list(pairs)
        rows = [(run, now + 30_000_000, token, now, now, now) for run, token in keys]
        if self._path:
            with sqlite3.connect(self._path) as connection:
                connection.executemany(_RUN.replace("%s", "?"), rows)
            connection.close()
        else:
            with psycopg.connect(self._url) as session, session.cursor() as cursor:
                cursor.executemany(_RUN, rows)
        self._ready.extend(keys)

    def work(self, threads: int, mode: str) -> None:
        gate = threading.Lock()
        self._journals = [self._journal(gate) for _ in range(threads if mode == "direct" else 1)]
        if mode == "direct":
            writers = [_alone(journal) for journal in self._journals]
        else:
            writers = [Group(self._journals[0]).write] * threads
        self._threads = [threading.Thread(target=self._drive, args=(writer,)) for writer in writers]
        for thread in self._threads:
            thread.start()

    def rest(self) -> None:
        for thread in self._threads:
            thread.join()
        for journal in self._journals:
            journal.close()
        if self._errors:
            raise self._errors[0]

    def unfinished(self) -> int:
        return sum(thread.is_alive() for thread in self._threads)

    def counts(self) -> Counts:
        if self._path:
            connection = sqlite3.connect(self._path)
            row = connection.execute(_COUNTS).fetchone()
            connection.close()
        else:
            with psycopg.connect(self._url) as session:
                row = session.execute(_COUNTS).fetchone()
        return Counts(*row)

    def close(self) -> None:
        """Nothing is kept open."""

    def _journal(self, gate: threading.Lock) -> Journal:
        return SQLiteJournal(self._path, gate) if self._path else PostgreSQLJournal(self._url)

    def _drive(self, write: Callable[[Entry], bool]) -> None:
        """Take runs until none is left, and do their steps."""
        try:
            while self._ready:
                try:
                    run, token = self._ready.popleft()
                except IndexError:  # another thread took the last one
                    return
                for position in range(STEPS):
                    started_at = time.time_ns() // 1000
                    tally.begin()
                    if not write(Entry(run, token, position, started_at, time.time_ns() // 1000)):
                        raise RuntimeError(f"the guard refused step {position} of run {run}")
        except BaseException as error:
            self._errors.append(error)


def _alone(journal: Journal) -> Callable[[Entry], bool]:
    return lambda entry: journal.write([entry]) == 1
