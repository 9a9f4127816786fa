"""The driver of procedural workflows: calls ``run()`` from its top; what is done already answers from the journal."""

from __future__ import annotations

import copy
import functools
import inspect
import json
from dataclasses import replace
from typing import Any, Final

from stepwell.definition.plan import StepSpec
from stepwell.definition.runtime import current
from stepwell.entries import Settlement
from stepwell.errors import Unstorable
from stepwell.execution.async_body import is_the_end
from stepwell.execution.async_program import AsyncProgram
from stepwell.execution.attempts import BESIDE
from stepwell.execution.outcome import Activated
from stepwell.execution.passage import Closed, recorded_position
from stepwell.execution.primitives.notices import Notices
from stepwell.execution.primitives.steps import StepRunner
from stepwell.execution.primitives.timers import Timer
from stepwell.execution.program import ReplayProgram
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.execution.suspension import Interrupted, LeaseLost
from stepwell.logs import facts_logger
from stepwell.requests import StopRequest
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState

__all__ = ["ReplayDriver"]

_log: Final = facts_logger(__name__)
_LONG: Final = 5000


class ReplayDriver:
    """Drives one activation of a workflow with ``run()``.

    Args:
        recorder: The run's journal.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._runtime = ActivationRuntime(recorder)
        self._notices = Notices(recorder, self._runtime)
        self._steps = StepRunner(recorder, self._runtime)
        self._timer = Timer(recorder, self._runtime)

    def drive(self) -> Activated:
        """Go on until the run parks or ends.

        Raises:
            LeaseLost: The run is no longer ours.
        """
        ended = None
        while ended is None:
            ended = self._delayed() or self._replayed()
        self._warn_of_length()
        if self._recorder.settled is not None:
            self._notices.settled(self._recorder.settled, self._runtime.failure)
        return replace(ended, error=self._runtime.failure) if ended.state is RunState.FAILED else ended

    def _replayed(self) -> Activated | None:
        """Call ``run()`` once. None when it is to be called again at once."""
        kind = AsyncProgram if self._recorder.run.plan.is_async else ReplayProgram
        program = kind(self._recorder, self._runtime)
        self._runtime.replay = program
        self._recorder.take_up_first_changes()
        try:
            program.honour_requests()
            value = self._call_body()
        except Closed:
            return program.outcome()
        except LeaseLost:
            raise
        except BaseException as error:
            if program.is_closed:
                if self._recorder.run.plan.is_async and is_the_end(error):
                    return program.outcome()
                return self._swallowed(program, error)
            if isinstance(error, Interrupted):
                return self._interrupted()
            return self._failed(program, error)
        if program.is_closed:
            return self._swallowed(program, None)
        return self._finished(program, value)

    def _call_body(self) -> Any:
        run, runtime = self._recorder.run, self._runtime
        workflow = runtime.body = object.__new__(run.workflow)
        workflow._runtime, workflow._args = runtime, runtime.arguments
        # The version at which the run was started, for `if self.version >= 2`.
        workflow.version = run.version
        token = current.set(runtime)
        try:
            call = functools.partial(workflow.run, **copy.deepcopy(dict(run.args)))
            return call() if runtime.async_body is None else runtime.async_body.run(call)
        finally:
            current.reset(token)

    def _warn_of_length(self) -> None:
        """Each wake replays the journal: a run that goes on for ever should begin a new one from time to time."""
        run, length = self._recorder.run, len(self._recorder.history)
        if length > _LONG:
            _log.warning(
                "a run has a long journal, which each of its wakes replays: self.start_over() begins a new one",
                extra={
                    "action": "run.long_journal",
                    "run_id": str(run.id),
                    "workflow": run.plan.workflow,
                    "entries": length,
                },
            )

    def _swallowed(self, program: ReplayProgram, error: BaseException | None) -> Activated:
        """How the activation had ended before ``run()`` went on: that stands."""
        run, place = self._recorder.run, program.caught_at()
        _log.warning(
            "run() went on although its activation had ended; what it did there counts for nothing. Let BaseException "
            "pass, and call no step in a `finally` that must also hold when the run only waits.",
            extra={
                "action": "run.swallowed",
                "run_id": str(run.id),
                "workflow": run.plan.workflow,
                "error": None if error is None else repr(error),
                "caught_at": place,
            },
        )
        return replace(program.outcome(), swallowed=place or "run()")

    def _interrupted(self) -> Activated:
        """The worker drains, and has stopped a ``run()`` that was waiting for something of its own."""
        recorder = self._recorder
        recorder.catch_up()
        recorder.context.roll_back()
        return recorder.hand_back(reason=Reason.INTERRUPTED)

    # -- how run() ended ----------------------------------------------------------------------------------------

    def _finished(self, program: ReplayProgram, value: Any) -> Activated | None:
        recorder = self._recorder
        try:
            text = recorder.codec.dumps(value, what="result of run()", limit=recorder.result_limit)
            recorder.catch_up()
            recorder.context.changes()
        except Unstorable as error:
            return self._failed(program, error)
        # Behind the last call there is none to be left out.
        recorder.current_step = None
        # What has come during the last call is the run's, too, though run() has seen nothing of it.
        recorder.take_up_changes()
        try:
            # What was asked for while the last call was under way, as it would be before a next one.
            program.honour_requests()
        except Closed:
            return program.outcome()
        return program.end(
            Settlement(RunState.COMPLETED, result=text), ExecutionState.SKIPPED, Outcome.SKIPPED
        )

    def _failed(self, program: ReplayProgram, error: BaseException) -> Activated | None:
        """``run()`` raised. What is recorded would be raised again: only a person can have it tried anew."""
        recorder = self._recorder
        error = self._explained(error)
        escaped = recorded_position(error, self._has_gone_on)
        recorder.catch_up()
        # What run() itself has changed since its last call is made again by a replay, or is gone with its cause.
        recorder.context.forget()
        known = None if escaped is None else recorder.history.at(escaped)
        # The run stands at the call that failed, whatever run() has called since; by itself it fails at no call.
        recorder.current_step = None if known is None else known.name
        site = self._body_site()
        if escaped is None:
            return self._steps.failed_outside(site, error)
        return self._steps.failed_outside(site, error, json.dumps({"escaped": escaped}))

    def _explained(self, error: BaseException) -> BaseException:
        """Where ``run()`` has other parameters than the start had arguments, what to do about it."""
        run = self._recorder.run
        if not isinstance(error, TypeError):
            return error
        try:
            inspect.signature(run.workflow.run).bind(None, **run.args)
        except TypeError:
            given = ", ".join(run.args) or "none"
            explained = TypeError(
                f"{error}. The run was started with other arguments ({given}): give a new parameter a default, and "
                "keep one that is gone, for as long as such runs are under way"
            )
            explained.__cause__ = error
            return explained
        return error

    def _has_gone_on(self, position: int) -> bool:
        """``run()`` has called others after the call whose row is there."""
        return any(fact.position > position and fact.kind not in BESIDE for fact in self._recorder.history)

    def _delayed(self) -> Activated | None:
        """The delay after an error of ``run()`` itself is not over yet; if it is, that is noted."""
        recorder, site = self._recorder, self._body_site()
        announced = [fact for fact in recorder.history.open.values() if fact.kind == Kind.BODY]
        request = StopRequest.parse(recorder.stop_request)
        if announced and request is not None and request.verb == "skip":
            # There is no step to be left out, and its delay holds.
            return recorder.answer() or self._delayed()
        if not announced or request is not None:
            return None
        waited = self._timer.wait_for(site)
        if not waited.is_due:
            return waited.ended or self._delayed()
        over = site.row(
            announced[0].position,
            ExecutionState.COMPLETED,
            outcome=Outcome.CONTINUED,
            attempt=announced[0].attempt,
            scheduled_for=announced[0].scheduled_for,
            finished_at=recorder.now(),
        )
        recorder.record(over, next_step=recorder.current_step)
        return None

    def _body_site(self) -> Site:
        spec = StepSpec("run", self._recorder.run.workflow.run)
        return Site(spec, self._recorder.current_step, Kind.BODY)
