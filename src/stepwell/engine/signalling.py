"""Sending signals, wakes and changes of the context: a row in the run's mailbox, and a nudge.

In a transaction of its own the run's row comes first: it is bumped, then the signal is inserted. In a caller's
transaction, and in a step's, nothing but an insert happens: the run's row must not be locked for as long as somebody
else's transaction takes. The nudge follows after the commit; if it never comes, any worker's tick makes up for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Connection

from stepwell.definition.checks import broken_name
from stepwell.definition.registry import find_workflow
from stepwell.definition.starting import StartOptions
from stepwell.engine.transactions import current_step_scope, place_of
from stepwell.errors import DefinitionError, RunError, RunNotFound, RunNotLive, UnknownWorkflow
from stepwell.ids import new_token
from stepwell.logs import facts_logger
from stepwell.observer import EventKind
from stepwell.requests import CONTEXT_MAIL, ContextChange
from stepwell.states import TERMINAL
from stepwell.store.children import successor_of
from stepwell.store.commands import Answer
from stepwell.store.mailbox import Message, find_sent, forward, insert_signal, settle_pending, wake
from stepwell.store.reads import find_run
from stepwell.store.rows import RunRow

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["PAYLOAD_LIMIT", "Signals"]

_log = facts_logger(__name__)
PAYLOAD_LIMIT: Final = 1024 * 1024


class _Moved(Exception):
    """The run was started over: another one reads its signals."""

    def __init__(self, successor: UUID) -> None:
        super().__init__()
        self.successor = successor


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
        for what, value in (("a signal's name", name), ("idempotency_key", idempotency_key)):
            problem = None if value is None and what == "idempotency_key" else broken_name(value)
            if problem:
                raise RunError(f"{what} {problem}.")
        text = self._engine.codec.dumps(payload, what=f"payload of signal {name!r}", limit=PAYLOAD_LIMIT)
        return self._put(Message(run_id, name, text, idempotency_key), options)

    def wake(self, run_id: UUID, options: StartOptions) -> None:
        """Make the run look again (see ``Run.wake``)."""
        is_own = options.session is None and options.connection is None
        if is_own and current_step_scope(self._engine) is None:
            self._nudge(run_id, ())
            return
        # A wake in somebody's transaction is a row without a name, so that it cannot be lost either.
        self._put(Message(run_id, None), options)

    def change_context(self, run_id: UUID, change: ContextChange, options: StartOptions) -> None:
        """Have the run's context changed (see ``RunContext.update``)."""
        self._put(Message(run_id, CONTEXT_MAIL, change.text()), options)

    def _put(self, message: Message, options: StartOptions) -> bool:
        while True:
            try:
                return self._put_once(message, options)
            except _Moved as moved:
                message = replace(message, run_id=moved.successor)

    def _put_once(self, message: Message, options: StartOptions) -> bool:
        engine = self._engine
        engine.connect()
        runtime = current_step_scope(engine)
        if runtime is not None and options.session is None and options.connection is None:
            return self._put_with_step(runtime.scope, message)
        place = place_of(engine, options)
        if not place.is_callers:
            return self._put_alone(message)
        after: list[Callable[[], None]] = []

        def insert(connection: Connection) -> bool:
            is_in_reach = self._is_in_reach(message)
            if self._find_reader(connection, message) is None:
                return False
            is_sent = self._insert_pending(connection, message, after)
            if is_sent and is_in_reach:
                # Nobody waits for its row because of that: it is the caller's own, or has the whole file to itself.
                wake(connection, [message.run_id], engine.now())
            return is_sent

        sent = place.do(insert)
        for call in after:
            place.after_commit(call)
        return sent

    # -- in a transaction of its own ------------------------------------------------------------------------------

    def _put_alone(self, message: Message) -> bool:
        engine = self._engine
        # Without a key of the sender's it has one of its own, by which it is found if the commit is not answered.
        marked = (
            message if message.idempotency_key else replace(message, idempotency_key=f"~{new_token().hex}")
        )
        ours: set[int] = set()
        tries = 0

        def is_done(connection: Connection) -> bool:
            # An id is given once: if that of an earlier try is there, its commit was done and not answered.
            return bool(ours) and find_sent(connection, marked) in ours

        def insert_and_wake(connection: Connection) -> tuple[bool, str]:
            nonlocal tries
            tries += 1
            if is_done(connection):
                # By now its reader may be over.
                run = find_run(connection, message.run_id)
                return True, run.queue if run else ""
            now = engine.now()
            # The run's row first: the order in which everybody locks.
            wake(connection, [message.run_id], now)
            run = self._find_reader(connection, message)
            is_new = marked is not message and tries == 1
            signal_id = insert_signal(connection, engine.database.dialect, marked, now, is_new=is_new)
            if signal_id is not None:
                ours.add(signal_id)
            # A commit that was still under way at the first look has let go of the run's row by now.
            return signal_id is not None or is_done(connection), run.queue if run else ""

        sent, queue = engine.database.repeating(insert_and_wake)
        if sent:
            engine.wake_queue(queue)
            self._tell(message)
        return sent

    # -- in somebody else's ---------------------------------------------------------------------------------------

    def _put_with_step(self, scope: Any, message: Message) -> bool:
        """With the step's end, and not now: a step should not open its transaction for this."""
        with self._engine.reading() as connection:
            run = self._find_reader(connection, message)
            sent = (message.run_id, message.name, message.idempotency_key)
            is_known = sent in scope.sent or find_sent(connection, message) is not None
        if run is None or is_known:
            return False
        if message.idempotency_key is not None:
            scope.sent.add(sent)

        def insert(connection: Connection) -> None:
            # The run may be over by now: that is no fault of this step, and nobody reads it.
            if find_run(connection, message.run_id) is not None:
                self._insert_pending(connection, message, scope.after_commit)

        scope.at_commit.append(insert)
        return True

    def _insert_pending(
        self, connection: Connection, message: Message, after: list[Callable[[], None]]
    ) -> bool:
        engine, now = self._engine, self._engine.now()
        signal_id = insert_signal(connection, engine.database.dialect, message, now, is_pending=True)
        if signal_id is None:
            return False

        def follow() -> None:
            self._nudge(message.run_id, (signal_id,))
            self._tell(message)

        after.append(follow)
        return True

    def _tell(self, message: Message) -> None:
        if message.name == CONTEXT_MAIL:
            self._engine.observe(
                EventKind.COMMAND, message.run_id, verb="update", answer=Answer.REQUESTED.value
            )
        elif message.name is not None:
            self._engine.observe(EventKind.SIGNAL, message.run_id, name=message.name)

    def _is_in_reach(self, message: Message) -> bool:
        """The caller's transaction may touch the run's row: no worker does, as long as that transaction is open.

        Raises:
            RunNotLive: It is over by now, though that transaction may show it as it was when it began.
        """
        if self._engine.database.dialect.has_one_writer:
            return True
        with self._engine.database.read() as connection:
            run = find_run(connection, message.run_id)
            if run is not None and run.state in TERMINAL:
                self._find_reader(connection, message)
        return run is None

    @staticmethod
    def _find_reader(connection: Connection, message: Message) -> RunRow | None:
        """The run that can still read it; None for a wake that nobody needs."""
        run = find_run(connection, message.run_id)
        if run is not None and run.state not in TERMINAL:
            if message.name not in (None, CONTEXT_MAIL):
                _warn_of_unknown(run, message.name)
            return run
        successor = None if run is None else successor_of(run)
        if successor is not None:
            raise _Moved(successor)
        if message.name is None:
            return None
        is_change = message.name == CONTEXT_MAIL
        if run is None:
            vain = "nothing was changed" if is_change else "nobody will read the signal"
            raise RunNotFound(f"there is no run {message.run_id}: {vain}.")
        vain = "its context changes no more" if is_change else "reads no signals any more"
        raise RunNotLive(f"run {run.id} is {run.state}: it is over and {vain}.")

    def _nudge(self, run_id: UUID, signal_ids: tuple[int, ...]) -> None:
        engine = self._engine

        def work(connection: Connection) -> str | None:
            now: datetime = engine.now()
            wake(connection, [run_id], now)
            settle_pending(connection, signal_ids)
            # It may have been started over while the sender's transaction was open.
            run = find_run(connection, forward(connection, run_id, now))
            return None if run is None else run.lane

        queue = engine.database.repeating(work)
        if queue is not None:
            engine.wake_queue(queue)


def _warn_of_unknown(run: RunRow, name: str) -> None:
    """No step of the run's class awaits such a signal: it is kept, since a later version may; or it is a slip."""
    try:
        plan = find_workflow(run.workflow).plan
    except (UnknownWorkflow, DefinitionError):
        return
    known = {spec.awaits.name for spec in plan.steps if spec.awaits is not None}
    if name in known or plan.is_procedural:
        return
    _log.warning(
        "no step of this workflow awaits this signal; it is kept all the same",
        extra={
            "action": "signal.unknown",
            "run_id": str(run.id),
            "workflow": run.workflow,
            "signal": name,
            "known": sorted(known),
        },
    )
