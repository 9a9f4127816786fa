"""The way to a step: what must be so before it runs, looked at in a fixed order. Written once for both drivers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from stepwell.execution.outcome import Activated
from stepwell.execution.primitives.conditions import Conditions
from stepwell.execution.primitives.deadlines import Deadline
from stepwell.execution.primitives.steps import StepRunner
from stepwell.execution.primitives.timers import Timer
from stepwell.execution.primitives.waiting import DUE, Waited, WaitFailed, ask, verdict_of
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.states import Kind, Reason

__all__ = ["Approach"]

_WORTH: Final = 10


class Approach:
    """Takes an activation to its next step, or leaves the run where it has to wait.

    Args:
        recorder: The run's journal.
        runtime: What the workflow's methods see.
    """

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        self._recorder = recorder
        self._runtime = runtime
        self._steps = StepRunner(recorder, runtime)
        self._timer = Timer(recorder, runtime)
        self._conditions = Conditions(recorder, runtime)
        self._deadline = Deadline(recorder)
        self._has_run_a_step = False
        self._begun_at = recorder.now()
        self._arrived_at: datetime | None = None

    def take(self, site: Site, wait: Callable[[], Waited] | None = None) -> Activated | None:
        """Wait for what the site waits for, and run it once if it has a body.

        Args:
            site: Where to.
            wait: What holds it back, where that is not what its step says.

        Returns:
            None when the run goes on: the driver looks where it stands now. Else how the activation ended.

        Raises:
            LeaseLost: The run is no longer ours.
        """
        if self._arrived_at is None:
            self._arrived_at = self._recorder.now()
        try:
            self._deadline.check()
            asks_first = wait is None and self._asks_first(site)
            waited = self._waited(site, asks_first) if wait is None else wait()
        except WaitFailed as failure:
            return self._steps.failed_before(site, failure)
        if waited.ended is not None or not waited.is_due or site.is_wait:
            return waited.ended
        moved = self._moved(site)
        if moved is not None:
            return moved
        self._has_run_a_step = True
        return self._steps.run(site, waited.payload, is_asked=asks_first)

    def _waited(self, site: Site, asks_first: bool) -> Waited:
        if site.kind is Kind.TIMER:
            return self._timer.pass_by(site)
        waited = self._timer.wait_for(site) if site.kind is Kind.STEP else DUE
        if not waited.is_due:
            return waited
        if asks_first:
            # A step that is left out anyway must not be waited for.
            plan, scope = self._recorder.run.plan, self._recorder.journal.open_scope()
            verdict = ask(self._runtime, site, scope, partial(verdict_of, plan, site.spec))
            if verdict is not None:
                raise WaitFailed(verdict)
        return self._conditions.wait_for(site)

    def _asks_first(self, site: Site) -> bool:
        spec = site.spec
        waits = spec.awaits or spec.child or spec.gate or spec.poll
        return bool(
            waits and not site.is_called and (spec.skip_if or self._recorder.run.plan.cancel_conditions)
        )

    def _moved(self, site: Site) -> Activated | None:
        """Give the run back where the step belongs elsewhere, or others should have the thread."""
        recorder, spec = self._recorder, site.spec
        run = recorder.run
        queue = spec.queue or run.options.get("queue") or run.workflow.queue
        priority = spec.priority if spec.priority is not None else run.options.get("priority")
        if priority is None:
            priority = run.workflow.priority
        if (queue, priority) != (run.queue, run.priority):
            return recorder.hand_back(queue=queue, priority=priority)
        if self._has_run_a_step and (spec.isolated or self._gives_way()):
            return recorder.hand_back()
        if not self._has_run_a_step and recorder.journal.is_draining:
            return recorder.hand_back(reason=Reason.INTERRUPTED)
        return None

    def _gives_way(self) -> bool:
        """Others should have the thread.

        Not before what the way here has cost, by replaying a long journal, is small against what was done: else the
        steps of a run become dearer, the longer it is.
        """
        journal = self._recorder.journal
        if not journal.should_yield() or self._arrived_at is None:
            return False
        replayed_in = self._arrived_at - self._begun_at
        return journal.is_draining or self._recorder.now() - self._arrived_at >= _WORTH * replayed_in
