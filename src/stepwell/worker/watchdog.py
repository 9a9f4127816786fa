"""Ending a synchronous body that runs too long: an exception is raised in its own thread.

Python raises it at the next bytecode that the thread runs; a body that blocks in native code (a socket without a
timeout, a long query) is ended when that returns. One thread watches all bodies of the process.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from stepwell.errors import StepTimedOut

__all__ = ["Watchdog"]

_raise_in: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)
_raise_in.restype = ctypes.c_int
_NOTHING: Final = ctypes.py_object()


class _TimeIsUp(BaseException):
    """Raised in the body's thread; no ``except Exception`` of the body's swallows it."""


class _Watch:
    """One body under watch."""

    __slots__ = ("is_over", "is_raised", "lock", "thread_id")

    def __init__(self) -> None:
        self.thread_id = threading.get_ident()
        self.lock = threading.Lock()
        self.is_over = False
        self.is_raised = False

    def strike(self) -> None:
        """Raise in the body's thread unless the body is over."""
        with self.lock:
            if not self.is_over:
                self.is_raised = True
                _raise_in(self.thread_id, ctypes.py_object(_TimeIsUp))

    def end(self) -> None:
        """The body is over: nothing is raised from here on, and what was not delivered yet is taken back."""
        with self.lock:
            self.is_over = True
            if self.is_raised:
                _raise_in(self.thread_id, _NOTHING)


class Watchdog:
    """Limits how long functions may run; its thread starts with the first one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._due: list[tuple[float, int, _Watch]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run(self, work: Callable[[], Any], timeout: timedelta) -> Any:
        """Run it on this thread and answer its result.

        Raises:
            StepTimedOut: It took longer, and was ended.
        """
        began = time.monotonic()
        watch = _Watch()
        self._add(began + timeout.total_seconds(), watch)
        try:
            try:
                return work()
            finally:
                watch.end()
        except _TimeIsUp:
            # It may have struck while the body was leaving: ending the watch twice is harmless.
            watch.end()
            took = time.monotonic() - began
            raise StepTimedOut(f"the body was ended after {took:.1f} s (timeout {timeout})") from None

    def close(self) -> None:
        """Watch nothing more."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()

    def _add(self, at: float, watch: _Watch) -> None:
        with self._condition:
            heapq.heappush(self._due, (at, next(self._numbers), watch))
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="stepwell-watchdog", daemon=True)
                self._thread.start()
            self._condition.notify()

    def _keep(self) -> None:
        while True:
            with self._condition:
                if self._is_closed:
                    return
                while self._due and self._due[0][2].is_over:
                    heapq.heappop(self._due)
                if not self._due:
                    self._condition.wait()
                    continue
                left = self._due[0][0] - time.monotonic()
                if left > 0:
                    self._condition.wait(left)
                    continue
                watch = heapq.heappop(self._due)[2]
            watch.strike()
