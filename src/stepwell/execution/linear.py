"""The driver of declared workflows: walks the plan from the step that the run is at.

What the run waits for is looked at in a fixed order at each step boundary: what somebody asks for, whether the step
is due, whether it belongs in this place, then the step itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stepwell.definition.plan import StepSpec
from stepwell.entries import Execution, Settlement
from stepwell.execution.attempts import closed, closed_waits, latest_scheduled
from stepwell.execution.outcome import Activated
from stepwell.execution.primitives.approach import Approach
from stepwell.execution.primitives.notices import Notices
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.requests import StopRequest
from stepwell.states import ExecutionState, Kind, Outcome, RunState

__all__ = ["LinearDriver"]


class LinearDriver:
    """Drives one activation of a declared workflow.

    Args:
        recorder: The run's journal.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._plan = recorder.run.plan
        self._runtime = ActivationRuntime(recorder)
        self._approach = Approach(recorder, self._runtime)
        self._notices = Notices(recorder, self._runtime)

    def drive(self) -> Activated:
        """Go on until the run parks or ends.

        Raises:
            LeaseLost: The run is no longer ours.
        """
        while True:
            ended = self._go_on()
            if ended is not None:
                if self._recorder.settled is not None:
                    self._notices.settled(self._recorder.settled, self._runtime.failure)
                if ended.state is RunState.FAILED:
                    return replace(ended, error=self._runtime.failure)
                return ended

    def _go_on(self) -> Activated | None:
        """One step boundary and, when nothing stands against it, one attempt."""
        recorder = self._recorder
        # First: what somebody asks for may come with that write, whose counter the next park goes by.
        recorder.take_up_changes()
        if recorder.stop_request is not None:
            return self._honour(StopRequest.parse(recorder.stop_request))
        if recorder.current_step is None:
            return recorder.end(Settlement(RunState.COMPLETED, result="null"))
        spec = self._plan.find(recorder.current_step)
        if spec is None:
            raise LookupError(recorder.current_step)
        if spec.is_removed:
            self._pass_over(spec)
            return None
        following = self._plan.after(spec.name)
        return self._approach.take(Site(spec, following.name if following else None))

    def _pass_over(self, spec: StepSpec, **more: Any) -> None:
        """The step is left out: it is gone, or somebody says so. Note it and go on with the next."""
        recorder, site = self._recorder, Site(spec)
        following = self._plan.after(spec.name)
        announced = latest_scheduled(recorder.history, site)
        row = site.row(
            announced.position if announced else recorder.next_position,
            ExecutionState.SKIPPED,
            outcome=Outcome.SKIPPED,
            attempt=announced.attempt if announced else 1,
            cursor=announced.cursor if announced else None,
            continues_from=announced.continues_from if announced else None,
            finished_at=recorder.now(),
            **more,
        )
        waits = closed_waits(
            recorder.history, spec.name, ExecutionState.SKIPPED, Outcome.SKIPPED, recorder.now()
        )
        recorder.record(row, *waits, next_step=following.name if following else None)

    # -- what somebody asks for ---------------------------------------------------------------------------------

    def _honour(self, request: StopRequest | None) -> Activated | None:
        recorder, at = self._recorder, self._recorder.current_step
        spec = None if at is None else self._plan.find(at)
        match request:
            case StopRequest(verb="cancel", reason=reason):
                canceled = Settlement(RunState.CANCELED, reason=reason)
                return recorder.honour(request, canceled, *self._called_off(), next_step=at)
            case StopRequest(verb="pause", reason=reason):
                # By compare-and-set: a pause that is withdrawn at this very moment does not happen.
                return recorder.honour(request, Settlement(RunState.PAUSED, reason=reason), next_step=at)
            case StopRequest(verb="skip", step=step) if spec is not None and step == spec.name:
                self._pass_over(spec, details=request.note(RunState.RUNNING))
                # What came with that write is looked at before this request is cleared.
                return None
        # Void, since the step that was meant is over: the next claim goes on without the request.
        return recorder.answer()

    def _called_off(self) -> list[Execution]:
        history, now = self._recorder.history, self._recorder.now()
        rows = [
            closed(fact, ExecutionState.CANCELED, Outcome.CANCELED, now) for fact in history.open.values()
        ]
        return sorted(rows, key=lambda row: row.kind is not Kind.STEP)
