"""Waking workers: at once within the process, through the database between processes where it can.

A wake is never the truth, only a hint to look: a lost one costs latency and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

__all__ = ["Hub"]


class Hub:
    """Tells whoever listens in this process that a queue has something to do, or that a run has ended."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._listeners: list[Callable[[str], None]] = []
        self._ended = threading.Condition()
        self._endings = 0
        self._watchers = 0

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with each queue that has something to do now."""
        with self._lock:
            self._listeners = [*self._listeners, listener]

    def forget(self, listener: Callable[[str], None]) -> None:
        """Stop calling it."""
        with self._lock:
            self._listeners = [known for known in self._listeners if known is not listener]

    def wake(self, queue: str) -> None:
        """The queue has something to do."""
        for listener in self._listeners:
            listener(queue)

    def run_ended(self) -> None:
        """Some run of this process's has come to an end or a stop."""
        if self._watchers:
            with self._ended:
                self._endings += 1
                self._ended.notify_all()

    def wait_for_ending(self, seen: int, timeout: float) -> int:
        """Wait until some run has ended since ``seen``, ``timeout`` seconds at most; answer the new count."""
        with self._ended:
            self._watchers += 1
            try:
                self._ended.wait_for(lambda: self._endings != seen, timeout)
                return self._endings
            finally:
                self._watchers -= 1
