"""What a test of worker processes sees: an engine, the books of the application, and a fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import NullPool, create_engine, select
from sqlalchemy.orm import Session

from stepwell import Run, Stepwell, Workflow
from stepwell.states import RunState
from stepwell.store.rows import ExecutionRow
from tests.chaos.errands import Account, Books, Entry
from tests.chaos.fleet import Fleet, Options, WorkerProcess, until

__all__ = ["SERVERS", "Scene", "Traced"]

SERVERS = [pytest.param(name, marks=pytest.mark.servers) for name in ("postgresql", "mariadb")]
"""For ``product``: those that are reached over a network."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A body that began."""

    account: str
    step: str
    process: int
    at: float


class Scene:
    """One database with its workers.

    Args:
        url: A database with Stepwell's tables.
        folder: For logs and the trace.
        lease: Of the engine that the test itself uses.
    """

    def __init__(self, url: str, folder: Path, lease: timedelta = timedelta(seconds=2)) -> None:
        self.url = url
        self.fleet = Fleet(folder)
        self.well = Stepwell(url, lease=lease, default=False)
        self._engine = create_engine(self.well.database.engine.url, poolclass=NullPool)
        self._accounts = 0

    def __enter__(self) -> Scene:
        with ExitStack() as stack:
            stack.callback(self._engine.dispose)
            stack.callback(self.well.close)
            stack.enter_context(self.fleet)
            Books.metadata.create_all(self._engine)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    # -- work ---------------------------------------------------------------------------------------------------

    def start(self, workflow: type[Workflow[Any]], *, queue: str = "default", **args: Any) -> Run:
        """Start a run with an account of its own, named by its number."""
        account = self._open_account()
        run: Run = workflow.with_options(engine=self.well, queue=queue).start(account=account, **args)
        return run

    def start_many(self, workflow: type[Workflow[Any]], count: int, **args: Any) -> list[Run]:
        calls = [workflow.with_args(account=self._open_account(), **args) for _ in range(count)]
        runs: list[Run] = workflow.with_options(engine=self.well).start_many(calls)
        return runs

    def _open_account(self) -> str:
        self._accounts += 1
        name = f"account-{self._accounts}"
        with Session(self._engine) as session, session.begin():
            session.add(Account(name=name, balance=0))
        return name

    def worker(self, url: str | None = None, name: str = "worker", **options: Any) -> WorkerProcess:
        """Start a worker process on this database, or by another way to it."""
        return self.fleet.start(url or self.url, Options(**options), name)

    # -- what happened ------------------------------------------------------------------------------------------

    def ledger(self) -> Counter[tuple[str, str]]:
        """How often each step of each account was committed."""
        return Counter((entry.account, entry.step) for entry in self.entries())

    def entries(self) -> list[Entry]:
        with Session(self._engine) as session:
            return list(session.scalars(select(Entry).order_by(Entry.id)))

    def balance(self, account: str) -> int:
        with Session(self._engine) as session:
            return session.get_one(Account, account).balance

    def traced(self) -> list[Traced]:
        """The bodies that began, in their order."""
        if not self.fleet.trace.exists():
            return []
        rows = [line.split() for line in self.fleet.trace.read_text().splitlines()]
        return [Traced(account, step, int(process), float(at)) for account, step, process, at in rows]

    def bodies(self) -> Counter[tuple[str, str]]:
        """How often each body began."""
        return Counter((each.account, each.step) for each in self.traced())

    def journal(self, run: Run) -> list[ExecutionRow]:
        return list(run.steps)

    def done(self, run: Run) -> list[str]:
        """The steps that the journal says are completed, in order."""
        return [row.name for row in run.steps if row.state == "completed"]

    # -- waiting ------------------------------------------------------------------------------------------------

    def wait_until_completed(self, runs: Iterable[Run], *, within: float = 60) -> None:
        wanted = {run.id for run in runs}
        try:
            until(
                f"{len(wanted)} runs completed",
                lambda: wanted <= self._ids(RunState.COMPLETED),
                within=within,
            )
        except AssertionError:
            for row in self.well.runs().infos():
                print(row.id, row.state, row.reason, row.current_step, row.error_message)
            raise

    def wait_until_state(self, run: Run, state: RunState, *, within: float = 30) -> None:
        until(f"{run} is {state}", lambda: run.state is state, within=within)

    def wait_until_body(self, account: str, name: str, *, within: float = 30) -> Traced:
        """Wait until a body has begun."""

        def seen() -> Sequence[Traced]:
            return [each for each in self.traced() if (each.account, each.step) == (account, name)]

        return until(f"{name} of {account} has begun", seen, within=within)[0]

    def _ids(self, state: RunState) -> set[UUID]:
        return {row.id for row in self.well.runs().in_state(state).infos()}
