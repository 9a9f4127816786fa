"""Worker processes of a test: started, signalled, watched, and always ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from tests.chaos.errands import PACE_VARIABLE, TRACE_VARIABLE
from tests.chaos.faults import Fault

__all__ = ["Fleet", "Options", "WorkerProcess", "until"]

T = TypeVar("T")
_ROOT: Final = Path(__file__).resolve().parents[2]
_PAUSE: Final = 0.02


def until(what: str, condition: Callable[[], T], *, within: float = 30) -> T:
    """Wait for a condition and answer its value; fail when it does not come in time."""
    limit = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > limit:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(_PAUSE)


@dataclass(frozen=True, slots=True)
class Options:
    """How a worker process works.

    Attributes:
        lease: Seconds.
        grace: Seconds that a graceful stop waits for bodies.
        poll: The longest time between two looks, in seconds.
        fault: What happens to it.
        pace: How long its bodies take, against what they are told.
    """

    queues: Sequence[str] = ("default",)
    threads: int = 4
    lease: float = 2.0
    grace: float = 30.0
    poll: float = 1.0
    max_recoveries: int = 5
    fault: Fault | None = None
    pace: float = 1.0


class WorkerProcess:
    """One process that runs a worker."""

    def __init__(self, name: str, url: str, options: Options, trace: Path, log: Path) -> None:
        self.name = name
        self.log = log
        given = {"name": name, "url": url, **asdict(options)}
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)]),
            TRACE_VARIABLE: str(trace),
            PACE_VARIABLE: str(options.pace),
        }
        command = [sys.executable, "-m", "tests.chaos.program", json.dumps(given)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    # -- signals ------------------------------------------------------------------------------------------------

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait(timeout=10)

    def stop(self) -> None:
        """Freeze it, as a suspended machine would."""
        self.send(signal.SIGSTOP)
        until(f"{self.name} is stopped", self.is_stopped)

    def go_on(self) -> None:
        self.send(signal.SIGCONT)

    # -- watching -----------------------------------------------------------------------------------------------

    def is_stopped(self) -> bool:
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def exit_code(self, *, within: float = 15) -> int:
        """Wait for its end."""
        try:
            return self._process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended within {within} s:\n{self.log_text()}") from None

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def records(self) -> list[dict[str, Any]]:
        """What it has logged so far; a line that is no record is the interpreter's."""
        lines = (line for line in self.log_text().splitlines(keepends=True) if line.endswith("\n"))
        return [json.loads(line) for line in lines if line.startswith("{")]

    def logged(self, action: str) -> list[dict[str, Any]]:
        return [record for record in self.records() if record["action"] == action]

    def wait_until_started(self) -> None:
        until(f"{self.name} works", lambda: self._has("worker.start"), within=30)

    def wait_until_logged(self, action: str, *, within: float = 15) -> None:
        until(f"{self.name} logs {action}", lambda: self._has(action), within=within)

    def wait_until_killed(self, *, within: float = 30) -> None:
        code = self.exit_code(within=within)
        assert code == -signal.SIGKILL, f"{self.name} ended with {code}:\n{self.log_text()}"

    def wait_until_stopped(self, *, within: float = 30) -> None:
        until(f"{self.name} is stopped", lambda: self._lives() and self.is_stopped(), within=within)

    def _has(self, action: str) -> bool:
        # In this order: what a process logged before it ended counts.
        return bool(self.logged(action)) or not self._lives()

    def _lives(self) -> bool:
        if not self.is_alive():
            raise AssertionError(f"{self.name} ended with {self._process.returncode}:\n{self.log_text()}")
        return True

    def end(self) -> None:
        """Make sure that it is gone, stopped or not."""
        if self.is_alive():
            self._process.kill()
        self._process.wait(timeout=10)


class Fleet:
    """All worker processes of a test.

    Args:
        folder: For their logs and the trace.
    """

    def __init__(self, folder: Path) -> None:
        self.trace = folder / "trace.txt"
        self._folder = folder
        self._all: list[WorkerProcess] = []

    def start(self, url: str, options: Options, name: str = "worker") -> WorkerProcess:
        """Start a worker process; it works a moment later."""
        unique = f"{name}-{len(self._all)}"
        process = WorkerProcess(unique, url, options, self.trace, self._folder / f"{unique}.log")
        self._all.append(process)
        return process

    def logs(self) -> str:
        return "\n".join(f"--- {each.name}\n{each.log_text()}" for each in self._all)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._all:
            process.end()
        # For the report of a test that failed.
        print(self.logs())
