"""What a person does to a run from outside. Each function locks the run's row first, in the caller's transaction.

On a run that nobody holds a command acts at once, and is journaled. On a running one it leaves a request on the row
and bumps ``wakeups``, so that a park which did not see the request is refused; whoever honours it journals it. So it is
on a run that nobody holds whose class wants to hear of it: that takes a worker, and the run is made ready for one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, bindparam, select, update

from stepwell.errors import InvalidTransition, RunNotFound
from stepwell.requests import StopRequest
from stepwell.states import ATTENTION, VERBS, Reason, RunState
from stepwell.store.deeds import call_off, is_just_rewound, move_scheduled, note, supersede, try_escaped_anew
from stepwell.store.dialects import Dialect
from stepwell.store.mailbox import details_with_unread
from stepwell.store.rows import RUN, RunRow
from stepwell.store.schema import runs

__all__ = ["Answer", "Commands", "Done", "holds_identity_for_ever"]


class Answer(StrEnum):
    """What came of a command."""

    DONE = "done"
    REQUESTED = "requested"
    """The worker that drives the run, or the one that takes it up next, honours it at the next boundary."""
    UNCHANGED = "unchanged"
    """Nothing to do: the run is there already, or a stronger request stands."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a command, and which queue has something to do now."""

    answer: Answer
    ready_in: str | None = None
    successor: UUID | None = None
    parent: UUID | None = None


_UNCHANGED: Final = Done(Answer.UNCHANGED)
_REQUESTED: Final = Done(Answer.REQUESTED)


def _nobody(workflow: str) -> bool:
    return False


class Commands:
    """The outside commands on one database product; each method takes an open connection."""

    def __init__(self, dialect: Dialect) -> None:
        self._find = select(*RUN.columns).where(runs.c.id == bindparam("id"))
        if dialect.skips_locked_rows:
            self._find = self._find.with_for_update(of=runs)

    def lock(self, connection: Connection, run_id: UUID, verb: str) -> RunRow:
        """The run's newest row, locked.

        Raises:
            RunNotFound: There is none.
            InvalidTransition: Its state does not allow the verb.
        """
        run = RUN.one(connection.execute(self._find, {"id": run_id}).first())
        if run is None:
            raise RunNotFound.of(run_id)
        allowed = VERBS[verb]
        if run.state not in allowed:
            raise InvalidTransition(run_id, run.state, verb, allowed)
        return run

    def pause(
        self,
        connection: Connection,
        run_id: UUID,
        now: datetime,
        reason: str | None,
        by: str | None,
        is_heard: Callable[[str], bool] = _nobody,
    ) -> Done:
        """Stop the run; what it is scheduled for, and when, is kept in its journal.

        ``is_heard`` says of a class's name whether it has a hook for that: then it takes a worker, who calls it.
        """
        run = self.lock(connection, run_id, "pause")
        request = StopRequest("pause", reason, by, now, run.current_step)
        if run.state == RunState.RUNNING:
            return _ask(connection, run, request)
        standing = StopRequest.parse(run.stop_request)
        if run.state == RunState.PAUSED or (standing is not None and standing.beats("pause")):
            return _UNCHANGED
        if is_heard(run.workflow):
            return _ask_next(connection, run, request, now)
        _change(
            connection,
            run,
            now,
            state=RunState.PAUSED,
            reason=reason,
            lane=None,
            wake_at=None,
            stop_request=_without(run, "pause"),
        )
        note(connection, run, "pause", now, by, reason=reason)
        return Done(Answer.DONE)

    def resume(self, connection: Connection, run_id: UUID, now: datetime, by: str | None) -> Done:
        """Go on from where it stopped; the count of attempts and of lost workers begins anew.

        An instant that is still ahead is kept: the run is looked at now and parks again for what remains.
        """
        run = self.lock(connection, run_id, "resume")
        if run.state not in ATTENTION:
            return self._withdraw_pause(connection, run, now)
        try_escaped_anew(connection, run, now, "resume")
        note(connection, run, "resume", now, by)
        # What else was asked for before the pause still stands.
        _begin_anew(connection, run, now, stop_request=_without(run, "pause"))
        return Done(Answer.DONE, ready_in=run.queue)

    def rewind(
        self,
        connection: Connection,
        run_id: UUID,
        now: datetime,
        by: str | None,
        step: str,
        *,
        new_keys: bool,
    ) -> Done:
        """Go on from a step: what is recorded of it, and of all that came after it began, answers nothing any more.

        What a person did stays: it is no step's, and says how often the keys of the steps were made anew.
        """
        run = self.lock(connection, run_id, "resume")
        if run.state not in ATTENTION:
            if is_just_rewound(connection, run, step):
                return _UNCHANGED
            raise InvalidTransition(run_id, run.state, "resume(from_step=)", ATTENTION)
        # What the run stood at is over, also where it goes on behind it.
        call_off(connection, run, now)
        supersede(connection, run, step, now)
        note(connection, run, "resume", now, by, from_step=step, new_keys=new_keys)
        _begin_anew(connection, run, now, current_step=step, stop_request=_without(run, "pause", "skip"))
        return Done(Answer.DONE, ready_in=run.queue)

    def _withdraw_pause(self, connection: Connection, run: RunRow, now: datetime) -> Done:
        if run.stop_request is None or _without(run, "pause") is not None:
            return _UNCHANGED
        _change(connection, run, now, stop_request=None)
        return Done(Answer.DONE)

    def skip(
        self,
        connection: Connection,
        run_id: UUID,
        now: datetime,
        reason: str | None,
        by: str | None,
        meant: set[str] | None = None,
    ) -> Done:
        """Leave the step that the run is at now as skipped, and go on with the next, also from ``paused``.

        ``meant`` takes up that step: called again with it, since an answer was lost, the command means no other one.
        """
        run = self.lock(connection, run_id, "skip")
        standing = StopRequest.parse(run.stop_request)
        if run.current_step is None or (standing is not None and standing.beats("skip")):
            return _UNCHANGED
        if meant and run.current_step not in meant:
            return _UNCHANGED
        if (
            standing is not None
            and (standing.verb, standing.step) == ("skip", run.current_step)
            and run.state != RunState.RUNNING
        ):
            # Asked for already, and not done yet: that is about this one step.
            return _UNCHANGED
        if meant is not None:
            meant.add(run.current_step)
        request = StopRequest("skip", reason, by, now, run.current_step)
        if run.state == RunState.RUNNING:
            return _ask(connection, run, request)
        if run.state in ATTENTION:
            note(connection, run, "skip", now, by, reason=reason)
            # What run() did about its error comes after the call that failed, which is the one to be left out.
            request = replace(request, step=try_escaped_anew(connection, run, now, "skip") or request.step)
        _begin_anew(connection, run, now, stop_request=replace(request, was=run.state).text())
        return Done(Answer.DONE, ready_in=run.queue)

    def cancel(
        self,
        connection: Connection,
        run_id: UUID,
        now: datetime,
        reason: str | None,
        by: str | None,
        is_heard: Callable[[str], bool] = _nobody,
        is_urgent: bool = False,
    ) -> Done:
        """End the run; its identity is free again.

        ``is_heard`` says of a class's name whether it has a hook for that: then it takes a worker, who calls it.
        """
        run = self.lock(connection, run_id, "cancel")
        if run.state == RunState.CANCELED:
            # Perhaps by this very command, whose answer was lost: whom its end concerns has not been told then.
            return replace(_UNCHANGED, parent=run.parent_id)
        request = StopRequest("cancel", reason, by, now, run.current_step, is_urgent=is_urgent)
        if run.state == RunState.RUNNING:
            return _ask(connection, run, request)
        if is_heard(run.workflow):
            return _ask_next(connection, run, request, now)
        keeps = holds_identity_for_ever(run.options)
        _change(
            connection,
            run,
            now,
            state=RunState.CANCELED,
            reason=reason,
            active_key=run.active_key if keeps else None,
            open_branch=None,
            lane=None,
            wake_at=None,
            stop_request=None,
            finished_at=now,
            details=details_with_unread(connection, run) if run.wakeups else run.details,
        )
        call_off(connection, run, now)
        note(connection, run, "cancel", now, by, reason=reason)
        standing = StopRequest.parse(run.stop_request)
        successor = None if standing is None else standing.successor
        return Done(Answer.DONE, successor=successor, parent=run.parent_id)

    def reschedule(self, connection: Connection, run_id: UUID, now: datetime, at: datetime) -> Done:
        """Move the instant of a parked run; what it is parked for stays."""
        run = self.lock(connection, run_id, "reschedule")
        if run.stop_request is not None:
            # Its last worker was lost with it: whoever claims the run next has that to do first, and at once.
            return _UNCHANGED
        move_scheduled(connection, run, at)
        if at <= now:
            _make_ready(connection, run, now)
            return Done(Answer.DONE, ready_in=run.queue)
        reason = run.reason or Reason.TIMER
        _change(
            connection, run, now, state=RunState.WAITING, lane=None, due_at=None, wake_at=at, reason=reason
        )
        return Done(Answer.DONE)


def holds_identity_for_ever(options: str | None) -> bool:
    """The run's class says that an identity is used once."""
    try:
        return bool(json.loads(options or "{}").get("unique_for") == "ever")
    except (ValueError, AttributeError):
        return False


def _without(run: RunRow, *verbs: str) -> str | None:
    """What is asked of the run, unless it is one of these, or cannot be read."""
    standing = StopRequest.parse(run.stop_request)
    return None if standing is None or standing.verb in verbs else run.stop_request


def _ask(connection: Connection, run: RunRow, request: StopRequest) -> Done:
    """Leave a request for whoever drives the run: cancel beats pause beats skip."""
    standing = StopRequest.parse(run.stop_request)
    if standing is not None and not request.beats(standing.verb):
        if standing.verb != request.verb:
            return _UNCHANGED
        if standing.is_urgent or not request.is_urgent:
            return _REQUESTED
        # Who asked first, and why, is told of.
        request = replace(standing, is_urgent=True)
    connection.execute(
        update(runs)
        .where(runs.c.id == run.id)
        .values(stop_request=request.text(), wakeups=runs.c.wakeups + 1)
    )
    return _REQUESTED


def _ask_next(connection: Connection, run: RunRow, request: StopRequest, now: datetime) -> Done:
    """Leave a request for whoever takes up the run, which nobody drives: it is due for that at once."""
    request = replace(request, was=run.state)
    if run.state == RunState.READY:
        # It keeps its place in the queue.
        return _ask(connection, run, request)
    standing = StopRequest.parse(run.stop_request)
    if standing is not None and standing.verb == request.verb:
        # Left to a worker that was lost: who asked first is told of.
        request = standing
    _make_ready(connection, run, now, stop_request=request.text())
    return Done(Answer.REQUESTED, ready_in=run.queue)


def _change(connection: Connection, run: RunRow, now: datetime, **values: Any) -> None:
    connection.execute(
        update(runs).where(runs.c.id == run.id).values(wakeups=runs.c.wakeups + 1, changed_at=now, **values)
    )


def _make_ready(connection: Connection, run: RunRow, now: datetime, **values: Any) -> None:
    _change(
        connection,
        run,
        now,
        state=RunState.READY,
        reason=None,
        lane=run.queue,
        due_at=now,
        wake_at=None,
        **values,
    )


def _begin_anew(connection: Connection, run: RunRow, now: datetime, **values: Any) -> None:
    """Make it ready, and forget what went wrong so far."""
    _make_ready(connection, run, now, recoveries=0, error_class=None, error_message=None, **values)
