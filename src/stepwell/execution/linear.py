"""The driver of declared workflows: walks the plan from the step that the run is at.

What the run waits for is looked at in a fixed order at each step boundary: what somebody asks for, whether the step
is due, whether it belongs in this place, then the step itself.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from stepwell.definition.plan import StepSpec
from stepwell.entries import Execution, Settlement
from stepwell.execution.attempts import closed_waits, latest_scheduled
from stepwell.execution.outcome import Activated
from stepwell.execution.primitives.conditions import Conditions
from stepwell.execution.primitives.deadlines import Deadline
from stepwell.execution.primitives.notices import Notices
from stepwell.execution.primitives.steps import StepRunner
from stepwell.execution.primitives.timers import Timer
from stepwell.execution.primitives.waiting import WaitFailed
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState

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
        self._steps = StepRunner(recorder, self._runtime)
        self._timer = Timer(recorder, self._runtime)
        self._conditions = Conditions(recorder, self._runtime)
        self._notices = Notices(recorder, self._runtime)
        self._deadline = Deadline(recorder)
        self._has_run_a_step = False

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
        if recorder.stop_request is not None:
            return self._honour(recorder.stop_request)
        if recorder.current_step is None:
            return recorder.end(Settlement(RunState.COMPLETED, result="null"))
        spec = self._plan.find(recorder.current_step)
        if spec is None:
            raise LookupError(recorder.current_step)
        if spec.is_removed:
            self._pass_over(spec)
            return None
        return self._when_due(spec)

    def _when_due(self, spec: StepSpec) -> Activated | None:
        following = self._plan.after(spec.name)
        next_step = following.name if following else None
        try:
            self._deadline.check()
            waited = self._timer.wait_for(spec)
            if waited.is_due:
                waited = self._conditions.wait_for(spec)
        except WaitFailed as failure:
            return self._steps.failed_before(spec, next_step, failure)
        if waited.ended is not None or not waited.is_due:
            return waited.ended
        moved = self._moved(spec)
        if moved is not None:
            return moved
        self._has_run_a_step = True
        return self._steps.run(spec, next_step, waited.payload)

    def _moved(self, spec: StepSpec) -> Activated | None:
        """Give the run back where the step belongs elsewhere, or others should have the thread."""
        recorder = self._recorder
        run = recorder.run
        queue = spec.queue or run.options.get("queue") or run.workflow.queue
        priority = spec.priority if spec.priority is not None else run.options.get("priority")
        if priority is None:
            priority = run.workflow.priority
        if (queue, priority) != (run.queue, run.priority):
            return recorder.hand_back(queue=queue, priority=priority)
        if self._has_run_a_step and (spec.isolated or recorder.journal.should_yield()):
            return recorder.hand_back()
        if not self._has_run_a_step and recorder.journal.is_draining:
            return recorder.hand_back(reason=Reason.INTERRUPTED)
        return None

    def _pass_over(self, spec: StepSpec) -> None:
        """The run stands on the gravestone of a step that is gone: note it and go on with the next."""
        following = self._plan.after(spec.name)
        self._note(spec.name, ExecutionState.SKIPPED, Outcome.SKIPPED, following)

    def _note(
        self, name: str, state: ExecutionState, outcome: Outcome, following: StepSpec | None, **more: Any
    ) -> None:
        recorder = self._recorder
        announced = latest_scheduled(recorder.facts, name)
        row = Execution(
            position=announced.position if announced else recorder.next_position,
            name=name,
            kind=Kind.STEP,
            state=state,
            outcome=outcome,
            attempt=announced.attempt if announced else 1,
            cursor=announced.cursor if announced else None,
            continues_from=announced.continues_from if announced else None,
            finished_at=recorder.now(),
            **more,
        )
        waits = closed_waits(recorder.facts, name, state, outcome, recorder.now())
        recorder.record(row, *waits, next_step=following.name if following else None)

    # -- what somebody asks for ---------------------------------------------------------------------------------

    def _honour(self, text: str) -> Activated | None:
        request = json.loads(text)
        reason = request.get("reason")
        match request.get("verb"):
            case "cancel":
                return self._stop(Settlement(RunState.CANCELED, reason=reason), Outcome.CANCELED)
            case "pause":
                # By compare-and-set: a pause that is withdrawn at this very moment does not happen.
                settlement = Settlement(RunState.PAUSED, reason=reason, answers_request=True)
                return self._recorder.park(settlement)
            case "skip" if request.get("step") == self._recorder.current_step is not None:
                self._note(
                    self._recorder.current_step,
                    ExecutionState.SKIPPED,
                    Outcome.SKIPPED,
                    self._plan.after(self._recorder.current_step),
                    details=json.dumps({"by": request.get("by"), "reason": reason}),
                )
                # What came with that write is looked at before this request is cleared.
                return None
        # Void, since the step that was meant is over: the next claim goes on without the request.
        return self._recorder.answer()

    def _stop(self, settlement: Settlement, outcome: Outcome) -> Activated:
        recorder = self._recorder
        if recorder.current_step is None:
            return recorder.end(settlement)
        waits = closed_waits(
            recorder.facts, recorder.current_step, ExecutionState.CANCELED, outcome, recorder.now()
        )
        announced = latest_scheduled(recorder.facts, recorder.current_step)
        if announced is None:
            return recorder.end(settlement, *waits)
        row = Execution(
            position=announced.position,
            name=announced.name,
            kind=Kind.STEP,
            state=ExecutionState.CANCELED,
            outcome=outcome,
            attempt=announced.attempt,
            cursor=announced.cursor,
            continues_from=announced.continues_from,
            scheduled_for=announced.scheduled_for,
            finished_at=recorder.now(),
        )
        return recorder.end(settlement, row, *waits)
