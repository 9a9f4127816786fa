"""Running one step: its conditions, its body, and what follows from how the body ended.

Written once for both drivers. An attempt ends in exactly one durable write, which also commits what the body wrote
through its session, or undoes it.
"""

from __future__ import annotations

import inspect
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from stepwell.definition.plan import StepSpec
from stepwell.entries import Execution, Settlement
from stepwell.errors import HeroGone, RunError, StepTimedOut, Unstorable
from stepwell.execution.attempts import (
    attempts_so_far,
    latest_scheduled,
    policy_details,
    retries_by_label,
)
from stepwell.execution.errors import describe
from stepwell.execution.journal import Scope, TransientConflict
from stepwell.execution.outcome import Activated
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.suspension import (
    CancelRequested,
    FinishRequested,
    Interrupted,
    LeaseLost,
    PauseRequested,
    RetryRequested,
    SkipRequested,
    Suspension,
    find_suspension,
)
from stepwell.policies import Decision, Policy, Verb, decide
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState

__all__ = ["StepRunner"]

_MOST_CONFLICTS: Final = 10
_MOST_SELF_RETRIES: Final = 100
_SELF: Final = "self.retry"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt under way."""

    spec: StepSpec
    next_step: str | None
    scope: Scope
    position: int
    number: int
    scheduled_for: datetime | None
    started_at: datetime

    def row(self, state: ExecutionState, outcome: Outcome | None, at: datetime | None, **more: Any) -> Execution:
        """The journal row with which it ends."""
        return Execution(
            position=self.position,
            name=self.spec.name,
            kind=Kind.STEP,
            state=state,
            outcome=outcome,
            attempt=self.number,
            scheduled_for=self.scheduled_for,
            started_at=self.started_at,
            finished_at=at,
            **more,
        )


class StepRunner:
    """Runs the steps of one activation.

    Args:
        recorder: Where the outcomes go.
        runtime: What the workflow's methods see.
    """

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        self._recorder = recorder
        self._runtime = runtime
        self._journal = recorder.journal
        self._plan = recorder.run.plan

    def run(self, spec: StepSpec, next_step: str | None) -> Activated | None:
        """Run one attempt of a step that is due.

        Returns:
            None when the run goes on at once (``recorder.current_step`` says where); else how the activation ended.

        Raises:
            LeaseLost: Nothing was written.
        """
        conflicts = 0
        while True:
            scope = self._journal.open_scope()
            attempt = self._begin(spec, next_step, scope)
            try:
                return self._attempt(attempt)
            except TransientConflict as conflict:
                # The database undid the step's transaction for its own reasons: no policy hears of it.
                self._recorder.context.roll_back()
                conflicts += 1
                if conflicts > _MOST_CONFLICTS:
                    return self._fail(attempt, conflict.__cause__ or conflict, None)
            finally:
                scope.close()

    def failed_before(self, spec: StepSpec, next_step: str | None, error: BaseException) -> Activated | None:
        """The author's code raised before the body could start: it said a verb, or the step's policies decide."""
        scope = self._journal.open_scope()
        try:
            attempt = self._begin(spec, next_step, scope)
            with self._runtime.attempting(spec, scope) as workflow:
                suspension = find_suspension(error)
                if suspension is not None:
                    return self._suspended(attempt, suspension)
                return self._failed(attempt, workflow, error)
        finally:
            scope.close()

    def _begin(self, spec: StepSpec, next_step: str | None, scope: Scope) -> _Attempt:
        recorder = self._recorder
        announced = latest_scheduled(recorder.facts, spec.name) if recorder.facts else None
        return _Attempt(
            spec,
            next_step,
            scope,
            position=announced.position if announced else recorder.next_position,
            number=1 + attempts_so_far(recorder.facts, spec.name) if recorder.facts else 1,
            scheduled_for=announced.scheduled_for if announced else None,
            started_at=recorder.now(),
        )

    def _attempt(self, attempt: _Attempt) -> Activated | None:
        with self._runtime.attempting(attempt.spec, attempt.scope) as workflow:
            try:
                verdict = self._conditions(attempt, workflow)
                if verdict is not None:
                    raise verdict
                value = self._body(attempt, workflow)
                text = self._encode(attempt.spec, value)
                self._recorder.context.changes()  # raises if something deep inside cannot be stored
                attempt.scope.flush()  # raises if the database refuses a pending change
            except (LeaseLost, TransientConflict):
                raise
            except Interrupted:
                self._recorder.context.roll_back()
                return self._recorder.hand_back(reason=Reason.INTERRUPTED)
            except BaseException as error:
                suspension = find_suspension(error)
                if suspension is not None:
                    return self._suspended(attempt, suspension)
                return self._failed(attempt, workflow, error)
        self._succeeded(attempt, text)
        return None

    # -- before and during --------------------------------------------------------------------------------------

    def _conditions(self, attempt: _Attempt, workflow: Any) -> Suspension | None:
        """What ``@cancel_if`` and ``skip_if`` say; an error there is an error of this step."""
        for condition in self._plan.cancel_conditions:
            if condition.function(workflow):
                return CancelRequested(condition.name)
        skip_if = attempt.spec.skip_if
        skips = skip_if is not None and bool(skip_if(workflow))
        if (self._plan.cancel_conditions or skip_if is not None) and attempt.scope.has_changes():
            raise RunError(
                f"a condition of step {attempt.spec.name!r} changed a record. Conditions are looked at, not "
                "journaled: move the change into the step."
            )
        return SkipRequested() if skips else None

    def _body(self, attempt: _Attempt, workflow: Any) -> Any:
        self._journal.ensure_lease()
        self._journal.body_starts(attempt.row(ExecutionState.IN_PROGRESS, None, None))
        try:
            value = attempt.spec.function(workflow)
            if attempt.spec.is_async:
                value = self._journal.run_coroutine(value, attempt.spec.timeout)
            return value
        finally:
            self._journal.body_ends()

    def _encode(self, spec: StepSpec, value: Any) -> str:
        if value is None:
            return "null"
        if inspect.iscoroutine(value) or inspect.isgenerator(value):
            value.close()
            raise Unstorable(
                f"step {spec.name!r} returned a {type(value).__name__}, which cannot be stored: it was never run. "
                "Await or exhaust it in the step."
            )
        return self._recorder.codec.dumps(
            value, what=f"result of step {spec.name!r}", limit=self._recorder.result_limit
        )

    # -- how it ended -------------------------------------------------------------------------------------------

    def _succeeded(self, attempt: _Attempt, text: str) -> None:
        row = attempt.row(ExecutionState.COMPLETED, Outcome.SUCCESS, self._recorder.now(), result=text)
        self._advance(attempt, row)

    def _advance(self, attempt: _Attempt, row: Execution) -> None:
        self._recorder.record(row, next_step=attempt.next_step, scope=attempt.scope)
        self._recorder.steps_done += 1

    def _suspended(self, attempt: _Attempt, request: Suspension) -> Activated | None:
        """The body asked for something: what it wrote is kept, except where it is to run again."""
        now = self._recorder.now()
        try:
            self._recorder.context.changes()
        except Unstorable as error:
            return self._fail(attempt, error, None)
        match request:
            case SkipRequested():
                self._advance(attempt, attempt.row(ExecutionState.SKIPPED, Outcome.SKIPPED, now))
                return None
            case CancelRequested(reason=reason):
                row = attempt.row(ExecutionState.CANCELED, Outcome.CANCELED, now)
                return self._recorder.end(
                    Settlement(RunState.CANCELED, reason=reason), row, scope=attempt.scope
                )
            case FinishRequested(result=result):
                return self._finish(attempt, result, attempt.scope)
            case PauseRequested(reason=reason, done=True):
                self._succeeded(attempt, "null")
                return self._recorder.end(Settlement(RunState.PAUSED, reason=reason))
            case PauseRequested(reason=reason):
                row = attempt.row(ExecutionState.CANCELED, Outcome.PAUSED, now)
                return self._recorder.end(
                    Settlement(RunState.PAUSED, reason=reason), row, keeps_context=False
                )
            case RetryRequested(wait=wait):
                return self._retry_itself(attempt, wait)
        raise RunError(f"{type(request).__name__} has no meaning in step {attempt.spec.name!r}")

    def _finish(self, attempt: _Attempt, result: object, scope: Scope | None) -> Activated | None:
        try:
            text = self._recorder.codec.dumps(
                result, what=f"result of finish() in step {attempt.spec.name!r}", limit=self._recorder.result_limit
            )
        except Unstorable as error:
            return self._fail(attempt, error, None)
        row = attempt.row(ExecutionState.COMPLETED, Outcome.SUCCESS, self._recorder.now(), result="null")
        return self._recorder.end(Settlement(RunState.COMPLETED, result=text), row, scope=scope)

    def _retry_itself(self, attempt: _Attempt, wait: timedelta) -> Activated | None:
        asked = retries_by_label(self._recorder.facts, attempt.spec.name)[_SELF]
        if asked + 1 >= _MOST_SELF_RETRIES:
            error = RunError(f"step {attempt.spec.name!r} asked to be retried {asked + 1} times in a row")
            return self._fail(attempt, error, None)
        return self._retry(attempt, None, Decision(Verb.RETRY, _SELF, wait))

    # -- errors -------------------------------------------------------------------------------------------------

    def _failed(self, attempt: _Attempt, workflow: Any, error: BaseException) -> Activated | None:
        if isinstance(error, HeroGone):
            return self._fail(attempt, error, None, state_reason=Reason.HERO_GONE)
        if isinstance(error, Unstorable):
            return self._fail(attempt, error, None)
        asked: list[Policy] = []
        while True:
            decision = decide(
                error,
                step=attempt.spec.on_exception,
                workflow=self._plan.policies,
                counts=retries_by_label(self._recorder.facts, attempt.spec.name),
                random=random.random,
                passed=asked,
            )
            if decision.verb is not Verb.HANDLE or decision.handler is None or decision.policy is None:
                return self._follow(attempt, error, decision)
            try:
                decision.handler(workflow, error)
            except BaseException as raised:
                suspension = find_suspension(raised)
                if suspension is None:
                    return self._fail(attempt, raised, None)
                return self._handled(attempt, error, suspension)
            asked.append(decision.policy)

    def _handled(self, attempt: _Attempt, error: BaseException, request: Suspension) -> Activated | None:
        """A handler chose a verb: the body failed, so that what it wrote is undone whatever the verb."""
        match request:
            case SkipRequested():
                return self._follow(attempt, error, Decision(Verb.SKIP))
            case CancelRequested(reason=reason):
                return self._follow(attempt, error, Decision(Verb.CANCEL, reason=reason))
            case PauseRequested(reason=reason):
                return self._follow(attempt, error, Decision(Verb.PAUSE, reason=reason))
            case RetryRequested(wait=wait):
                return self._follow(attempt, error, Decision(Verb.RETRY, _SELF, wait))
            case FinishRequested(result=result):
                self._recorder.context.roll_back()
                return self._finish(attempt, result, None)
        raise RunError(f"{type(request).__name__} has no meaning in a handler")

    def _follow(self, attempt: _Attempt, error: BaseException, decision: Decision) -> Activated | None:
        match decision.verb:
            case Verb.RETRY:
                return self._retry(attempt, error, decision)
            case Verb.SKIP:
                row = self._failure_row(attempt, error, ExecutionState.SKIPPED, Outcome.SKIPPED)
                self._recorder.record(row, next_step=attempt.next_step, keeps_context=False)
                return None
            case Verb.PAUSE:
                return self._stop(attempt, error, RunState.PAUSED, Outcome.PAUSED, decision.reason)
            case Verb.CANCEL:
                return self._stop(attempt, error, RunState.CANCELED, Outcome.CANCELED, decision.reason)
            case _:
                return self._fail(attempt, error, decision.reason)

    def _retry(self, attempt: _Attempt, error: BaseException | None, decision: Decision) -> Activated | None:
        outcome = Outcome.TIMED_OUT if isinstance(error, StepTimedOut) else Outcome.RETRIED
        row = self._failure_row(
            attempt, error, ExecutionState.FAILED, outcome, details=policy_details(decision.label)
        )
        recorder = self._recorder
        if decision.wait <= timedelta():
            recorder.record(row, next_step=attempt.spec.name, keeps_context=False)
            return None
        recorder.context.roll_back()
        due = recorder.now() + decision.wait
        again = Execution(
            position=max(recorder.next_position, attempt.position + 1),
            name=attempt.spec.name,
            kind=Kind.STEP,
            state=ExecutionState.SCHEDULED,
            attempt=attempt.number + 1,
            scheduled_for=due,
        )
        return recorder.park(Settlement(RunState.WAITING, reason=Reason.RETRY, wake_at=due), row, again)

    def _fail(
        self, attempt: _Attempt, error: BaseException, reason: str | None, *, state_reason: str | None = None
    ) -> Activated:
        return self._stop(
            attempt, error, RunState.FAILED, Outcome.FAILED, state_reason or reason or Reason.STEP_FAILED
        )

    def _stop(
        self, attempt: _Attempt, error: BaseException, state: RunState, outcome: Outcome, reason: str | None
    ) -> Activated:
        """The run ends or waits for a person, because of an error."""
        kind = ExecutionState.CANCELED if state is RunState.CANCELED else ExecutionState.FAILED
        row = self._failure_row(attempt, error, kind, outcome)
        settlement = Settlement(
            state, reason=reason, error_class=row.error_class, error_message=row.error_message
        )
        return self._recorder.end(settlement, row, keeps_context=False)

    def _failure_row(
        self,
        attempt: _Attempt,
        error: BaseException | None,
        state: ExecutionState,
        outcome: Outcome,
        details: str | None = None,
    ) -> Execution:
        now = self._recorder.now()
        if error is None:
            return attempt.row(state, outcome, now, details=details)
        record = describe(error)
        return attempt.row(
            state,
            outcome,
            now,
            details=details,
            error_class=record.error_class,
            error_message=record.message,
            traceback=record.traceback,
        )
