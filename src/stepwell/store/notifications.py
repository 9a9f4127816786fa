"""Waking workers of other processes through PostgreSQL, after the commit and never inside it.

``NOTIFY`` inside a transaction takes a lock that is held through the commit's flush, and halves the throughput of
everyone. So a thread of its own sends it on a connection of its own, at most once per queue in twenty milliseconds.
A lost notification costs latency and nothing else: every worker polls too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Engine

from stepwell.logs import facts_logger

__all__ = ["CHANNEL", "Listener", "Notifier"]

_log = facts_logger(__name__)
CHANNEL: Final = "stepwell"
_PAUSE: Final = 0.02
_LONGEST_PAYLOAD: Final = 7_000
_FIRST_BACKOFF: Final = 0.1
_LONGEST_BACKOFF: Final = 10.0
_LISTEN_SECONDS: Final = 1.0


class Notifier:
    """Sends notifications from a background thread, which starts with the first one.

    Args:
        engine: Where a connection comes from.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._queues: set[str] = set()
        self._awake = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def notify(self, queue: str) -> None:
        """Tell all listeners, soon, that the queue has something to do."""
        with self._lock:
            if self._is_closed:
                return
            self._queues.add(queue)
            if self._thread is None:
                self._thread = threading.Thread(target=self._send, name="stepwell-notify", daemon=True)
                self._thread.start()
        self._awake.set()

    def close(self) -> None:
        """Send nothing more."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._awake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=2)

    def _take(self) -> set[str]:
        with self._lock:
            taken, self._queues = self._queues, set()
            self._awake.clear()
            return taken

    def _send(self) -> None:
        connection: Any = None
        while not self._is_closed:
            self._awake.wait()
            queues = self._take()
            try:
                if connection is None:
                    connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                    connection.exec_driver_sql("SET synchronous_commit = off")
                for queue in queues:
                    payload = queue[:_LONGEST_PAYLOAD]
                    connection.exec_driver_sql("SELECT pg_notify(%s, %s)", (CHANNEL, payload))
            except Exception:
                _log.warning("a notification was not sent", extra={"action": "notify.failed"}, exc_info=True)
                _discard(connection)
                connection = None
            time.sleep(_PAUSE)
        _discard(connection)


class Listener:
    """Hears notifications in a background thread and calls ``wake`` with each queue; ``""`` means: look at all.

    Args:
        engine: Where a connection comes from; it must not go through a transaction-pooling proxy.
        wake: Called for each notification, and once after each connect, since anything may have been missed.
    """

    def __init__(self, engine: Engine, wake: Callable[[str], None]) -> None:
        self._engine = engine
        self._wake = wake
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="stepwell-listen", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; returns within about a second."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=_LISTEN_SECONDS + 1)

    def _listen(self) -> None:
        backoff = _FIRST_BACKOFF
        while not self._stop.is_set():
            connection: Any = None
            try:
                connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                connection.exec_driver_sql(f"LISTEN {CHANNEL}")
                self._wake("")
                backoff = _FIRST_BACKOFF
                self._hear(connection.connection.driver_connection)
            except Exception:
                if not self._stop.is_set():
                    _log.warning(
                        "the listener lost its connection", extra={"action": "listen.lost"}, exc_info=True
                    )
                    self._stop.wait(backoff)
                    backoff = min(backoff * 2, _LONGEST_BACKOFF)
            finally:
                _discard(connection)

    def _hear(self, driver_connection: Any) -> None:
        while not self._stop.is_set():
            for notification in driver_connection.notifies(timeout=_LISTEN_SECONDS):
                self._wake(notification.payload)
                if self._stop.is_set():
                    return
            # Silence may also mean a dead peer.
            driver_connection.execute("SELECT 1")


def _discard(connection: Any) -> None:
    """Close the connection for good: what was set on it must not reach the pool's next user."""
    if connection is None:
        return
    try:
        connection.invalidate()
        connection.close()
    except Exception:
        _log.debug("closing a broken connection failed", exc_info=True)
