"""What follows from an error: the policies decide, and what the body wrote is undone whatever they say.

Written once for both drivers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from stepwell.clock import later
from stepwell.entries import Execution, Settlement
from stepwell.errors import (
    ChildFailed,
    DeadlineExceeded,
    HeroGone,
    RunError,
    StepFailed,
    StepTimedOut,
    Undecodable,
    Unstorable,
    WaitTimedOut,
)
from stepwell.execution.attempts import RESCHEDULED, SELF, policy_details, retries_by_label
from stepwell.execution.journal import TransientConflict
from stepwell.execution.outcome import Activated
from stepwell.execution.primitives.attempt import Attempt
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.execution.suspension import (
    CancelRequested,
    ContinueRequested,
    FinishRequested,
    LeaseLost,
    PauseRequested,
    RetryRequested,
    SkipRequested,
    Suspension,
    find_suspension,
)
from stepwell.policies import Decision, Policy, Verb, decide
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState

__all__ = ["Failures"]

_MOST_SELF_RETRIES: Final = 100
_NO_POLICY_HELPS: Final = (
    (HeroGone, Reason.HERO_GONE),
    (Undecodable, Reason.UNDECODABLE),
    (Unstorable, Reason.STEP_FAILED),
)
_NO_POLICY_HELPS_A_WAIT: Final = (
    *_NO_POLICY_HELPS,
    # run() hears of these where it waits.
    (ChildFailed, Reason.STEP_FAILED),
    (WaitTimedOut, Reason.STEP_FAILED),
    (DeadlineExceeded, Reason.STEP_FAILED),
)


_VERBS: Final[dict[type[Suspension], Verb]] = {
    SkipRequested: Verb.SKIP,
    CancelRequested: Verb.CANCEL,
    PauseRequested: Verb.PAUSE,
    RetryRequested: Verb.RETRY,
}


class Failures:
    """Ends attempts that did not succeed.

    Args:
        recorder: Where the outcomes go.
        runtime: What the workflow's methods see.
    """

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        self._recorder = recorder
        self._runtime = runtime
        self._plan = recorder.run.plan

    def undo(self, attempt: Attempt) -> None:
        """Forget what the attempt wrote and decided.

        Before anything is journaled about it: a transaction that is still open would hold up that very write.
        """
        self._recorder.context.roll_back()
        self._runtime.asked = None
        attempt.scope.close()

    def follow(self, attempt: Attempt, workflow: Any, error: BaseException) -> Activated | None:
        """The body raised: do what the policies say."""
        self.undo(attempt)
        for kind, reason in _NO_POLICY_HELPS_A_WAIT if attempt.site.is_wait else _NO_POLICY_HELPS:
            if isinstance(error, kind) and not self._is_foreseen(attempt, error):
                self._recorder.journal.report(error)
                return self.fail(attempt, error, reason)
        passed: list[Policy] = []
        while True:
            decision = self._decide(attempt, error, passed)
            if decision.verb is not Verb.HANDLE or decision.handler is None or decision.policy is None:
                if decision.report:
                    self._recorder.journal.report(error)
                return self._do(attempt, error, decision)
            try:
                request = self._ask(decision.handler, workflow, error)
            except (LeaseLost, TransientConflict):
                raise
            except BaseException as raised:
                self._recorder.journal.report(raised)
                return self.fail(attempt, raised)
            self.undo(attempt)
            if request is not None:
                if decision.policy.reports(_VERBS.get(type(request), Verb.FAIL)):
                    self._recorder.journal.report(error)
                return self._handled(attempt, error, request)
            passed.append(decision.policy)

    def _is_foreseen(self, attempt: Attempt, error: BaseException) -> bool:
        """A record that is gone does not come back; but its class may say by name what is to be done then."""
        if not isinstance(error, HeroGone):
            return False
        policies = (*attempt.spec.on_exception, *self._plan.policies)
        return any(each.errors and each.matches(error) for each in policies)

    def _decide(self, attempt: Attempt, error: BaseException, passed: list[Policy]) -> Decision:
        counts = retries_by_label(self._recorder.history, attempt.site)
        # A step that asks to be run again has a limit of its own and uses up no policy's attempts.
        counts.pop(SELF, None)
        return decide(
            error,
            step=attempt.spec.on_exception,
            workflow=self._policies_for(attempt.site),
            counts=counts,
            random=self._recorder.chance,
            passed=passed,
        )

    def _policies_for(self, site: Site) -> tuple[Policy, ...]:
        """The class's; a condition that is broken must not be retried by one for any error whatever."""
        policies = self._plan.policies
        return tuple(each for each in policies if each.errors) if site.is_wait else policies

    def _ask(self, handler: Callable[..., Any], workflow: Any, error: BaseException) -> Suspension | None:
        """What the author's handler says; None leaves the error to the policies after it."""
        try:
            handler(workflow, error)
        except BaseException as raised:
            request = self._runtime.asked or find_suspension(raised)
            if request is None:
                raise
            return request
        return self._runtime.asked

    def _handled(self, attempt: Attempt, error: BaseException, request: Suspension) -> Activated | None:
        match request:
            case SkipRequested():
                return self._do(attempt, error, Decision(Verb.SKIP))
            case CancelRequested(reason=reason):
                return self._do(attempt, error, Decision(Verb.CANCEL, reason=reason))
            case PauseRequested(reason=reason):
                return self._do(attempt, error, Decision(Verb.PAUSE, reason=reason))
            case RetryRequested(wait=wait, rewind=rewind):
                return self.retry_itself(attempt, wait, error, rewind=rewind)
            case ContinueRequested(wait=wait):
                # A long step goes on from its cursor, which the handler may have moved.
                return self.retry_itself(attempt, wait, error)
            case FinishRequested(result=result):
                return self.finish(attempt, result)
        raise RunError(f"{type(request).__name__} has no meaning in a handler")

    def finish(self, attempt: Attempt, result: object) -> Activated | None:
        """End the run as completed, with what the scope holds; a result that cannot be stored fails it."""
        recorder = self._recorder
        try:
            text = recorder.codec.dumps(
                result,
                what=f"result of finish() in step {attempt.spec.name!r}",
                limit=recorder.result_limit,
            )
        except Unstorable as error:
            return self.fail(attempt, error)
        row = attempt.row(ExecutionState.COMPLETED, Outcome.SUCCESS, recorder.now(), result="null")
        rows = attempt.ending(row, recorder.history, ends_run=True)
        return recorder.end(Settlement(RunState.COMPLETED, result=text), *rows, scope=attempt.scope)

    def retry_itself(
        self, attempt: Attempt, wait: timedelta, error: BaseException | None = None, *, rewind: bool = False
    ) -> Activated | None:
        """The step, or its handler, asks for another attempt: a hundred in a row are too many."""
        self.undo(attempt)
        if rewind:
            attempt.cursor = None
        asked = retries_by_label(self._recorder.history, attempt.site)[SELF] + 1
        if asked >= _MOST_SELF_RETRIES:
            often = RunError(f"step {attempt.spec.name!r} asked to be retried {asked} times in a row")
            often.__cause__ = error
            return self.fail(attempt, often)
        return self._retry(attempt, error, Decision(Verb.RETRY, SELF, wait))

    def fail(
        self, attempt: Attempt, error: BaseException, reason: str | None = None, details: str | None = None
    ) -> Activated | None:
        """The run stops as failed, until a person acts; of a call in ``run()`` it is recorded, for ``run()`` to see.

        Args:
            attempt: The attempt.
            error: What went wrong for good.
            reason: Of the run's failure.
            details: Of the attempt's row.
        """
        self.undo(attempt)
        self._runtime.failure = error
        if attempt.site.is_called:
            ran_out = attempt.site.is_wait and isinstance(error, WaitTimedOut)
            outcome = Outcome.TIMED_OUT if ran_out else _outcome_of(error)
            row = attempt.failure_row(
                error, ExecutionState.FAILED, outcome, self._recorder.now(), attempt.details
            )
            rows = attempt.ending(row, self._recorder.history)
            self._recorder.record(*rows, next_step=attempt.next_step)
            return None
        reason = reason or Reason.STEP_FAILED
        return self._stop(attempt, error, RunState.FAILED, Outcome.FAILED, reason, details)

    # -- the verbs ------------------------------------------------------------------------------------

    def _do(self, attempt: Attempt, error: BaseException, decision: Decision) -> Activated | None:
        match decision.verb:
            case Verb.RETRY:
                return self._retry(attempt, error, decision)
            case Verb.SKIP if attempt.site.kind is not Kind.BODY:
                row = attempt.failure_row(
                    error, ExecutionState.SKIPPED, Outcome.SKIPPED, self._recorder.now()
                )
                rows = attempt.ending(row, self._recorder.history)
                self._recorder.record(*rows, next_step=attempt.next_step)
                return None
            case Verb.SKIP:
                # There is no step to leave out, and the run is not done.
                return self.fail(attempt, error)
            case Verb.PAUSE:
                return self._stop(attempt, error, RunState.PAUSED, Outcome.PAUSED, decision.reason)
            case Verb.CANCEL:
                row = attempt.failure_row(
                    error, ExecutionState.CANCELED, Outcome.CANCELED, self._recorder.now()
                )
                rows = attempt.ending(row, self._recorder.history, ends_run=True)
                return self._recorder.end(_settled(RunState.CANCELED, decision.reason, row), *rows)
            case _:
                return self.fail(attempt, error, decision.reason)

    def _retry(self, attempt: Attempt, error: BaseException | None, decision: Decision) -> Activated | None:
        recorder = self._recorder
        outcome = Outcome.TIMED_OUT if isinstance(error, StepTimedOut) else Outcome.RETRIED
        kept = attempt.details if attempt.site.is_wait else None
        details = policy_details(decision.label, is_set=attempt.is_set, kept=kept)
        row = attempt.failure_row(error, ExecutionState.FAILED, outcome, recorder.now(), details)
        beside = attempt.closing if attempt.kept is None else (*attempt.closing, attempt.kept)
        if decision.wait <= timedelta():
            recorder.record(row, *beside, next_step=attempt.site.here)
            return None
        due = later(recorder.now(), decision.wait)
        if attempt.give_up_at is not None:
            # For the last time at its deadline.
            due = min(due, attempt.give_up_at)
        again = attempt.site.row(
            max(recorder.next_position, *(each.position + 1 for each in (row, *beside))),
            ExecutionState.SCHEDULED,
            attempt=attempt.number + 1,
            scheduled_for=due,
            cursor=attempt.cursor,
            continues_from=None if attempt.cursor is None else attempt.position,
            details=attempt.details or (RESCHEDULED if attempt.is_set else None),
        )
        settlement = Settlement(RunState.WAITING, reason=Reason.RETRY, wake_at=due)
        return recorder.park(settlement, row, *beside, again)

    def _stop(
        self,
        attempt: Attempt,
        error: BaseException,
        state: RunState,
        outcome: Outcome,
        reason: str | None,
        details: str | None = None,
    ) -> Activated | None:
        if outcome is Outcome.FAILED:
            outcome = _outcome_of(error)
        row = attempt.failure_row(error, ExecutionState.FAILED, outcome, self._recorder.now(), details)
        return self._recorder.stop(
            _settled(state, reason, row, error), row, *attempt.closing, next_step=attempt.site.here
        )


def _outcome_of(error: BaseException) -> Outcome:
    return Outcome.TIMED_OUT if isinstance(error, StepTimedOut) else Outcome.FAILED


def _settled(
    state: RunState, reason: str | None, row: Execution, error: BaseException | None = None
) -> Settlement:
    if isinstance(error, StepFailed):
        # What the run failed with is what went wrong in the step, in both styles.
        return Settlement(state, reason=reason, error_class=error.error_class, error_message=error.message)
    return Settlement(state, reason=reason, error_class=row.error_class, error_message=row.error_message)
