"""The journal writes of a step through the driver alone: what the bare limit is made of."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg

from bench.systems.base import STEPS

__all__ = ["NAMES", "OWNER", "Entry", "Group", "Journal", "PostgreSQLJournal", "SQLiteJournal"]

NAMES = [f"step_{number:02}" for number in range(1, STEPS + 1)]
OWNER = "bench-host:4711:worker"

_COLUMNS = "run_id, position, name, kind, attempt, state, outcome, result, started_at, finished_at, worker"


@dataclass(frozen=True, slots=True)
class Entry:
    """One step's end, as its thread hands it over; ids are as the driver takes them."""

    run: Any
    token: Any
    position: int
    started_at: int
    finished_at: int


class Journal(Protocol):
    """Writes entries, each fenced by its run's lease token, through a connection of its own."""

    def write(self, entries: Sequence[Entry]) -> int:
        """Make them durable in one commit; how many were accepted."""

    def close(self) -> None: ...


class PostgreSQLJournal:
    """One prepared statement in autocommit, for one entry or for many."""

    _ONE = f"""
        WITH accepted AS (
            UPDATE stepwell_runs SET current_step = %s, recoveries = 0
            WHERE id = %s AND lease_token = %s AND state = 'running' RETURNING id)
        INSERT INTO stepwell_step_executions ({_COLUMNS})
        SELECT id, %s, %s, 'step', 1, 'completed', 'success', 'null', %s, %s, %s FROM accepted"""
    _MANY = f"""
        WITH entry AS (
            SELECT * FROM unnest(%s::uuid[], %s::uuid[], %s::int[], %s::text[], %s::bigint[], %s::bigint[])
            AS _(run_id, token, position, name, started_at, finished_at)
        ), accepted AS (
            UPDATE stepwell_runs run SET current_step = entry.name, recoveries = 0 FROM entry
            WHERE run.id = entry.run_id AND run.lease_token = entry.token AND run.state = 'running'
            RETURNING run.id)
        INSERT INTO stepwell_step_executions ({_COLUMNS})
        SELECT run_id, position, name, 'step', 1, 'completed', 'success', 'null', started_at, finished_at, %s
        FROM entry JOIN accepted ON accepted.id = entry.run_id"""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        # The planner takes an array for a hundred rows and would scan the table for them.
        for method in ("seqscan", "hashjoin", "mergejoin"):
            self._connection.execute(f"SET enable_{method} = off")
        self._cursor = self._connection.cursor()

    def write(self, entries: Sequence[Entry]) -> int:
        if len(entries) == 1:
            (one,) = entries
            name = NAMES[one.position]
            values = (name, one.run, one.token, one.position, name, one.started_at, one.finished_at, OWNER)
            return self._cursor.execute(self._ONE, values).rowcount
        columns = (
            [entry.run for entry in entries],
            [entry.token for entry in entries],
            [entry.position for entry in entries],
            [NAMES[entry.position] for entry in entries],
            [entry.started_at for entry in entries],
            [entry.finished_at for entry in entries],
            OWNER,
        )
        return self._cursor.execute(self._MANY, columns).rowcount

    def close(self) -> None:
        self._connection.close()


class SQLiteJournal:
    """Two statements for each entry, in one transaction whose commit waits for the disk."""

    _GUARD = (
        "UPDATE stepwell_runs SET current_step = ?, recoveries = 0 "
        "WHERE id = ? AND lease_token = ? AND state = 'running'"
    )
    _INSERT = (
        f"INSERT INTO stepwell_step_executions ({_COLUMNS}) "
        "VALUES (?, ?, ?, 'step', 1, 'completed', 'success', 'null', ?, ?, ?)"
    )

    def __init__(self, path: str, gate: threading.Lock) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        # WAL with FULL: each commit waits until the log is on the disk.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._cursor = self._connection.cursor()
        # A file has one writer; threads that queue here do not have to poll for it.
        self._gate = gate

    def write(self, entries: Sequence[Entry]) -> int:
        execute, accepted = self._cursor.execute, 0
        with self._gate:
            execute("BEGIN IMMEDIATE")
            for one in entries:
                name = NAMES[one.position]
                if execute(self._GUARD, (name, one.run, one.token)).rowcount == 1:
                    row = (one.run, one.position, name, one.started_at, one.finished_at, OWNER)
                    execute(self._INSERT, row)
                    accepted += 1
            execute("COMMIT")
        return accepted

    def close(self) -> None:
        self._connection.close()


class _Ticket:
    """A thread's place in the queue: it is woken with an answer, or to lead the next commit."""

    __slots__ = ("accepted", "entry", "turn")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.accepted: bool | None = None
        self.turn = threading.Lock()
        self.turn.acquire()


class Group:
    """Lets entries that arrive during a commit share the next one; a thread that finds nobody at it leads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._queue: deque[_Ticket] = deque()
        self._is_led = False

    def write(self, entry: Entry) -> bool:
        """Return once the entry is durable; False if it was refused."""
        ticket = _Ticket(entry)
        with self._lock:
            self._queue.append(ticket)
            leads, self._is_led = not self._is_led, True
        if not leads:
            ticket.turn.acquire()
        if ticket.accepted is None:
            self._lead()
        return bool(ticket.accepted)

    def _lead(self) -> None:
        """Commit all that is queued, the leader's entry first, then wake the next leader and the others."""
        with self._lock:
            group, self._queue = self._queue, deque()
        accepted = False
        try:
            accepted = self._journal.write([ticket.entry for ticket in group]) == len(group)
        finally:
            with self._lock:
                self._is_led = bool(self._queue)
                if self._queue:
                    self._queue[0].turn.release()
            for ticket in group:
                ticket.accepted = accepted
                ticket.turn.release()
