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
from stepwell.shield import ward

__all__ = ["Watchdog"]

_raise_in: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)
_raise_in.restype = ctypes.c_int
_NOTHING: Final = ctypes.py_object()
_AGAIN_SECONDS: Final = 1.0
_FEW: Final = 64


class _TimeIsUp(BaseException):
    """Raised in the body's thread; no ``except Exception`` of the body's swallows it."""


class _Watch:
    """One body under watch (see ``shield.Ward``).

    Attributes:
        has_struck: Its time was up before it was over.
    """

    __slots__ = ("_depth", "_is_due", "_lock", "_thread_id", "has_struck", "is_over")

    def __init__(self) -> None:
        self._thread_id = threading.get_ident()
        self._lock = threading.Lock()
        self._depth = 0
        self._is_due = False
        self.is_over = False
        self.has_struck = False

    def strike(self) -> None:
        """Raise in the body's thread unless the body is over; where it is shielded, it raises by itself soon."""
        with self._lock:
            if self.is_over:
                return
            if self._depth:
                self._is_due = True
                return
            self.has_struck = True
            _raise_in(self._thread_id, ctypes.py_object(_TimeIsUp))

    def hold(self) -> None:
        is_held = False
        try:
            with self._lock:
                self._depth += 1
                is_held = True
        except _TimeIsUp:
            # It was on its way already.
            self._depth -= is_held
            raise

    def let_go(self) -> None:
        with self._lock:
            self._depth -= 1
            strikes = self._is_due and not self._depth and not self.is_over
            if strikes:
                self._is_due, self.has_struck = False, True
        if strikes:
            raise _TimeIsUp

    def end(self) -> None:
        """The body is over: nothing is raised from here on, and what was not delivered yet is taken back."""
        with self._lock:
            self.is_over = True
            if self.has_struck:
                _raise_in(self._thread_id, _NOTHING)


class Watchdog:
    """Limits how long functions may run; its thread starts with the first one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._due: list[tuple[float, int, _Watch]] = []
        self._numbers = itertools.count()
        self._under_watch = 0
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run(self, work: Callable[[], Any], timeout: timedelta) -> Any:
        """Run it on this thread and answer its result.

        A function whose time was up before it was over has timed out, whatever it made of the exception.

        Raises:
            StepTimedOut: It took longer, and was ended.
        """
        began = time.monotonic()
        watch = _Watch()
        cause: BaseException | None = None
        result = None
        before = ward(watch)
        try:
            try:
                self._add(began + timeout.total_seconds(), watch)
                result = work()
            finally:
                watch.end()
        except BaseException as error:
            # It may have struck while the body was leaving: ending the watch twice is harmless.
            watch.end()
            if not watch.has_struck:
                raise
            cause = None if isinstance(error, _TimeIsUp) else error
        finally:
            ward(before)
            self._remove()
        if watch.has_struck:
            took = time.monotonic() - began
            raise StepTimedOut(f"the body was ended after {took:.1f} s (timeout {timeout})") from cause
        return result

    def close(self) -> None:
        """Watch nothing more."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()

    def _add(self, at: float, watch: _Watch) -> None:
        with self._condition:
            self._under_watch += 1
            heapq.heappush(self._due, (at, next(self._numbers), watch))
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="stepwell-watchdog", daemon=True)
                self._thread.start()
            if self._due[0][2] is watch:
                self._condition.notify()

    def _remove(self) -> None:
        with self._condition:
            self._under_watch -= 1
            # Bodies mostly end long before their time: those that are over must not pile up until then.
            if len(self._due) > _FEW + 2 * self._under_watch:
                self._due = [each for each in self._due if not each[2].is_over]
                heapq.heapify(self._due)

    def _keep(self) -> None:
        while (watch := self._next()) is not None:
            watch.strike()
            if not watch.is_over:
                # A body that swallows it hears it again.
                with self._condition:
                    again = time.monotonic() + _AGAIN_SECONDS
                    heapq.heappush(self._due, (again, next(self._numbers), watch))

    def _next(self) -> _Watch | None:
        """The next body whose time is up; waits for it."""
        with self._condition:
            while not self._is_closed:
                while self._due and self._due[0][2].is_over:
                    heapq.heappop(self._due)
                left = self._due[0][0] - time.monotonic() if self._due else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._due)[2]
                self._condition.wait(left)
            return None
