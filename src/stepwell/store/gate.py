"""The write gate of a SQLite file: the writers of one process queue here, in order, instead of on the file's lock.

SQLite's own way to wait for its lock is unfair: of several waiting threads one may starve for seconds. The gate is
first come, first served, except that a renewal of leases goes ahead of steps.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from stepwell.errors import StoreError

__all__ = ["WriteGate", "gate_for"]


class WriteGate:
    """A fair lock that knows who holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._holder: int | None = None

    def acquire(self, *, urgent: bool = False) -> None:
        """Wait for one's turn.

        Raises:
            StoreError: This thread holds the gate already: a second transaction would wait for itself for ever.
        """
        me = threading.get_ident()
        with self._lock:
            if self._holder == me:
                raise StoreError(
                    "this thread already has a write transaction open on the SQLite file, and SQLite allows one. "
                    "Inside a step pass session=self.session, so that both commit together."
                )
            if self._holder is None:
                self._holder = me
                return
            turn = threading.Lock()
            turn.acquire()
            if urgent:
                self._waiting.appendleft(turn)
            else:
                self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:
            self._give_up(turn)
            raise
        with self._lock:
            self._holder = me

    def _give_up(self, turn: threading.Lock) -> None:
        """An interrupt ended the wait (Ctrl-C in the main thread): leave the queue, or pass the turn on."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        self.release()

    def release(self) -> None:
        """Let the next one in."""
        with self._lock:
            if self._waiting:
                # Held by nobody in particular until the next thread runs: nobody can slip in between.
                self._holder = -1
                self._waiting.popleft().release()
            else:
                self._holder = None

    @contextmanager
    def held(self, *, urgent: bool = False) -> Iterator[None]:
        """Hold the gate for a block."""
        self.acquire(urgent=urgent)
        try:
            yield
        finally:
            self.release()


_gates: WeakValueDictionary[str, WriteGate] = WeakValueDictionary()
_gates_lock = threading.Lock()


def gate_for(file: str) -> WriteGate:
    """The gate of this file: one per file and process, however many engines are open on it."""
    with _gates_lock:
        gate = _gates.get(file)
        if gate is None:
            gate = _gates[file] = WriteGate()
        return gate
