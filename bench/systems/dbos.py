"""DBOS, in the modes that its documentation offers for synchronous workflows.

*queue*: workflows are enqueued and a worker takes them, with twice as many claimed as there are threads, so
that none of them waits for the next poll. *direct*: ``start_workflow`` hands them to the process's threads.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSClient

from bench.systems.base import STEPS, Counts, Unfinished, tally
from bench.systems.copies import Copied, copy_run

__all__ = ["Dbos"]

_QUEUE = "bench"
_POLL_SECONDS = 0.05
_CHUNK = 500


@DBOS.step()
def step() -> None:
    tally.begin()


@DBOS.workflow()
def ten() -> None:
    for _ in range(STEPS):
        step()


@DBOS.workflow()
def sleeper() -> None:
    step()


class Dbos:
    """DBOS on PostgreSQL or SQLite."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._path = url.removeprefix("sqlite:///") if url.startswith("sqlite:") else None
        self._schema = "" if self._path else "dbos."
        self._waiting = 0
        self._own_client: DBOSClient | None = None
        self._connection: Any = None
        self._is_launched = False

    def modes(self, threads: int) -> Sequence[str]:
        return ("queue", "direct")

    def create(self) -> None:
        if self._path:
            # Its default is a rollback journal; WAL is quicker, and as durable since synchronous stays FULL.
            connection = sqlite3.connect(self._path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.close()
        self._launch(1)
        self.rest()

    def prepare(self, runs: int, mode: str) -> None:
        if mode == "direct":
            self._waiting = runs
        else:
            self.start_bulk(runs)

    def work(self, threads: int, mode: str) -> None:
        self._launch(threads)
        for _ in range(self._waiting):
            DBOS.start_workflow(ten)
        self._waiting = 0

    def rest(self) -> None:
        if self._is_launched:
            self._is_launched = False
            DBOS.destroy()

    def unfinished(self) -> int:
        return int(
            self._ask("count(*)", "workflow_status WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED')")
        )

    def counts(self) -> Counts:
        over = self._ask("count(*)", "workflow_status WHERE status = 'SUCCESS'")
        return Counts(int(over), int(self._ask("count(*)", "operation_outputs")))

    def start(self) -> None:
        self._client().enqueue({"workflow_name": ten.__qualname__, "queue_name": _QUEUE})

    def start_bulk(self, runs: int) -> None:
        client = self._client()
        engine = sqlalchemy.create_engine(self._url.replace("postgresql:", "postgresql+psycopg:"))
        for first in range(0, runs, _CHUNK):
            with engine.begin() as connection:
                for _ in range(min(_CHUNK, runs - first)):
                    client.enqueue_in_transaction(
                        connection, {"workflow_name": ten.__qualname__, "queue_name": _QUEUE}
                    )
        engine.dispose()

    def listen(self) -> None:
        self._launch(2)

    def start_idle(self) -> None:
        DBOS.start_workflow(ten)

    def waking_mode(self, threads: int) -> str:
        return "queue"

    def park(self, sleepers: int, due: float) -> None:
        self._client().enqueue(
            {
                "workflow_name": sleeper.__qualname__,
                "queue_name": _QUEUE,
                "delay_seconds": due - time.time(),
            }
        )
        self._copy(sleepers - 1)

    def seed(self, runs: int) -> None:
        tally.expect(STEPS)
        self.prepare(1, "queue")
        self.work(1, "queue")
        tally.wait(30)
        while self.unfinished():
            time.sleep(0.01)
        self.rest()
        self._copy(runs - 1)

    def close(self) -> None:
        if self._own_client is not None:
            self._own_client.destroy()
        if self._connection is not None:
            self._connection.close()

    def _launch(self, threads: int) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self._url,
                "log_level": "ERROR",
                "max_executor_threads": threads,
                "sys_db_pool_size": threads + 8,
            }
        )
        DBOS.launch()
        self._is_launched = True
        DBOS.register_queue(
            _QUEUE,
            worker_concurrency=2 * threads,
            polling_interval_sec=_POLL_SECONDS,
            on_conflict="always_update",
        )

    def _client(self) -> DBOSClient:
        if self._own_client is None:
            self._own_client = DBOSClient(system_database_url=self._url, application_name="bench")
        return self._own_client

    def _copy(self, copies: int) -> None:
        run = self._ask("workflow_uuid", "workflow_status")
        if run is None:
            raise Unfinished("there is no run to copy")
        if self._path:
            # Scattered over the index, as the random ones that it makes.
            made = "printf('%08x-0000-4000-8000-%012x', (n * 2654435761) % 4294967296, n)"
        else:
            made = (
                "lpad(to_hex(mod(n::bigint * 2654435761, 4294967296)), 8, '0') || '-0000-4000-8000-' "
                "|| lpad(to_hex(n), 12, '0')"
            )
        names = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs")
        key = "workflow_uuid"
        tables = [(Copied(self._schema + name, key, {key: made}), run) for name in names]
        copy_run(self._database(), tables, copies)

    def _ask(self, what: str, source: str) -> Any:
        connection = self._database()
        row = connection.execute(f"SELECT {what} FROM {self._schema}{source}").fetchone()
        connection.commit()
        return row and row[0]

    def _database(self) -> Any:
        if self._connection is None:
            self._connection = sqlite3.connect(self._path) if self._path else psycopg.connect(self._url)
        return self._connection
