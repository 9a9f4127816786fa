"""Absurd, with one worker or several in the process.

An Absurd client has one connection, which its threads take in turns. *one worker* is
``start_worker(concurrency=n)``, *a worker per thread* is n clients with a connection each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from absurd_sdk import Absurd as Client
from absurdctl import BUNDLED_SCHEMA_SQL  # type: ignore[import-untyped]  # ships no types

from bench.systems.base import STEPS, Counts, tally
from bench.systems.copies import Copied, copy_run

__all__ = ["Absurd"]

_NAMES = [f"step_{number:02}" for number in range(1, STEPS + 1)]
_CHUNK = 500
_POLL_SECONDS = 0.05
_IDLE_POLL_SECONDS = 0.01


def ten(params: Any, context: Any) -> None:
    for name in _NAMES:
        context.step(name, tally.begin)


def sleeper(params: Any, context: Any) -> None:
    context.sleep_until("nap", datetime.fromtimestamp(params["due"], UTC))
    context.step(_NAMES[0], tally.begin)


class Absurd:
    """Absurd on PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = psycopg.connect(url, autocommit=True)
        self._client = self._join(self._connection)
        self._workers: list[Client] = []
        self._threads: list[threading.Thread] = []

    def modes(self, threads: int) -> Sequence[str]:
        return ("one worker", "a worker per thread") if threads > 1 else ("one worker",)

    def create(self) -> None:
        self._connection.execute(BUNDLED_SCHEMA_SQL)
        self._client.create_queue()

    def prepare(self, runs: int, mode: str) -> None:
        self.start_bulk(runs)

    def work(self, threads: int, mode: str) -> None:
        workers = 1 if mode == "one worker" else threads
        for _ in range(workers):
            self._hire(poll_interval=_POLL_SECONDS, concurrency=threads // workers)

    def rest(self) -> None:
        for worker in self._workers:
            worker.stop_worker()
        for thread in self._threads:
            thread.join()
        for worker in self._workers:
            worker.close()
        self._workers, self._threads = [], []

    def unfinished(self) -> int:
        return int(self._ask("count(*)", "r_default WHERE state IN ('pending', 'running', 'sleeping')"))

    def counts(self) -> Counts:
        over = self._ask("count(*)", "t_default WHERE state = 'completed'")
        return Counts(int(over), int(self._ask("count(*)", "c_default WHERE checkpoint_name LIKE 'step%'")))

    def start(self) -> None:
        self._client.spawn("ten", {})

    def start_bulk(self, runs: int) -> None:
        for first in range(0, runs, _CHUNK):
            with self._connection.transaction():
                for _ in range(min(_CHUNK, runs - first)):
                    self._client.spawn("ten", {})

    def listen(self) -> None:
        self._hire(poll_interval=_IDLE_POLL_SECONDS, concurrency=1)

    def start_idle(self) -> None:
        self.start()

    def waking_mode(self, threads: int) -> str:
        return "a worker per thread"

    def park(self, sleepers: int, due: float) -> None:
        self._client.spawn("sleeper", {"due": due})
        self._hire(poll_interval=_POLL_SECONDS, concurrency=1)
        while self._ask("state", "r_default") != "sleeping":
            time.sleep(0.01)
        self.rest()
        self._copy(sleepers - 1)

    def seed(self, runs: int) -> None:
        self._client.spawn("ten", {})
        self._hire(poll_interval=_POLL_SECONDS, concurrency=1)
        while self.unfinished():
            time.sleep(0.01)
        self.rest()
        self._copy(runs - 1)

    def close(self) -> None:
        self._connection.close()

    def _join(self, target: Any) -> Client:
        client = Client(target)
        client.register_task("ten")(ten)
        client.register_task("sleeper")(sleeper)
        return client

    def _hire(self, **options: Any) -> None:
        worker = self._join(self._url)
        thread = threading.Thread(target=worker.start_worker, kwargs=options)
        self._workers.append(worker)
        self._threads.append(thread)
        thread.start()

    def _copy(self, copies: int) -> None:
        task, run = (self._ask(column, "r_default") for column in ("task_id", "run_id"))
        # Ordered by time, as the ones that it makes.
        task_id, run_id = (
            f"('00000000-000{family}-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid" for family in (1, 2)
        )
        tables = [
            (Copied("absurd.t_default", "task_id", {"task_id": task_id, "last_attempt_run": run_id}), task),
            (Copied("absurd.r_default", "run_id", {"task_id": task_id, "run_id": run_id}), run),
            (Copied("absurd.c_default", "task_id", {"task_id": task_id, "owner_run_id": run_id}), task),
        ]
        with psycopg.connect(self._url) as connection:
            copy_run(connection, tables, copies)

    def _ask(self, what: str, source: str) -> Any:
        row = self._connection.execute(f"SELECT {what} FROM absurd.{source}").fetchone()
        return row and row[0]
