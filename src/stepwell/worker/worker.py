"""The worker: a claimer, a pool of threads, a heartbeat. It needs no broker, no scheduler and no reaper."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn
from uuid import uuid4

from sqlalchemy.exc import DBAPIError

from stepwell.engine import checked
from stepwell.engine.activation import activate
from stepwell.engine.engine import Stepwell
from stepwell.engine.giving_back import give_back_unbegun
from stepwell.engine.leases import Lease
from stepwell.engine.store_journal import Place
from stepwell.errors import StoreError
from stepwell.logs import facts_logger
from stepwell.states import ATTENTION, Reason
from stepwell.store.database import AnswerLost
from stepwell.store.notifications import Listener
from stepwell.worker.claimer import Claimed, Claimer
from stepwell.worker.contact import Contact
from stepwell.worker.heartbeat import Heartbeat
from stepwell.worker.inbox import Inbox
from stepwell.worker.loop_thread import LoopThread
from stepwell.worker.telling import tell_attention, tell_overdue
from stepwell.worker.watchdog import Watchdog

__all__ = ["Worker"]

_log = facts_logger(__name__)
_SLICE_SECONDS: Final = 5.0
_SLICE_STEPS: Final = 100
_QUICK_SECONDS: Final = 0.5
"""So long may a run that was claimed ahead wait for a thread; a worker whose threads take longer claims none ahead."""
_FULL_SECONDS: Final = 1.0
_LONGEST_BACKOFF: Final = 2.0
_ASYNC_GRACE: Final = 2.0
_LAST_TICK_SECONDS: Final = 1.0
_LAST_ACT_SECONDS: Final = 1.0


class Worker:
    """Drives runs with a pool of threads.

    Args:
        engine: Whose runs.
        queues: The queues to take runs from; earlier ones first.
        threads: How many runs are driven at the same time.
        name: For people, in leases and journals; by default host, process and a few random characters.
        grace: How long a stop waits for the bodies that are running.
        poll: The longest time between two looks at the database; timers fire on time all the same.

    Raises:
        TypeError: A duration is no timedelta, or the engine is none.
        ValueError: A count, a name or a duration makes no sense.

    Example:
        >>> from stepwell import Stepwell, Worker, Workflow, step
        >>> class Hello(Workflow):
        ...     @step
        ...     def say(self):
        ...         self.finish(f"hello, {self.args['name']}")
        >>> well = Stepwell("sqlite:///app.db")
        >>> well.migrate()
        >>> with Worker(well, threads=4):
        ...     Hello.start(name="Ada").result()
        'hello, Ada'
    """

    def __init__(
        self,
        engine: Stepwell,
        queues: Sequence[str] | str = ("default",),
        threads: int = 16,
        *,
        name: str | None = None,
        grace: timedelta = timedelta(seconds=30),
        poll: timedelta = timedelta(seconds=1),
    ) -> None:
        if not isinstance(engine, Stepwell):
            raise TypeError(f"a worker works for an engine, Stepwell(url); got {engine!r}")
        self.engine = engine
        self.queues = _checked_queues(queues)
        self.threads = checked.whole(threads, "threads", least=1)
        made_up = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self.name = made_up if name is None else checked.name(name, "a worker's name")
        self.grace = checked.duration(grace, "grace", zero=True)
        looks_every = checked.duration(poll, "poll").total_seconds()
        self._inbox = Inbox()
        self._loop = LoopThread()
        self._watchdog = Watchdog()
        self._contact = Contact(engine.lease.total_seconds() / 3)
        self._heartbeat = Heartbeat(engine, self._contact, self.name)
        self._claimer = Claimer(engine, self.queues, self.name, self._contact, looks_every)
        self._listener: Listener | None = None
        self._awake = threading.Event()
        self._lock = threading.Lock()
        self._outstanding = 0
        self._is_quick = True
        self._turned_at = 0.0
        self._is_draining = False
        self._is_abandoned = False
        self._signals = 0
        self._sleeps_until = self._parked_until = math.inf
        self._late: list[Claimed] = []
        self._driven: dict[Lease, Claimed] = {}
        self._pool: list[threading.Thread] = []
        self._claiming: threading.Thread | None = None
        self._place = Place(
            worker=self.name,
            should_yield=self._should_yield,
            is_draining=lambda: self._is_draining,
            is_abandoned=lambda: self._is_abandoned,
            run_coroutine=self._loop.run,
            run_limited=self._watchdog.run,
            call_home=self._loop.call_home,
        )

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start working in background threads and return.

        Raises:
            SchemaOutdated: The tables are missing or old; the message says what to run.
            UnsupportedDatabase: The server cannot keep the promises.
        """
        if self._claiming is not None:
            raise StoreError("this worker was started already; make a new one.")
        self.engine.check()
        self.engine.hub.listen(self._hear)
        if self.engine.database.dialect.notifies:
            self._listener = Listener(self.engine.database.engine, self._hear)
            self._listener.start()
        self._heartbeat.start()
        self._pool = [
            threading.Thread(target=self._drive_on, name=f"stepwell-{number}", daemon=True)
            for number in range(self.threads)
        ]
        for thread in self._pool:
            thread.start()
        self._claiming = threading.Thread(target=self._claim_on, name="stepwell-claim", daemon=True)
        self._claiming.start()
        _log.info("worker started", extra={"action": "worker.start", "worker": self.name})

    def stop(self, grace: timedelta | None = None) -> bool:
        """Claim nothing more, let the running bodies end, give the rest back.

        Args:
            grace: How long to wait for running bodies; the worker's ``grace`` by default.

        Returns:
            False if bodies are still running: their leases are renewed until they end.
        """
        allowed = self.grace if grace is None else checked.duration(grace, "grace", zero=True)
        limit = time.monotonic() + allowed.total_seconds()
        self._drain(max(limit, time.monotonic() + _LAST_TICK_SECONDS))
        if not self._wait_until_idle(limit):
            self._loop.cancel_all()
            if not self._wait_until_idle(time.monotonic() + _ASYNC_GRACE):
                tell_overdue(self.name, list(self._driven.values()))
                return False
        self._close()
        return True

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, then stop gracefully and return; a second signal stops at once.

        Bodies that outlast the grace period are given back as ``interrupted``, and the process ends.
        """
        # First of all: a signal that comes while the worker starts must not be lost, nor end it the hard way.
        restore = self._install_handlers()
        try:
            self.start()
            while not self._signals:
                time.sleep(0.2)
            self._stop_by_signal()
        finally:
            restore()

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- claiming --------------------------------------------------------------------------------------------

    def _hear(self, wanted: str) -> None:
        if not wanted or wanted in self.queues:
            self._awake.set()

    def _claims_ahead(self) -> bool:
        """What is claimed ahead is kept from idle workers: only for threads that will be free in no time."""
        if not self._is_quick:
            return False
        is_idle = self._outstanding < self.threads
        return is_idle or time.monotonic() - self._turned_at < _QUICK_SECONDS

    def _room(self) -> int | None:
        """Idle threads, plus one batch in advance so that no thread waits for the next claim.

        None while enough is claimed ahead; 0 if no thread is free, nor will be soon.
        """
        if not self._claims_ahead():
            return max(0, self.threads - self._outstanding)
        room = 2 * self.threads - self._outstanding
        return None if room < max(1, self.threads // 2) else room

    def _claim_on(self) -> None:
        backoff = 0.05
        while not self._is_draining:
            # Reset before looking: whatever comes from here on wakes the next rest, or shortens it.
            self._awake.clear()
            with self._lock:
                self._parked_until = math.inf
            self._give_back_late()
            room = self._room()
            if room is None:
                self._rest(_FULL_SECONDS)
                continue
            try:
                claimed, idle = self._claimer.tick(room)
                backoff = 0.05
            except Exception as error:
                self._report_failed_tick(error)
                time.sleep(backoff)
                backoff = min(backoff * 2, _LONGEST_BACKOFF)
                continue
            if self._is_draining:
                self._give_back([each.lease for each in claimed])
                return
            self._take_on(claimed)
            if not room:
                # It has only looked, for the time slice's sake: are others due?
                self._rest(max(idle, _FULL_SECONDS))
            elif idle:
                self._rest(idle)
        self._give_back([each.lease for each in self._claimer.take_held()])

    def _report_failed_tick(self, error: Exception) -> None:
        unreachable = isinstance(error, AnswerLost | DBAPIError)
        if unreachable:
            self._contact.lost()
        _log.warning(
            "the worker could not look for work; trying again",
            extra={"action": "worker.tick_failed", "worker": self.name, "error": repr(error)},
            exc_info=None if unreachable else error,
        )

    def _rest(self, seconds: float) -> None:
        now = time.monotonic()
        seconds = min(seconds, self._inbox.late_in(_QUICK_SECONDS))
        with self._lock:
            until = self._sleeps_until = min(now + seconds, self._parked_until)
        self._awake.wait(max(0.0, until - now))
        self._sleeps_until = math.inf

    def _take_on(self, claimed: Sequence[Claimed]) -> None:
        with self._lock:
            if self._outstanding < self.threads:
                self._turned_at = time.monotonic()
            self._outstanding += len(claimed)
        for each in claimed:
            self._inbox.put(each)

    def _give_back_late(self) -> None:
        """A run that no thread has become free for goes to whoever has one: ours may be busy for hours."""
        late = self._inbox.take_late(_QUICK_SECONDS)
        if late:
            self._is_quick = False
            # They are due and not ours: a time slice ends for them.
            self._claimer.has_backlog = True
        # No thread may have them any more: one that could not be given back may have been, and its answer lost.
        self._late += late
        if not self._late:
            return
        try:
            give_back_unbegun(self.engine, [(each.lease, each.run.queue) for each in self._late])
        except Exception as error:
            self._report_failed_tick(error)
            return
        with self._lock:
            self._outstanding -= len(self._late)
        self._late = []

    # -- driving ---------------------------------------------------------------------------------------------

    def _drive_on(self) -> None:
        while True:
            claimed = self._inbox.get()
            if claimed is None:
                return
            self._driven[claimed.lease] = claimed
            began_at = self._turned_at = time.monotonic()
            try:
                self._drive(claimed)
            finally:
                del self._driven[claimed.lease]
                self._turned_at = time.monotonic()
                if self._turned_at - began_at < _QUICK_SECONDS:
                    self._is_quick = True
                with self._lock:
                    self._outstanding -= 1
                    wants_more = self._outstanding <= self.threads
                if wants_more:
                    self._awake.set()

    def _drive(self, claimed: Claimed) -> None:
        if self._is_draining:
            self._give_back([claimed.lease])
            return
        try:
            activated = activate(self.engine, claimed.run, claimed.lease, self._place, claimed.history)
        except BaseException:
            # The engine's own fault, not the author's: the lease runs out and the run is recovered.
            _log.exception(
                "an activation failed",
                extra={
                    "action": "activation.failed",
                    "run_id": str(claimed.run.id),
                    "workflow": claimed.run.workflow,
                },
            )
            return
        if activated is None:
            return
        if activated.state in ATTENTION:
            tell_attention(self.engine, claimed.run, activated)
        if activated.wake_at is not None:
            self._look_in_time((activated.wake_at - self.engine.now()).total_seconds())

    def _look_in_time(self, seconds: float) -> None:
        """A run has parked: should its instant be nearer than the claimer's next look, that comes sooner."""
        at = time.monotonic() + seconds
        with self._lock:
            # It may be looking just now, and have missed this one.
            self._parked_until = min(self._parked_until, at)
            is_sooner = at < self._sleeps_until < math.inf
        if is_sooner:
            self._awake.set()

    def _should_yield(self, seconds: float, steps: int) -> bool:
        if self._is_draining:
            return True
        is_used_up = seconds >= _SLICE_SECONDS or steps >= _SLICE_STEPS
        return is_used_up and (self._claimer.has_backlog or len(self._inbox) > 0)

    # -- stopping --------------------------------------------------------------------------------------------

    def _drain(self, limit: float) -> None:
        self._is_draining = True
        self._awake.set()
        self.engine.hub.forget(self._hear)
        if self._claiming is not None:
            self._wait_for(self._claiming, limit)
        giving = threading.Thread(target=self._give_back_queued, name="stepwell-give-back", daemon=True)
        giving.start()
        self._wait_for(giving, limit)
        self._inbox.close(len(self._pool))

    def _wait_for(self, thread: threading.Thread, limit: float) -> None:
        """It may have to wait for the database: on SQLite, for a body that holds the write lock."""
        while thread.is_alive() and time.monotonic() < limit and self._signals <= 1:
            thread.join(timeout=0.05)

    def _give_back_queued(self) -> None:
        """Runs that no thread has begun with go to other workers now, not when a thread is free."""
        queued = [each.lease for each in self._inbox.take_all()]
        if self._claiming is None or not self._claiming.is_alive():
            # Else it is at them just now.
            queued += [each.lease for each in self._late]
            self._late = []
        self._give_back(queued)
        with self._lock:
            self._outstanding -= len(queued)

    def _wait_until_idle(self, limit: float) -> bool:
        while self._outstanding:
            if time.monotonic() >= limit or self._signals > 1:
                return False
            time.sleep(0.02)
        return True

    def _give_back(self, leases: Sequence[Lease]) -> None:
        pairs = [(lease.run_id, lease.token) for lease in leases]
        if not pairs:
            return
        try:
            self.engine.database.repeating(
                lambda connection: self.engine.claims.release(
                    connection, pairs, self.engine.now(), Reason.INTERRUPTED
                ),
                urgent=True,
            )
        except Exception:
            _log.warning("runs could not be given back; their leases will run out", exc_info=True)
        for lease in leases:
            self.engine.leases.remove(lease)

    def _close(self) -> None:
        self._heartbeat.stop()
        if self._listener is not None:
            self._listener.stop()
        self._loop.close()
        self._watchdog.close()
        for thread in self._pool:
            thread.join(timeout=1)
        _log.info("worker stopped", extra={"action": "worker.stop", "worker": self.name})

    # -- signals ---------------------------------------------------------------------------------------------

    def _install_handlers(self) -> Callable[[], None]:
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def count(_number: int, _frame: FrameType | None) -> None:
            # Nothing else: a handler may run in the middle of anything.
            self._signals += 1

        known: dict[int, Any] = {
            number: signal.signal(number, count) for number in (signal.SIGTERM, signal.SIGINT)
        }

        def restore() -> None:
            for number, handler in known.items():
                signal.signal(number, handler)

        return restore

    def _stop_by_signal(self) -> None:
        if not self.stop() or self._signals > 1:
            self._end_process(code=0 if self._signals <= 1 else 1)

    def _end_process(self, code: int) -> NoReturn:
        """The last act: give back what is still running, then end without waiting for it.

        On SQLite a body that holds the write lock keeps even that waiting; its lease runs out then.
        """
        self._is_abandoned = True
        giving = threading.Thread(target=self._give_back, args=(self.engine.leases.held(),), daemon=True)
        giving.start()
        giving.join(timeout=_LAST_ACT_SECONDS)
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _checked_queues(queues: Sequence[str] | str) -> tuple[str, ...]:
    names = (queues,) if isinstance(queues, str) else tuple(queues)
    if not names:
        raise ValueError('a worker needs at least one queue: Worker(well, ["default"])')
    return tuple(checked.name(name, "a queue's name") for name in names)
