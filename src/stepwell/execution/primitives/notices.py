"""Calling the hooks of a workflow's class, where it has any.

``before_step``, ``around_step`` and, after a success, ``after_step`` belong to the attempt: what they raise is an
error of the step. The others are told when everything is durable: what they raise is logged and changes nothing, they
have no session and say no verbs, and a run that they start is started by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from stepwell.definition.hooks import around_step_of
from stepwell.definition.plan import StepSpec
from stepwell.entries import Settlement
from stepwell.errors import RunError
from stepwell.execution.journal import Scope
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.logs import facts_logger
from stepwell.states import Outcome, Reason, RunState

__all__ = ["Notices"]

_log = facts_logger(__name__)
_NOTHING: Final[AbstractContextManager[object]] = nullcontext()


class Notices:
    """Calls the overridden hooks of one activation's workflow."""

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        self._recorder = recorder
        self._runtime = runtime
        self._hooks = recorder.run.plan.hooks

    def before(self, workflow: Any, spec: StepSpec) -> None:
        if "before_step" in self._hooks:
            workflow.before_step(spec.name)

    def around(self, workflow: Any, spec: StepSpec) -> AbstractContextManager[object]:
        return around_step_of(workflow, spec.name) if "around_step" in self._hooks else _NOTHING

    def succeeded(self, workflow: Any, spec: StepSpec) -> None:
        if "after_step" in self._hooks:
            workflow.after_step(spec.name, Outcome.SUCCESS.value)

    def ended(self, workflow: Any, spec: StepSpec, scope: Scope, outcome: str) -> None:
        """An attempt has ended, and that is journaled."""
        if "after_step" in self._hooks:
            self._guarded("after_step", scope, lambda: workflow.after_step(spec.name, outcome))

    def settled(self, settlement: Settlement, error: BaseException | None) -> None:
        """The run is over, or needs attention, and that is durable."""
        match settlement.state:
            case RunState.COMPLETED if settlement.reason == Reason.CONTINUED:
                """Another run goes on in its place, and tells."""
            case RunState.COMPLETED:
                text = settlement.result or "null"
                self._tell("on_finish", lambda: self._recorder.codec.loads(text, what="result"))
            case RunState.FAILED:
                failure = error or RuntimeError(settlement.error_message or settlement.reason)
                self._tell("on_fail", lambda: failure)
            case RunState.PAUSED:
                self._tell("on_pause", lambda: settlement.reason)
            case RunState.CANCELED:
                self._tell("on_cancel", lambda: settlement.reason)

    def _tell(self, hook: str, argument: Any) -> None:
        if hook not in self._hooks:
            return
        scope = self._recorder.journal.open_scope()
        try:
            with self._runtime.attempting(None, scope) as workflow:
                self._guarded(hook, scope, lambda: getattr(workflow, hook)(argument()))
        finally:
            scope.close()

    def _guarded(self, hook: str, scope: Scope, call: Callable[[], object]) -> None:
        try:
            with self._runtime.telling(), scope.looking():
                call()
                if scope.has_changes():
                    raise RunError(f"{hook}() changed a record; it is called when everything is committed.")
        except BaseException:
            run = self._recorder.run
            _log.exception(
                "a hook raised; the run stands as it is",
                extra={
                    "action": "hook.failed",
                    "hook": hook,
                    "run_id": str(run.id),
                    "workflow": run.plan.workflow,
                },
            )
