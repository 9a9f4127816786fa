"""Sending signals and wakes: a row in the run's mailbox, and a nudge.

In a transaction of its own the run's row comes first: it is bumped, then the signal is inserted. In a caller's
transaction, and in a step's, nothing but an insert happens: the run's row must not be locked for as long as somebody
else's transaction takes. The nudge follows after the commit; if it never comes, any worker's tick makes up for it.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Connection

from stepwell.definition.starting import StartOptions
from stepwell.engine.transactions import current_step_scope, place_of
from stepwell.errors import RunNotFound, RunNotLive
from stepwell.observer import EventKind
from stepwell.states import TERMINAL
from stepwell.store.mailbox import Message, insert_signal, settle_pending, wake
from stepwell.store.reads import find_run

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["PAYLOAD_LIMIT", "Signals"]

PAYLOAD_LIMIT: Final = 1024 * 1024


class Signals:
    """Sends signals to runs of one engine."""

    def __init__(self, engine: Stepwell) -> None:
        self._engine = engine

    def send(
        self,
        run_id: UUID,
        name: str,
        payload: object,
        *,
        idempotency_key: str | None,
        options: StartOptions,
    ) -> bool:
        """Send one; answer False if one with this key was sent already (see ``Run.signal``)."""
        text = self._engine.codec.dumps(payload, what=f"payload of signal {name!r}", limit=PAYLOAD_LIMIT)
        return self._put(run_id, name, text, idempotency_key, options)

    def wake(self, run_id: UUID, options: StartOptions) -> None:
        """Make the run look again (see ``Run.wake``)."""
        if (
            options.session is None
            and options.connection is None
            and current_step_scope(self._engine) is None
        ):
            self._nudge(run_id, ())
            return
        # A wake in somebody's transaction is a row without a name, so that it cannot be lost either.
        self._put(run_id, None, None, None, options)

    def _put(
        self, run_id: UUID, name: str | None, payload: str | None, key: str | None, options: StartOptions
    ) -> bool:
        engine = self._engine
        engine.connect()
        runtime = current_step_scope(engine)
        message = Message(run_id, name, payload, key)
        if runtime is not None and options.session is None and options.connection is None:
            # Inserted with the step's end, not now: a step should not open its transaction for this.
            scope: Any = runtime.scope
            scope.at_commit.append(
                lambda connection: self._insert_pending(connection, message, scope.after_commit)
            )
            return True
        place = place_of(engine, options)
        if not place.is_callers:
            queue = engine.database.repeating(lambda connection: self._insert_and_wake(connection, message))
            if queue is not None:
                engine.wake_queue(queue)
                engine.observe(EventKind.SIGNAL, run_id, name=name)
            return queue is not None
        after: list[Any] = []
        sent = place.do(lambda connection: self._insert_pending(connection, message, after))
        for call in after:
            place.after_commit(call)
        return sent

    def _insert_and_wake(self, connection: Connection, message: Message) -> str | None:
        """The run's row first, then the signal; the queue of the run, or None if the signal was there already."""
        now = self._engine.now()
        wake(connection, [message.run_id], now)
        queue = self._check_open(connection, message.run_id)
        sent = insert_signal(connection, self._engine.database.dialect, message, now)
        return None if sent is None else queue

    def _insert_pending(self, connection: Connection, message: Message, after: list[Any]) -> bool:
        self._check_open(connection, message.run_id)
        now = self._engine.now()
        signal_id = insert_signal(connection, self._engine.database.dialect, message, now, is_pending=True)
        if signal_id is not None:
            after.append(lambda: self._nudge(message.run_id, (signal_id,)))
        return signal_id is not None

    def _check_open(self, connection: Connection, run_id: UUID) -> str:
        """The queue of a run that can still read signals."""
        run = find_run(connection, run_id)
        if run is None:
            raise RunNotFound(f"there is no run {run_id}: nobody will read the signal.")
        if run.state in TERMINAL:
            raise RunNotLive(f"run {run_id} is {run.state}: it is over and reads no signals any more.")
        return run.queue

    def _nudge(self, run_id: UUID, signal_ids: tuple[int, ...]) -> None:
        engine = self._engine

        def work(connection: Connection) -> str | None:
            now: datetime = engine.now()
            wake(connection, [run_id], now)
            settle_pending(connection, signal_ids)
            run = find_run(connection, run_id)
            return None if run is None else run.lane

        queue = engine.database.repeating(work)
        if queue is not None:
            engine.wake_queue(queue)
