"""A run from outside: what it is, what it waits for, and what a person can do to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from stepwell.clock import later, require_aware, require_duration
from stepwell.definition.registry import find_workflow
from stepwell.definition.runtime import current
from stepwell.definition.starting import StartOptions
from stepwell.engine.contexts import RunContext
from stepwell.engine.explaining import explain
from stepwell.engine.step_executions import StepExecution, decoded, stored_journal
from stepwell.errors import (
    DefinitionError,
    ResultTimeout,
    RunCanceled,
    RunError,
    RunFailed,
    RunNotFound,
    UnknownWorkflow,
)
from stepwell.states import Kind, RunState
from stepwell.store.children import successor_of
from stepwell.store.commands import Answer
from stepwell.store.mailbox import unread_changes, unread_names
from stepwell.store.reads import find_run, history
from stepwell.store.rows import RunRow
from stepwell.texts import storable_or_none

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["Run", "has_hook"]

_FIRST_POLL: Final = 0.005
_LONGEST_POLL: Final = 0.5
_PATIENCE: Final = 30.0
_NO_CALLS: Final = frozenset({Kind.COMMAND, Kind.BODY, Kind.RECOVERY, Kind.CONTEXT})


class Run:
    """A handle on one run. Every property is read from the database when it is asked for.

    Attributes:
        id: The run's id, a UUIDv7.
        created: False when ``on_conflict="skip"`` answered with a run that existed already.
    """

    __slots__ = ("_engine", "created", "id")

    def __init__(self, engine: Stepwell, run_id: UUID, *, created: bool = True) -> None:
        self._engine = engine
        self.id = run_id
        self.created = created

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # -- what it is ---------------------------------------------------------------------------------------------

    def info(self) -> RunRow:
        """The run's row as it is now, in one read.

        Raises:
            RunNotFound: The row is gone.
        """
        with self._engine.reading() as connection:
            row = find_run(connection, self.id)
        if row is None:
            raise RunNotFound.of(self.id)
        return row

    @property
    def state(self) -> RunState:
        """Where the run stands."""
        return RunState(self.info().state)

    @property
    def reason(self) -> str | None:
        """Why it stands there, where the state alone does not say it."""
        return self.info().reason

    @property
    def workflow(self) -> str:
        """The workflow's stable name."""
        return self.info().workflow

    @property
    def successor(self) -> Run | None:
        """The run that goes on in this one's place, if it was started over."""
        found = successor_of(self.info())
        return None if found is None else Run(self._engine, found, created=False)

    @property
    def current_step(self) -> str | None:
        """The step that the run is at; None past the last one."""
        return self.info().current_step

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments of the start; records are references."""
        return MappingProxyType(dict(self._decoded(self.info().args, "arguments")))

    @property
    def context(self) -> RunContext:
        """The run's context as of its last finished step; ``run.context.update(…)`` changes it from outside."""
        return RunContext.of(self._engine, self.id)

    @property
    def steps(self) -> Sequence[StepExecution]:
        """The run's journal: every attempt, wait and command, in order."""
        return [decoded(row, self._engine.codec) for row in stored_journal(self._engine, self.id)]

    def result(self, timeout: timedelta | None = None) -> Any:
        """Wait for the end of the run and answer its result; where it was started over, that of the last one.

        Args:
            timeout: How long to wait; None waits as long as it takes, zero does not wait.

        Raises:
            RunFailed: The run has failed (it can be resumed).
            RunCanceled: It was canceled.
            ResultTimeout: It is not over yet.
            RunError: Called inside a step, which would hold a worker's thread for another run.
        """
        if current.get() is not None:
            raise RunError(
                "result() waits, and a step must not wait for another run, nor must the body of run(): its thread "
                "would be blocked. Write self.call(OtherWorkflow, ...) in run(), or awaits=Child(...) at a declared "
                "step."
            )
        limit = None
        if timeout is not None:
            limit = time.monotonic() + require_duration(timeout, "timeout").total_seconds()
        pause, seen, run = _FIRST_POLL, 0, self
        while True:
            row = run._info_in_time(limit)
            successor = successor_of(row)
            if successor is not None:
                run = Run(self._engine, successor)
                continue
            if row.state == RunState.COMPLETED:
                return None if row.result is None else self._decoded(row.result, "result")
            self._raise_if_stopped(row)
            left = None if limit is None else limit - time.monotonic()
            if left is not None and left <= 0:
                raise ResultTimeout(f"run {row.id} is {row.state} after {timeout}: {run.explain()}")
            seen = self._engine.hub.wait_for_ending(seen, pause if left is None else min(pause, left))
            pause = min(pause * 1.5, _LONGEST_POLL)

    def _info_in_time(self, limit: float | None) -> RunRow:
        """The row; a connection that broke is made anew, for as long as there is time, and half a minute at most."""
        give_up = time.monotonic() + _PATIENCE
        while True:
            try:
                return self.info()
            except DBAPIError as error:
                late = time.monotonic() >= (give_up if limit is None else min(limit, give_up))
                if late or not self._engine.database.is_connection_error(error):
                    raise
                time.sleep(_LONGEST_POLL)

    def _raise_if_stopped(self, row: RunRow) -> None:
        if row.state == RunState.FAILED:
            raise RunFailed(
                row.id, row.reason or "", error_class=row.error_class, error_message=row.error_message
            )
        if row.state == RunState.CANCELED:
            raise RunCanceled(f"run {row.id} was canceled ({row.reason or 'no reason given'}).")

    def explain(self) -> str:
        """What the run waits for, since when, and who can release it, as a sentence or two."""
        with self._engine.reading() as connection:
            row = find_run(connection, self.id)
            journal = history(connection, self.id)
            unread, changes = unread_names(connection, self.id), unread_changes(connection, self.id)
        if row is None:
            raise RunNotFound.of(self.id)
        return explain(row, journal, self._engine.now(), unread, changes)

    def _decoded(self, text: str, what: str) -> Any:
        return self._engine.codec.loads(text, what=f"{what} of run {self.id}")

    # -- what a person can do -----------------------------------------------------------------------------------

    def pause(self, reason: str | None = None, *, by: str | None = None) -> Answer:
        """Stop the run until ``resume()``; what it is scheduled for, and when, is kept.

        Durability:
            Committed when this returns, with who did it and why in the journal. On a run that is being driven it is a
            request: the step that runs finishes and is journaled, then the run pauses. So it is on one that nobody
            drives, if its class is loaded here and has ``on_pause``: a worker takes the run up and calls the hook.

        Args:
            reason: Why, for whoever looks at the run.
            by: Who does it, for the history.

        Returns:
            ``done``, ``requested`` or ``unchanged``.

        Raises:
            InvalidTransition: The run is over, or failed.
        """
        why, who = storable_or_none(reason), storable_or_none(by)
        pause, is_heard = self._engine.commands.pause, has_hook("on_pause")
        return self._engine.command(self.id, "pause", lambda c, at: pause(c, self.id, at, why, who, is_heard))

    def resume(
        self, *, from_step: str | None = None, new_keys: bool = False, by: str | None = None
    ) -> Answer:
        """Go on from where the run stopped; an instant that is still ahead is kept, attempts are counted anew.

        If ``run()`` has failed with a recorded error, such as the ``StepFailed`` of a step, that call is made once
        more, and what came before it stays.

        On a live run it withdraws a pause that was not honoured yet.

        Args:
            from_step: Go on from this step, earlier or later, and not from where the run stopped. What is recorded of
                it and of all that came after it began stays in the history and counts no more: these steps run again,
                and wait again for what they wait for. ``context`` and what the steps have written stay as they are.
                In a class with ``run()`` it is the first call of this name, be it a step or a wait; ``context`` is
                there what the calls before it have made of it.
            new_keys: Give these steps new idempotency keys. By default the keys stay: a payment that was made is not
                made again.
            by: Who does it, for the history.

        Durability:
            Committed when this returns, the rewind with it.

        Raises:
            InvalidTransition: The run is over; with ``from_step``, it is neither paused nor failed.
            RunError: The class is loaded here and has no such step; one with ``run()`` has not come to it yet.
        """
        who = storable_or_none(by)
        if from_step is not None:
            self._check_step(from_step)
            rewind, children = self._engine.commands.rewind, self._engine.children
            called = children.called_by(self.id)
            answer = self._engine.command(
                self.id, "resume", lambda c, at: rewind(c, self.id, at, who, from_step, new_keys=new_keys)
            )
            # What it waited for is called anew where it comes there again.
            children.cancel(called, "the run that called it was taken back")
            return answer
        if new_keys:
            raise RunError(
                "new_keys=True makes new keys for the steps that run again: say from which, from_step=."
            )
        return self._engine.command(
            self.id, "resume", lambda c, at: self._engine.commands.resume(c, self.id, at, who)
        )

    def _check_step(self, name: str) -> None:
        """Raise if the run's class is loaded here and has no step of this name that could run."""
        try:
            plan = find_workflow(self.info().workflow).plan
        except (UnknownWorkflow, DefinitionError):
            return  # Another process knows it, and the person who asks.
        if plan.is_procedural:
            self._check_recorded(name)
            return
        names = [spec.name for spec in plan.steps if not spec.is_removed]
        if name not in names:
            raise RunError(f"{plan.workflow} has no step {name!r} to go on from; it has {', '.join(names)}.")

    def _check_recorded(self, name: str) -> None:
        """Raise if ``run()`` has not come to a call of this name: what it would do then is not known."""
        with self._engine.reading() as connection:
            rows = history(connection, self.id)
        recorded = {row.name: None for row in rows if row.superseded_at is None and row.kind not in _NO_CALLS}
        if name not in recorded:
            raise RunError(
                f"run() of run {self.id} has come to no step or wait {name!r} yet, so it cannot go on from there; it "
                f"has come to {', '.join(recorded) or 'none'}."
            )

    def skip(self, reason: str | None = None, *, by: str | None = None) -> Answer:
        """Leave the step that the run is at as skipped and go on with the next, also from paused and failed.

        On a run that is being driven the step that runs now finishes first; then the request is void.

        Args:
            reason: Why, for whoever looks at the run.
            by: Who does it, for the history.

        Raises:
            InvalidTransition: The run is over.
        """
        why, who = storable_or_none(reason), storable_or_none(by)
        skip, meant = self._engine.commands.skip, set[str]()
        return self._engine.command(self.id, "skip", lambda c, at: skip(c, self.id, at, why, who, meant))

    def cancel(self, reason: str | None = None, *, by: str | None = None, now: bool = False) -> Answer:
        """End the run; its identity is free again.

        A run that is canceled already is ``unchanged``: to say it again is harmless.

        Args:
            reason: Why, for whoever looks at the run.
            by: Who does it, for the history.
            now: An ``async`` body that is running is not waited for: it is cancelled at its ``await``, at once by a
                worker in this process, and by any other with its next renewal of the lease. Other bodies are only told,
                by ``self.stop_requested``.

        Durability:
            Committed when this returns, with who did it and why in the journal. On a run that is being driven it is a
            request, honoured after the step that runs; what that step wrote is kept. So it is on one that nobody
            drives, if its class is loaded here and has ``on_cancel``: a worker takes the run up and calls the hook.

        Raises:
            InvalidTransition: The run is completed.
        """
        why, who = storable_or_none(reason), storable_or_none(by)
        cancel, is_heard = self._engine.commands.cancel, has_hook("on_cancel")
        answer = self._engine.command(
            self.id, "cancel", lambda c, at: cancel(c, self.id, at, why, who, is_heard, now)
        )
        if now and answer is Answer.REQUESTED and current.get() is None:
            self._engine.leases.stop_coroutine(self.id)
        return answer

    def signal(
        self,
        name: str,
        payload: Any = None,
        *,
        idempotency_key: str | None = None,
        session: Any = None,
        connection: Any = None,
    ) -> bool:
        """Send the run a signal; it is kept until the run waits for it, also while paused or failed.

        Args:
            name: The signal's name.
            payload: Anything that a step's result may be; the step that awaits the signal receives it.
            idempotency_key: Of several signals of this name with the same key the first one counts: for webhooks that
                are delivered twice.
            session: Send it if and only if this session's transaction commits.
            connection: The same with a connection.

        Durability:
            Committed when this returns, or with the caller's transaction. Inside a step it is sent with the step's
            journal entry: exactly once, or not at all.

        Returns:
            False if a signal with this idempotency key was sent before.

        Raises:
            RunNotLive: The run is over.
            RunNotFound: There is no such run.
            Unstorable: The payload cannot be stored.
        """
        options = StartOptions(session=session, connection=connection)
        return self._engine.signals.send(
            self.id, name, payload, idempotency_key=idempotency_key, options=options
        )

    def wake(self, *, session: Any = None, connection: Any = None) -> None:
        """Make the run look at its gate again; on a run that waits for nothing, or is over, it does nothing.

        Args:
            session: Wake it if and only if this session's transaction commits.
            connection: The same with a connection.
        """
        self._engine.signals.wake(self.id, StartOptions(session=session, connection=connection))

    def reschedule(self, at: datetime | timedelta | None = None) -> Answer:
        """Move the instant of a parked run: an aware instant, or a duration from now; by default now.

        What it is parked for stays: for a step that polls, this is the instant of the next look. A ``wait_until=`` is
        not asked again before the new instant has come.

        Raises:
            InvalidTransition: The run is not parked.
        """
        if isinstance(at, datetime):
            require_aware(at, "at")
        elif at is not None:
            require_duration(at, "at")

        def instant(now: datetime) -> datetime:
            return later(now, at) if isinstance(at, timedelta) else at or now

        return self._engine.command(
            self.id,
            "reschedule",
            lambda c, now: self._engine.commands.reschedule(c, self.id, now, instant(now)),
        )


def has_hook(name: str) -> Callable[[str], bool]:
    """Whether the class of a workflow's name is loaded here and overrides this hook."""

    def answer(workflow: str) -> bool:
        try:
            return name in find_workflow(workflow).plan.hooks
        except (UnknownWorkflow, DefinitionError):
            return False  # Whoever knows it is not here: to wait for that might take for ever.

    return answer
