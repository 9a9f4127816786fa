"""A worker of the demo: a process of its own, so that it can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

__all__ = ["WorkerProcess"]

_STOP_SECONDS: Final = 10


class WorkerProcess:
    """``stepwell worker`` as a child process.

    Args:
        name: What it is called.
        environment: Variables that say where the database is.
        folder: Where its log goes.
    """

    def __init__(self, name: str, environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        # Eight threads are enough to keep a laptop busy, and to have something in flight at any time.
        command = (
            "-m",
            "stepwell",
            "-A",
            "stepwell.demo.app:engine",
            "worker",
            "--name",
            name,
            "--threads",
            "8",
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                (sys.executable, *command),
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """It is not there any more."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill it as a power cut would: it gets no chance to do anything."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def last_words(self, lines: int = 20) -> str:
        """The end of its log."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> int:
        """Ask it to stop, and answer its exit code."""
        if not self.has_ended:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.returncode

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
