"""Whether this process may take leases from others: only while its own contact with the database is unbroken.

After an outage of the database, or of this machine, all leases have expired. Whoever then looked first would take
every live run from its living worker and double its effects. So the living renew first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Contact"]


class Contact:
    """Remembers since when the database has answered at least once every ``interval`` seconds.

    Args:
        interval: The renewal interval, in seconds.
        monotonic: A clock that does not jump.
    """

    def __init__(self, interval: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._unbroken_since = self._last = monotonic()

    def made(self) -> None:
        """The database answered."""
        now = self._monotonic()
        with self._lock:
            if now - self._last > self._interval:
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
            return now - self._last <= self._interval <= now - self._unbroken_since
