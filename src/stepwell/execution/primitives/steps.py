"""Running one step: its conditions, its body, and what it asked for.

Written once for both drivers. An attempt ends in exactly one durable write, which also commits what the body
wrote through its session, or undoes it.
"""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any, Final

from stepwell.clock import later
from stepwell.definition.plan import StepSpec
from stepwell.entries import Execution, Settlement
from stepwell.errors import RunError, Unstorable
from stepwell.execution.apart import apart
from stepwell.execution.attempts import attempts_so_far, is_rescheduled, latest_scheduled, stopped_at
from stepwell.execution.journal import Fact, Scope, TransientConflict, WritesRefused
from stepwell.execution.outcome import Activated
from stepwell.execution.primitives.attempt import Attempt
from stepwell.execution.primitives.bodies import Bodies
from stepwell.execution.primitives.failures import Failures
from stepwell.execution.primitives.notices import Notices
from stepwell.execution.primitives.waiting import WaitFailed, refuse_changes, verdict_of
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.execution.suspension import (
    CancelRequested,
    ContinueRequested,
    FinishRequested,
    Interrupted,
    LeaseLost,
    PauseRequested,
    RetryRequested,
    SkipRequested,
    Suspension,
    find_suspension,
)
from stepwell.logs import facts_logger
from stepwell.states import ExecutionState, Outcome, Reason, RunState

__all__ = ["StepRunner"]

_log: Final = facts_logger(__name__)
_MOST_CONFLICTS: Final = 10
_MOST_CUTS: Final = 5


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
        self._failures = Failures(recorder, runtime)
        self._bodies = Bodies(recorder, runtime)
        self._notices = Notices(recorder, runtime)

    def run(self, site: Site, payload: Any = None, *, is_asked: bool = False) -> Activated | None:
        """Run one attempt of a step that is due.

        Args:
            site: The step.
            payload: What the signal brought that it awaited.
            is_asked: Its conditions were looked at just now.

        Returns:
            None when the run goes on at once (``recorder.current_step`` says where); else how the activation
            ended.

        Raises:
            LeaseLost: Nothing was written.
        """
        conflicts = 0
        while True:
            scope = self._journal.open_scope()
            attempt = self._begin(site, scope)
            attempt.payload, attempt.is_asked = payload, is_asked
            try:
                return apart(self._attempt, attempt)
            except TransientConflict as conflict:
                # The database undid the step's transaction for its own reasons: no policy hears of it.
                self._failures.undo(attempt)
                conflicts = 1 if attempt.has_progressed else conflicts + 1
                if conflicts > (_MOST_CUTS if conflict.is_cut_off else _MOST_CONFLICTS):
                    return self._failures.fail(attempt, conflict.__cause__ or conflict)
            finally:
                scope.close()

    def failed_before(self, site: Site, failure: WaitFailed) -> Activated | None:
        """A wait ran out, or the author's code raised before the body: the policies decide, or the verb it said."""
        scope = self._journal.open_scope()
        try:
            attempt = self._begin(site, scope)
            attempt.details, attempt.give_up_at = failure.details, failure.give_up_at
            if failure.kept is not None:
                attempt.keep(failure.kept)
            if failure.row is not None and site.is_called:
                # In run() the wait is what fails.
                attempt.position = failure.row.position
            elif failure.row is not None:
                attempt.closing = (failure.row,)
                if attempt.position == failure.row.position:
                    # Both are new.
                    attempt.position += 1
            with self._runtime.attempting(site, scope) as workflow:
                return self._broken_off(attempt, workflow, failure.error)
        finally:
            scope.close()

    def failed_outside(
        self, site: Site, error: BaseException, details: str | None = None
    ) -> Activated | None:
        """``run()`` raised outside its steps: the policies decide; with ``details`` none would help."""
        scope = self._journal.open_scope()
        try:
            attempt = self._begin(site, scope)
            if details is not None:
                return self._failures.fail(attempt, error, details=details)
            with self._runtime.attempting(site, scope) as workflow:
                return self._failures.follow(attempt, workflow, error)
        finally:
            scope.close()

    def _begin(self, site: Site, scope: Scope) -> Attempt:
        recorder = self._recorder
        history = recorder.history
        facts = site.facts(history)
        announced = latest_scheduled(history, site) if facts else None
        last = stopped_at(history, site) if facts and site.spec.is_resumable else None
        return Attempt(
            site,
            scope,
            position=announced.position if announced else recorder.next_position,
            number=1 + attempts_so_far(history, site) if facts else 1,
            scheduled_for=announced.scheduled_for if announced else None,
            started_at=recorder.now(),
            cursor=last.cursor if last else None,
            continues_from=_predecessor(announced, last),
            is_set=bool(facts) and is_rescheduled(announced or facts[-1]),
        )

    def _attempt(self, attempt: Attempt) -> Activated | None:
        with self._runtime.attempting(attempt.site, attempt.scope) as workflow:
            try:
                ended = self._run_through(attempt, workflow)
            except WritesRefused as refused:
                ended = self._failures.follow(attempt, workflow, refused.error)
            self._tell_outcome(attempt, workflow)
            return ended

    def _tell_outcome(self, attempt: Attempt, workflow: Any) -> None:
        """After the attempt is journaled, unless it was told as part of it."""
        if attempt.has_begun and not attempt.is_told and attempt.outcome is not None:
            self._notices.ended(workflow, attempt.spec, attempt.scope, attempt.outcome.value)

    def _run_through(self, attempt: Attempt, workflow: Any) -> Activated | None:
        try:
            verdict = self._conditions(attempt, workflow)
            if verdict is not None:
                raise verdict
            value = self._body(attempt, workflow)
            text = self._encode(attempt.spec, value)
            self._notices.succeeded(workflow, attempt.spec)
            self._check_verbs(attempt.spec)
            self._check_writes(attempt)
        except (LeaseLost, TransientConflict):
            raise
        except Interrupted:
            self._failures.undo(attempt)
            return self._recorder.hand_back(reason=Reason.INTERRUPTED)
        except BaseException as error:
            if attempt.broken is not None:
                raise attempt.broken from error
            return self._broken_off(attempt, workflow, self._runtime.asked or error)
        attempt.keep_cursor()
        row = attempt.row(ExecutionState.COMPLETED, Outcome.SUCCESS, self._recorder.now(), result=text)
        self._advance(attempt, row)
        attempt.is_told = True
        return None

    def _check_writes(self, attempt: Attempt) -> None:
        """Raise, as an error of the body, if what it left to be stored cannot be."""
        self._recorder.context.changes()
        attempt.scope.flush()

    # -- before and during -------------------------------------------------------------------------

    def _conditions(self, attempt: Attempt, workflow: Any) -> Suspension | None:
        """What ``@cancel_if`` and ``skip_if`` say; an error there is an error of this step."""
        conditions, skip_if = self._plan.cancel_conditions, attempt.spec.skip_if
        if attempt.is_asked or (not conditions and skip_if is None):
            return None
        with attempt.scope.looking():
            verdict = verdict_of(self._plan, attempt.spec, workflow)
            refuse_changes(attempt.scope, self._recorder.context, attempt.site)
        return self._runtime.asked or verdict

    def _body(self, attempt: Attempt, workflow: Any) -> Any:
        self._journal.ensure_lease()
        self._journal.body_starts(attempt)
        attempt.has_begun = True
        value = None
        try:
            self._notices.before(workflow, attempt.spec)
            with self._notices.around(workflow, attempt.spec):
                value = self._bodies.run(attempt, workflow)
        finally:
            self._journal.body_ends()
        if attempt.broken is not None:
            raise attempt.broken
        self._check_verbs(attempt.spec)
        return value

    def _check_verbs(self, spec: StepSpec) -> None:
        """Raise what the author's code has asked for, whatever it made of the exception that carried it."""
        if self._runtime.asked is not None:
            self._warn_of_swallowing(spec)
            raise self._runtime.asked

    def _warn_of_swallowing(self, spec: StepSpec) -> None:
        facts = {"run_id": str(self._recorder.run.id), "workflow": self._plan.workflow, "step": spec.name}
        _log.warning(
            "a verb was swallowed by a bare except; it stands all the same",
            extra={"action": "step.swallowed", **facts},
        )

    def _encode(self, spec: StepSpec, value: Any) -> str:
        if value is None:
            return "null"
        if inspect.iscoroutine(value) or inspect.isgenerator(value):
            value.close()
            raise Unstorable(
                f"step {spec.name!r} returned a {type(value).__name__}, which cannot be stored: it was never "
                "run. Await or exhaust it in the step."
            )
        return self._recorder.codec.dumps(
            value, what=f"result of step {spec.name!r}", limit=self._recorder.result_limit
        )

    # -- how it ended ---------------------------------------------------------------------------------

    def _advance(self, attempt: Attempt, row: Execution) -> None:
        rows = attempt.ending(row, self._recorder.history)
        self._recorder.record(*rows, next_step=attempt.next_step, scope=attempt.scope)
        self._recorder.steps_done += 1

    def _broken_off(self, attempt: Attempt, workflow: Any, error: BaseException) -> Activated | None:
        request = find_suspension(error)
        match request:
            case None:
                return self._failures.follow(attempt, workflow, error)
            case RetryRequested(wait=wait, rewind=rewind):
                return self._failures.retry_itself(attempt, wait, rewind=rewind)
            case PauseRequested(reason=reason, done=False):
                self._failures.undo(attempt)
                row = attempt.row(ExecutionState.CANCELED, Outcome.PAUSED, self._recorder.now())
                settlement = Settlement(RunState.PAUSED, reason=reason)
                return self._recorder.stop(settlement, row, next_step=attempt.site.here)
            case ContinueRequested(wait=wait, is_written=True):
                self._failures.undo(attempt)
                self._continue(attempt, wait)
                return None
        try:
            self._check_writes(attempt)
        except TransientConflict:
            raise
        except Exception as refusal:
            return self._failures.follow(attempt, workflow, refusal)
        return self._concluded(attempt, request)

    def _concluded(self, attempt: Attempt, request: Suspension) -> Activated | None:
        """The body said that it is over, one way or another: what it wrote is kept."""
        recorder = self._recorder
        now = recorder.now()
        attempt.keep_cursor()
        match request:
            case SkipRequested():
                self._advance(attempt, attempt.row(ExecutionState.SKIPPED, Outcome.SKIPPED, now))
                return None
            case CancelRequested(reason=reason):
                row = attempt.row(ExecutionState.CANCELED, Outcome.CANCELED, now)
                rows = attempt.ending(row, recorder.history, ends_run=True)
                return recorder.end(Settlement(RunState.CANCELED, reason=reason), *rows, scope=attempt.scope)
            case FinishRequested(result=result):
                return self._failures.finish(attempt, result)
            case ContinueRequested(wait=wait):
                self._continue(attempt, wait, attempt.scope)
                return None
            case PauseRequested(reason=reason):
                row = attempt.row(ExecutionState.COMPLETED, Outcome.SUCCESS, now, result="null")
                settlement = Settlement(RunState.PAUSED, reason=reason)
                rows = attempt.ending(row, recorder.history)
                return recorder.stop(settlement, *rows, next_step=attempt.next_step, scope=attempt.scope)
        raise RunError(f"{type(request).__name__} has no meaning in step {attempt.spec.name!r}")

    def _continue(self, attempt: Attempt, wait: timedelta, scope: Scope | None = None) -> None:
        """A resumable step stops at its cursor: this execution is over, and the next one is announced."""
        recorder = self._recorder
        now = recorder.now()
        row = attempt.row(ExecutionState.COMPLETED, Outcome.CONTINUED, now)
        successor = attempt.site.row(
            max(recorder.next_position, attempt.position + 1),
            ExecutionState.SCHEDULED,
            attempt=attempt.number,
            scheduled_for=later(now, wait) if wait else None,
            cursor=attempt.cursor,
            continues_from=attempt.position,
        )
        recorder.record(row, successor, next_step=attempt.site.here, scope=scope)


def _predecessor(announced: Fact | None, last: Fact | None) -> int | None:
    """The position of the execution whose cursor the next one takes over."""
    if announced is not None:
        return announced.continues_from
    return None if last is None else last.position
