"""Calling another workflow: a run of it is started in the transaction in which this one parks until that is over.

The child is looked at whenever this run wakes: its end says so, and where nobody is left to say it, a look now and then
finds out by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from stepwell.definition.calls import call_of
from stepwell.definition.launching import target_of
from stepwell.definition.registry import find_workflow
from stepwell.definition.starting import Call, Parentage, StartOptions
from stepwell.definition.waits import Child
from stepwell.entries import Execution, Settlement
from stepwell.errors import ChildFailed, Undecodable
from stepwell.execution.errors import describe
from stepwell.execution.journal import ChildFacts, Fact, Scope, TransientConflict, WritesRefused
from stepwell.execution.primitives.waiting import Waited, WaitFailed, ask
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.execution.suspension import LeaseLost
from stepwell.ids import new_run_id
from stepwell.states import UNFINISHED, ExecutionState, Kind, Outcome, Reason, RunState
from stepwell.texts import details_of

__all__ = ["Calls", "child_failure", "open_branch"]

_MOST_CONFLICTS: Final = 10
_FIRST_LOOK: Final = timedelta(seconds=30)
_LONGEST_LOOK: Final = timedelta(minutes=10)
_COUNTING: Final = (*UNFINISHED, ExecutionState.COMPLETED)


def open_branch(parent_id: UUID, position: int | str = "") -> str:
    """What a child carries until it is over; without a position, how that begins for all children of a run."""
    return f"call:{parent_id.hex}:{position}"


class Calls:
    """Starts runs of other workflows and holds steps back until these are over.

    Args:
        recorder: The run's journal.
        runtime: What the workflow's methods see.
    """

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        self._recorder = recorder
        self._runtime = runtime

    def wait_for(self, site: Site, wanted: Child) -> Waited:
        """Start the child if that has not been done, and park the run unless it is over.

        Raises:
            WaitFailed: It could not be started, or has failed, or was canceled.
        """
        known = self._known(site)
        if known is not None and known.state == ExecutionState.COMPLETED:
            return self._answered(known.result)
        facts = _legible(known)
        if known is None or "child" not in facts:
            return self._start(site, wanted, known)
        return self._look(site, known, facts)

    # -- starting -----------------------------------------------------------------------------------------------

    def _start(self, site: Site, wanted: Child, announced: Fact | None) -> Waited:
        recorder = self._recorder
        due_at = None if announced is None else announced.scheduled_for
        if due_at is not None and due_at > recorder.now():
            # After an error of the start that a policy retries.
            waiting = Settlement(RunState.WAITING, reason=Reason.RETRY, wake_at=due_at)
            return Waited(is_due=False, ended=recorder.park(waiting))
        position = announced.position if announced else recorder.next_position
        former = self._former(site, announced)
        if former is not None:
            recorder.record(
                replace(self._row(site, position, recorder.now()), details=json.dumps(former)),
                next_step=recorder.current_step,
            )
            return Waited(is_due=False)
        # A start that fails does not forget who was called before.
        told = None if announced is None else announced.details
        call, options = self._asked(site, wanted)
        parentage = Parentage(
            new_run_id(), recorder.run.id, site.name, open_branch(recorder.run.id, position)
        )
        conflicts = 0
        while True:
            scope = recorder.journal.open_scope()
            try:
                return self._started(site, position, scope, call, options, parentage)
            except TransientConflict as conflict:
                conflicts += 1
                if conflicts > _MOST_CONFLICTS:
                    raise WaitFailed(conflict.__cause__ or conflict, details=told) from conflict
            except WritesRefused as refused:
                raise WaitFailed(refused.error, details=told) from refused
            except WaitFailed as failure:
                failure.details = told
                raise
            finally:
                scope.close()

    def _former(self, site: Site, announced: Fact | None) -> Mapping[str, Any] | None:
        """The child that had failed when it was looked at, if somebody has helped it since: nothing is done twice."""
        known = _mapping(announced).get("former")
        if known is None:
            failed = self._recorder.history.of(Kind.CALL, site.name, site.key)
            known = next((each for each in map(_mapping, reversed(failed)) if "failure" in each), None)
        if known is None:
            return None
        child = self._recorder.journal.child(UUID(known["child"]))
        if child is None or child.state in (RunState.FAILED, RunState.CANCELED):
            return None
        return {name: known[name] for name in ("child", "workflow", "joined") if name in known}

    def _asked(self, site: Site, wanted: Child) -> tuple[Call, StartOptions]:
        """Whom to call and with what, as the author says it."""
        given = wanted.arguments
        if callable(given):
            given = ask(self._runtime, site, self._recorder.journal.open_scope(), given)
        try:
            target = find_workflow(wanted.workflow) if isinstance(wanted.workflow, str) else wanted.workflow
            cls, options = target_of(target, f"step {site.name!r}")
            if isinstance(given, Call):
                return given, options
            if given is not None and not isinstance(given, Mapping):
                raise TypeError(
                    f"the arguments of Child() in step {site.name!r} must be a mapping of names to values; got "
                    f"{given!r}"
                )
            return call_of(cls, (), dict(given or {})), options
        except Exception as error:
            raise WaitFailed(error) from error

    def _started(
        self,
        site: Site,
        position: int,
        scope: Scope,
        call: Call,
        options: StartOptions,
        parentage: Parentage,
    ) -> Waited:
        recorder = self._recorder
        try:
            with self._runtime.attempting(site, scope):
                child = recorder.journal.starter.start_child(call, options, parentage)
        except LeaseLost:
            raise
        except Exception as error:
            raise WaitFailed(error) from error
        now = recorder.now()
        told: dict[str, Any] = {"child": str(child.id), "workflow": call.workflow.workflow_name}
        if not child.created:
            told["joined"] = True
        row = replace(
            self._row(site, position, now), state=ExecutionState.SCHEDULED, details=json.dumps(told)
        )
        parked = Settlement(RunState.AWAITING, reason=Reason.CHILD, wake_at=now + _FIRST_LOOK)
        return Waited(is_due=False, ended=recorder.park(parked, row, scope=scope))

    # -- waiting ------------------------------------------------------------------------------------------------

    def _look(self, site: Site, known: Fact, facts: Mapping[str, Any]) -> Waited:
        recorder = self._recorder
        child = recorder.journal.child(UUID(facts["child"]))
        now = recorder.now()
        row = replace(
            self._row(site, known.position, known.started_at or now), details=known.details, finished_at=now
        )
        if child is None:
            child = ChildFacts(UUID(facts["child"]), RunState.FAILED, "its row is gone")
        match child.state:
            case RunState.COMPLETED:
                result = child.result or "null"
                over = replace(row, state=ExecutionState.COMPLETED, outcome=Outcome.SUCCESS, result=result)
                recorder.record(over, next_step=site.name)
                return self._answered(result)
            case RunState.FAILED | RunState.CANCELED:
                raise self._failed(row, child, facts)
        since = now - (known.started_at or now)
        # Nobody tells of the end of a run that was there already.
        wait = _FIRST_LOOK if "joined" in facts else min(max(since, _FIRST_LOOK), _LONGEST_LOOK)
        parked = Settlement(RunState.AWAITING, reason=Reason.CHILD, wake_at=now + wait)
        return Waited(is_due=False, ended=recorder.park(parked))

    def _failed(self, row: Execution, child: ChildFacts, facts: Mapping[str, Any]) -> WaitFailed:
        told = {
            **facts,
            "failure": {
                "reason": child.reason,
                "error_class": child.error_class,
                "message": child.error_message,
                "was_canceled": child.state == RunState.CANCELED,
            },
            "child": str(child.id),
        }
        details = json.dumps(told)
        error = _error(told)
        record = describe(error)
        failed = replace(
            row,
            state=ExecutionState.FAILED,
            outcome=Outcome.FAILED,
            details=details,
            error_class=record.error_class,
            error_message=record.message,
        )
        return WaitFailed(error, failed, details)

    def _known(self, site: Site) -> Fact | None:
        """The row of this call, unless its child has failed: a step that is tried again calls another one."""
        facts = self._recorder.history.of(Kind.CALL, site.name, site.key)
        return facts[-1] if facts and facts[-1].state in _COUNTING else None

    @staticmethod
    def _row(site: Site, position: int, started_at: datetime) -> Execution:
        return replace(site.row(position, ExecutionState.SCHEDULED, started_at=started_at), kind=Kind.CALL)

    def _answered(self, text: str | None) -> Waited:
        try:
            value = None if text is None else self._recorder.codec.loads(text, what="result of the child")
        except Undecodable as error:
            raise WaitFailed(error) from error
        return Waited(is_due=True, payload=value)


def child_failure(fact: Fact) -> ChildFailed | None:
    """The error that a failed call stands for; None if no child had been started."""
    if fact.kind != Kind.CALL:
        return None
    facts = _mapping(fact)
    return _error(facts) if "failure" in facts else None


def _error(facts: Mapping[str, Any]) -> ChildFailed:
    said = facts["failure"]
    return ChildFailed(
        facts["workflow"],
        UUID(facts["child"]),
        said["reason"],
        said["error_class"],
        said["message"],
        was_canceled=said["was_canceled"],
    )


def _legible(known: Fact | None) -> Mapping[str, Any]:
    """What the row of a call tells.

    Raises:
        Undecodable: It cannot be read. Whoever was called must not be called a second time for that.
    """
    if known is None or known.details is None:
        return {}
    try:
        facts: Mapping[str, Any] = json.loads(known.details)
        if facts.get("child") is not None:
            UUID(facts["child"])
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Undecodable(
            f"whom the call of {known.name!r} has started cannot be read back: {known.details[:200]!r}"
        ) from error
    return facts


def _mapping(fact: Fact | None) -> Mapping[str, Any]:
    return details_of(fact.details if fact else None)
