"""Whether this process may take leases from others: only while its own contact with the database is unbroken.

After an outage of the database, or of this machine, all leases have expired. Whoever then looked first would
take every live run from its living worker and double its effects. So the living renew first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

__all__ = ["Contact"]

_LONGEST_GAP: Final = 1.5
"""In intervals. A lease is three long and renewed every one: so short an outage leaves every lease alive."""


class Contact:
    """Remembers since when every beat of the heart has reached the database in time.

    Only the heartbeat may say that it did: what it asks is what a renewal needs. A look at the tables proves
    less, since on SQLite one may read while a lock keeps everybody from renewing.

    Args:
        interval: The renewal interval, in seconds.
        monotonic: A clock that does not jump.
    """

    def __init__(self, interval: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._longest_gap = _LONGEST_GAP * interval
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._unbroken_since = self._last = monotonic()

    def made(self) -> None:
        """A beat went through."""
        now = self._monotonic()
        with self._lock:
            if now - self._last > self._longest_gap:
                self._unbroken_since = now
            self._last = now

    def lost(self) -> None:
        """The database did not answer, or its clock jumped."""
        with self._lock:
            self._unbroken_since = self._last = self._monotonic()

    def is_proven(self) -> bool:
        """It has been unbroken for a whole interval, up to now."""
        now = self._monotonic()
        with self._lock:
            is_unbroken = now - self._last <= self._longest_gap
            return is_unbroken and now - self._unbroken_since >= self._interval
