"""The workflows that worker processes drive in these tests, and the books that they keep.

A ledger, written through ``self.session``, says what was committed. A trace, a file that every body appends a line to,
says which bodies ran, committed or not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import String, update
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from stepwell import Workflow, step
from tests.chaos.faults import reach

__all__ = [
    "Account",
    "Books",
    "CalledErrand",
    "Chain",
    "Delayed",
    "Entry",
    "Errand",
    "Family",
    "Innocent",
    "Long",
    "LongAsync",
    "LongInSession",
    "Plain",
    "Poison",
]

TRACE_VARIABLE = "STEPWELL_CHAOS_TRACE"
PACE_VARIABLE = "STEPWELL_CHAOS_PACE"


class Books(DeclarativeBase):
    """The application's tables."""


class Entry(Books):
    """One committed step of one run."""

    __tablename__ = "ledger"

    id: Mapped[int] = mapped_column(primary_key=True)
    account: Mapped[str] = mapped_column(String(64))
    step: Mapped[str] = mapped_column(String(64))
    process: Mapped[int]


class Account(Books):
    """A row that all steps of a run change, so that two of them cannot be at it at the same time."""

    __tablename__ = "accounts"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    balance: Mapped[int]


def trace(workflow: Workflow[Any], name: str) -> None:
    """Note that a body has begun: one line, appended in one system call."""
    line = f"{workflow.args['account']} {name} {os.getpid()} {time.time():.6f}\n"
    file = os.open(Path(os.environ[TRACE_VARIABLE]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def pace() -> float:
    """How slow this worker's bodies are: another one may hurry."""
    return float(os.environ[PACE_VARIABLE])


def dwell(seconds: float) -> None:
    """Take time."""
    time.sleep(seconds * pace())


def hold(gate: str | None) -> None:
    """Stay until the file of this name is there, unless this worker hurries."""
    limit = time.monotonic() + 60
    while gate and pace() and not Path(gate).exists() and time.monotonic() < limit:
        time.sleep(0.02)


def book(workflow: Workflow[Any], name: str) -> None:
    """Enter the step in the ledger; SQL goes out when the step settles."""
    workflow.session.add(Entry(account=workflow.args["account"], step=name, process=os.getpid()))


class Errand(Workflow):
    """Three steps that write through their session, and one that does not."""

    def _do(self, name: str) -> None:
        trace(self, name)
        reach("body.inside")
        book(self, name)
        mine = Account.name == self.args["account"]
        self.session.execute(update(Account).where(mine).values(balance=Account.balance + 1))
        reach("body.in_session")

    @step
    def collect(self) -> None:
        self._do("collect")

    @step
    def pay(self) -> None:
        self._do("pay")

    @step
    def note(self) -> None:
        trace(self, "note")
        hold(self.args.get("gate"))

    @step
    def deliver(self) -> None:
        self._do("deliver")


class CalledErrand(Errand):
    """The same steps, called by ``run()``, which is played again after each loss."""

    def run(self, account: str, gate: str | None = None) -> str:
        self.context["account"] = account
        self.collect()
        self.pay()
        self.note()
        self.deliver()
        return account


class Chain(Workflow):
    """Five short steps, two of which write; no statement of its own before the step settles."""

    for name in ("one", "two", "three", "four", "five"):

        @step(name=name)
        def work(self, name: str = name) -> None:
            trace(self, name)
            if name in ("two", "four"):
                book(self, name)

    del name


class Family(Workflow):
    """Calls three children, one after the other, and is started over in between."""

    def run(self, account: str, of: str, number: int = 0) -> int:
        self.call(Chain.with_options(queue=of), account=f"{account}.{number}")
        if number < 2:
            self.start_over(account=account, of=of, number=number + 1)
        return number


class Plain(Workflow):
    """One short step without a session."""

    @step
    def work(self) -> None:
        trace(self, "work")


class Delayed(Workflow):
    """A timer between two steps."""

    @step
    def before(self) -> None:
        trace(self, "before")
        dwell(0.3)

    @step(wait=timedelta(seconds=1.5))
    def after(self) -> None:
        trace(self, "after")


class Long(Workflow):
    """A body that takes as long as it is told, then a short step."""

    @step
    def work(self) -> None:
        trace(self, "work")
        dwell(self.args["seconds"])
        book(self, "work")

    @step
    def finish_up(self) -> None:
        trace(self, "finish_up")
        book(self, "finish_up")


class LongInSession(Workflow):
    """A body that takes long inside its open transaction."""

    @step
    def work(self) -> None:
        trace(self, "work")
        book(self, "work")
        self.session.flush()
        dwell(self.args["seconds"])


class LongAsync(Workflow):
    """A coroutine that takes long."""

    @step
    async def work(self) -> None:
        trace(self, "work")
        try:
            await asyncio.sleep(self.args["seconds"] * pace())
        except asyncio.CancelledError:
            trace(self, "cancelled")
            raise


class Poison(Workflow):
    """Kills whoever drives it."""

    @step
    def bite(self) -> None:
        trace(self, "bite")
        os.kill(os.getpid(), signal.SIGKILL)


class Innocent(Workflow):
    """Two steps; the first takes long enough to die beside the poison."""

    @step
    def first(self) -> None:
        trace(self, "first")
        dwell(0.5)
        book(self, "first")

    @step
    def second(self) -> None:
        trace(self, "second")
        book(self, "second")
