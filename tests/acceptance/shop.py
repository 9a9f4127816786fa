"""A small application in a folder of its own, and the command line run on it as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import stepwell
from stepwell import Stepwell
from stepwell.store.rows import RunRow

__all__ = ["APPLICATION", "SOURCE", "Shop", "finish", "read_until"]

SOURCE: Final = Path(stepwell.__file__).parents[1]

APPLICATION: Final = """
import os
import time
from datetime import timedelta
from pathlib import Path

from sqlalchemy import text

from stepwell import Poll, Signal, Stepwell, Workflow, resumable_step, step

well = Stepwell(os.environ["SHOP_DATABASE"])
number = 42


def make_well():
    return well


class Order(Workflow):
    @step
    def reserve(self):
        self.context["reserved"] = True

    @step(wait=timedelta(days=3))
    def remind(self): ...

    @step
    def close(self): ...


class Broken(Workflow):
    @step
    def fail(self):
        raise ValueError(self.args["text"])


class Wordy(Workflow):
    workflow_name = "A workflow whose name goes on and on and never comes to an end"

    @step(name="a_step_with_so_much_to_say_that_nobody_will_ever_read_all_of_it")
    def talk(self): ...


class Slow(Workflow):
    @step
    def work(self):
        if self.args.get("writes"):
            self.session.execute(text("UPDATE stock SET pieces = pieces - 1"))
        print("at work", flush=True)
        time.sleep(self.args["seconds"])

    @step
    def rest(self): ...


class Review(Workflow):
    @step(awaits=Signal("verdict", timeout=timedelta(days=3)))
    def decide(self, verdict):
        self.context["verdict"] = verdict

    @step(gate=lambda self: Path("open").exists())
    def enter(self): ...

    @step(wait_until=Poll(lambda self: False, every=timedelta(minutes=5)))
    def settle(self): ...


class Delivery(Workflow):
    def run(self):
        for item in ["a"] if Path("new").exists() else ["a", "b"]:
            self.pack(item)
        self.sleep(timedelta(days=3))

    @step(key_by="item")
    def pack(self, item): ...


class Import(Workflow):
    @resumable_step
    def load(self):
        for number in self.cursor.iterate(range(10)):
            while number == 4 and not Path("go").exists():
                time.sleep(0.01)
            self.progress(number + 1, 10)
"""


@dataclass(frozen=True, slots=True)
class Shop:
    """An application on a database.

    Attributes:
        folder: Holds ``shop.py``; commands run in it.
        url: The database.
    """

    folder: Path
    url: str

    @classmethod
    def open(cls, folder: Path, url: str) -> Shop:
        """Write the application's module."""
        (folder / "shop.py").write_text(APPLICATION, encoding="utf-8")
        return cls(folder, url)

    def run(self, *arguments: str, columns: int = 80, **more: str) -> subprocess.CompletedProcess[str]:
        """Run one command line to its end."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(COLUMNS=str(columns), **more),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start one command line; the caller ends it."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def command(self, *arguments: str) -> list[str]:
        """How the command line is called."""
        return [sys.executable, "-m", "stepwell", *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        """The application's environment, with ``shop:well`` as its engine; an empty value takes one away."""
        base = {
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "PYTHONUNBUFFERED": "",
            "STEPWELL_APP": "shop:well",
            "SHOP_DATABASE": self.url,
            **more,
        }
        return {name: value for name, value in base.items() if value}

    def runs(self) -> dict[str, RunRow]:
        """All runs by their ids, the oldest first, read without the application's code."""
        well = Stepwell(self.url, default=False)
        found = {str(row.id): row for row in well.runs().oldest().infos()}
        well.close()
        return found

    def drain(self, until: Collection[str] = ("completed", "failed")) -> None:
        """Let a worker process do what is due, and stop it with SIGTERM.

        Args:
            until: States; some run must be in one of them, and none may be due any more.
        """
        worker = self.start("worker", "--threads", "2")
        limit = time.monotonic() + 30
        while True:
            states = {row.state for row in self.runs().values()}
            if not states.isdisjoint(until) and states.isdisjoint({"ready", "running"}):
                break
            assert time.monotonic() < limit, states
            time.sleep(0.05)
        code, _, err = finish(worker)
        assert code == 0, err

    def python(self, code: str) -> str:
        """Run code that uses the application, in a process of its own, and answer what it printed."""
        done = subprocess.run(
            [sys.executable, "-c", f"from shop import *\n{code}"],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def finish(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Send a signal; answer the exit code, the rest of standard output, and standard error."""
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def read_until(lines: Callable[[], str], wanted: str) -> str:
    """Read lines up to one that holds ``wanted``; answer that one."""
    for line in iter(lines, ""):
        if wanted in line:
            return line
    raise AssertionError(f"the output ended without {wanted!r}")
