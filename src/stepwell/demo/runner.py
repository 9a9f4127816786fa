"""The demo's story: start, kill, recover, prove."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Final
from uuid import UUID

from sqlalchemy import URL, create_engine
from sqlalchemy.orm import Session

from stepwell import RunState
from stepwell.demo.app import DATABASE, open_engine
from stepwell.demo.mail import OUTBOX, read_traffic
from stepwell.demo.onboarding import Onboarding
from stepwell.demo.progress import STEPS, Progress, read_progress
from stepwell.demo.proof import Proof, read_proof
from stepwell.demo.records import Base, Customer
from stepwell.demo.screen import Screen
from stepwell.demo.telling import held_text, introduction, ledger_table, recovery_text, traffic_text
from stepwell.demo.worker import WorkerProcess
from stepwell.states import Outcome

__all__ = ["Demo", "DemoFailed", "Killed", "read_customers"]

_LOOK_SECONDS: Final = 0.05
_LONGEST_SECONDS: Final = 180.0
_KILL_AT_SHARE: Final = 0.3
_KILL_WITH_IN_FLIGHT: Final = 4


class DemoFailed(Exception):
    """The story did not come to its end."""


@dataclass(frozen=True, slots=True)
class Killed:
    """What the first worker left behind.

    Attributes:
        at_seconds: When it was killed, after the start.
        held: The runs that it held.
    """

    at_seconds: float
    held: Sequence[UUID]


class Demo:
    """Runs once, in a folder of its own.

    Args:
        folder: Where the database, the gateway's notes and the workers' logs go; it exists.
        screen: Where the story is told.
        customers: How many take part; None for all in the shipped file.
    """

    def __init__(self, folder: Path, screen: Screen, customers: int | None = None) -> None:
        self._folder = folder
        self._screen = screen
        self._customers = read_customers()[:customers]
        self._outbox = folder / "outbox.txt"
        url = URL.create("sqlite", database=str(folder / "demo.db")).render_as_string()
        self._environment: Mapping[str, str] = {DATABASE: url, OUTBOX: str(self._outbox)}
        self._application = create_engine(url)
        self._well = open_engine(url)
        self._began_at = time.monotonic()

    def run(self) -> int:
        """Tell the story to its end.

        Returns:
            0 if the ledger proves that every step of every customer happened exactly once; else 1.

        Raises:
            DemoFailed: It did not get that far.
        """
        self._screen.say(introduction(len(self._customers)))
        try:
            self._start_runs()
            with self._screen:
                killed = self._work_and_be_killed()
                self._recover()
            return self.conclude(killed)
        finally:
            self._well.close()
            self._application.dispose()

    # the four acts

    def _start_runs(self) -> None:
        self._well.migrate()
        Base.metadata.create_all(self._application)
        self._began_at = time.monotonic()
        with Session(self._application) as session:
            session.add_all(self._customers)
            Onboarding.with_options(session=session).start_many(self._customers)
            session.commit()
        self._say(f"{len(self._customers)} customers stored and their runs started, in one transaction.")

    def _work_and_be_killed(self) -> Killed:
        with WorkerProcess("worker-1", self._environment, self._folder) as worker:
            self._say(f"worker-1 started: process {worker.pid}.")
            progress = self._follow(worker, _is_time_to_kill)
            worker.kill()
        killed_at = self._seconds()
        held = self._well.runs(Onboarding).in_state(RunState.RUNNING).infos()
        self._say(
            f"worker-1 KILLED with SIGKILL, with {progress.share:.0%} of all steps done.", style="bold red"
        )
        self._say(*held_text(run.current_step for run in held))
        return Killed(killed_at, [run.id for run in held])

    def _recover(self) -> None:
        with WorkerProcess("worker-2", self._environment, self._folder) as worker:
            self._say(f"worker-2 started: process {worker.pid}. Nobody tells it what was lost.")
            self._follow(worker, lambda progress: progress.is_over)
            code = worker.stop()
        if code != 0:
            raise DemoFailed(f"worker-2 was asked to stop and ended with {code}:\n{worker.last_words()}")
        self._say("All runs have completed. worker-2 was asked to stop, and did.")

    def conclude(self, killed: Killed) -> int:
        """Read the ledger and say what it proves.

        Returns:
            The exit code: 0 only if each step of each customer happened exactly once, and after a recovery.
        """
        seconds = self._seconds()
        with self._well.reading() as connection:
            proof = read_proof(connection, STEPS)
        lost = sum(self._was_lost(run_id) for run_id in killed.held)
        screen = self._screen
        screen.say("\nWhat the ledger says (no constraint keeps a step from being entered twice):\n")
        for line in ledger_table(proof):
            screen.say(line)
        screen.say(traffic_text(read_traffic(self._outbox)))
        screen.say()
        if not killed.held or lost != len(killed.held):
            screen.say(
                f"NOT SHOWN: worker-1 held {len(killed.held)} runs, {lost} were recovered.", "bold red"
            )
            return 1
        screen.say(recovery_text(killed.at_seconds, lost))
        return self._verdict(proof, seconds)

    def _verdict(self, proof: Proof, seconds: float) -> int:
        customers = len(self._customers)
        expected = f"{len(STEPS)} steps of {customers} customers"
        if not proof.holds or proof.customers != customers:
            self._screen.say(f"NOT PROVED: {expected} should have happened exactly once each.", "bold red")
            return 1
        self._screen.say(f"Proved:     {expected} happened exactly once, all {proof.rows}.", "bold green")
        self._screen.say(f"Time:       {seconds:.1f} s.")
        return 0

    # following

    def _follow(self, worker: WorkerProcess, until: Callable[[Progress], bool]) -> Progress:
        while True:
            progress = read_progress(self._well, len(self._customers), self._seconds(), worker.name)
            self._screen.show(progress)
            if until(progress):
                return progress
            self._raise_if_hopeless(worker, progress)
            time.sleep(_LOOK_SECONDS)

    def _raise_if_hopeless(self, worker: WorkerProcess, progress: Progress) -> None:
        if progress.is_over:
            raise DemoFailed("all was over before the worker could be killed: run the demo again.")
        if worker.has_ended:
            raise DemoFailed(f"{worker.name} ended by itself; its log says:\n{worker.last_words()}")
        stopped = self._well.runs(Onboarding).attention().first()
        if stopped is not None:
            raise DemoFailed(stopped.explain())
        if progress.seconds > _LONGEST_SECONDS:
            raise DemoFailed(
                f"only {progress.share:.0%} of all steps are done after {progress.seconds:.0f} s; "
                f"the log of {worker.name} ends with:\n{worker.last_words()}"
            )

    def _was_lost(self, run_id: UUID) -> bool:
        return any(row.outcome == Outcome.LOST for row in self._well.run(run_id).steps)

    def _say(self, first: str, *more: str, style: str = "") -> None:
        self._screen.say(f"  {self._seconds():5.1f} s  {first}", style)
        for line in more:
            self._screen.say(f"{'':11}{line}", style)

    def _seconds(self) -> float:
        return time.monotonic() - self._began_at


def read_customers() -> list[Customer]:
    """The customers of the shipped file."""
    with files("stepwell.demo").joinpath("customers.csv").open(encoding="utf-8") as file:
        return [
            Customer(
                name=row["name"],
                email=row["email"],
                city=row["city"],
                plan=row["plan"],
                signed_up=date.fromisoformat(row["signed_up"]),
            )
            for row in csv.DictReader(file)
        ]


def _is_time_to_kill(progress: Progress) -> bool:
    return progress.share >= _KILL_AT_SHARE and progress.in_flight >= _KILL_WITH_IN_FLIGHT
