"""One system's process, seen from the harness: its memory and its interpreter lock are its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["Child", "Failure"]

_ROOT = Path(__file__).resolve().parent.parent
_LONGEST_SECONDS = 400.0


class Failure(Exception):
    """A measurement did not come about."""


class Child:
    """A process that measures one system in one database.

    Args:
        system: A key of ``bench.child.SYSTEMS``.
        url: The database, which must be empty or the system's own.
    """

    def __init__(self, system: str, url: str) -> None:
        self.system = system
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed in close()
        paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.child", system, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process has no pipes")
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def measure(self, measure: str, **arguments: Any) -> dict[str, Any]:
        """Have one measurement made, and wait for it.

        Raises:
            Failure: It failed, with what the process wrote to its standard error at last.
        """
        line = json.dumps({"measure": measure, "arguments": arguments}) + "\n"
        try:
            self._requests.write(line.encode())
        except BrokenPipeError:
            raise Failure(self._explain(f"{measure}: the process has ended")) from None
        ready, _, _ = select.select([self._answers], [], [], _LONGEST_SECONDS)
        if not ready:
            self._process.kill()
            raise Failure(self._explain(f"{measure}: no answer after {_LONGEST_SECONDS:.0f} s"))
        text = self._answers.readline()
        if not text:
            raise Failure(self._explain(f"{measure}: the process ended in the middle"))
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise Failure(self._explain(f"{measure}: {answer['error']}"))
        result: dict[str, Any] = answer["answer"]
        return result

    def close(self) -> None:
        self._requests.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._log.close()

    def _explain(self, message: str) -> str:
        self._log.seek(0)
        tail = self._log.read().splitlines()[-12:]
        return "\n".join([message, *(f"    | {line}" for line in tail)])
