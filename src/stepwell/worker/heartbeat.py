"""The heartbeat: renews the leases of this process, shows long bodies, keeps the clock.

It goes on until the last body has ended, also while the worker drains. What it asks of the database goes over a
connection reserved for it: bodies may hold all others for as long as they like. A connection that broke is made anew
within the same beat.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from sqlalchemy import Connection

from stepwell.engine.engine import Stepwell
from stepwell.engine.leases import Lease
from stepwell.logs import facts_logger
from stepwell.store.journal import show_body
from stepwell.worker.contact import Contact

__all__ = ["Heartbeat"]

_log = facts_logger(__name__)
_CLOCK_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 1.0


class Heartbeat:
    """A thread that beats every third of a lease.

    Args:
        engine: Its leases are renewed.
        contact: Told whether the database answers.
        worker: The worker's name, for the rows of long bodies.
    """

    def __init__(self, engine: Stepwell, contact: Contact, worker: str) -> None:
        self._engine = engine
        self._contact = contact
        self._worker = worker
        self.interval: Final = engine.lease.total_seconds() / 3
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="stepwell-heartbeat", daemon=True)
        self._clock_set_at = time.monotonic()

    def start(self) -> None:
        """Begin to beat; the database has just been asked."""
        self._contact.made()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _beat_on(self) -> None:
        pause = self.interval
        while not self._stop.wait(pause):
            began_at = time.monotonic()
            try:
                self.beat()
                # One that had to wait has renewed for an instant that may be past by now: the next comes sooner.
                pause = max(0.0, began_at + self.interval - time.monotonic())
            except Exception as error:
                self._contact.lost()
                # Sooner than anybody who has been reached again may take leases from us: after one whole interval.
                pause = min(_RETRY_SECONDS, self.interval / 4)
                _log.warning(
                    "the leases could not be renewed; trying again",
                    extra={"action": "heartbeat.failed", "error": repr(error)},
                )

    def beat(self) -> None:
        """Renew all leases now, and show what has been running since the last beat."""
        leases = self._engine.leases.held()
        if leases:
            self._engine.renew_leases(leases)
        else:
            self._engine.database.repeating(_begin_and_commit, urgent=True)
        self._contact.made()
        for lease in leases:
            self._try_to_show(lease)
        self._keep_time()

    def _try_to_show(self, lease: Lease) -> None:
        try:
            self._show(lease)
        except Exception:
            # For people only: it must not keep the others' leases from being renewed.
            _log.warning(
                "a running step could not be shown",
                extra={"action": "heartbeat.show_failed", "run_id": str(lease.run_id)},
                exc_info=True,
            )

    def _show(self, lease: Lease) -> None:
        """A body that outlives a heartbeat becomes visible; shorter ones cost nothing."""
        body = lease.shown
        if body is None or lease.is_lost:
            return
        progress = lease.progress_text()
        if lease.is_shown and progress is None:
            return
        row = body.shown()
        if not lease.is_shown and row.started_at is not None:
            age = (self._engine.now() - row.started_at).total_seconds()
            if age < self.interval / 2:
                return

        def show(connection: Any) -> None:
            show_body(
                connection, lease.run_id, lease.token, row, self._worker, progress, is_called=body.is_called
            )

        self._engine.database.retrying(show, urgent=True)
        if lease.shown is body:  # and not the next body already
            lease.is_shown = True

    def _keep_time(self) -> None:
        now = time.monotonic()
        if now - self._clock_set_at < _CLOCK_SECONDS:
            return
        self._clock_set_at = now
        jump = self._engine.database.measure_time(urgent=True)
        if abs(jump) > self.interval:
            self._contact.lost()
            _log.warning("the clock jumped", extra={"action": "clock.jumped", "seconds": round(jump, 3)})


def _begin_and_commit(connection: Connection) -> None:
    """What a renewal needs of the database: an answer and, on SQLite, the write lock."""
    connection.exec_driver_sql("SELECT 1")
