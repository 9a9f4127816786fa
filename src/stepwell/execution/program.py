"""The body of ``run()`` while it is driven: its durable calls, on the first pass and on replay alike."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import FunctionType
from typing import Any, Final, NoReturn
from uuid import UUID

from stepwell.definition.calls import arguments_of_run, call_of
from stepwell.definition.functions import is_async
from stepwell.definition.launching import target_of
from stepwell.definition.plan import StepSpec
from stepwell.definition.repeats import Repetition
from stepwell.definition.unset import UNSET
from stepwell.definition.waits import Child, Poll, Signal
from stepwell.entries import Settlement
from stepwell.execution.attempts import is_success
from stepwell.execution.context import handed_over
from stepwell.execution.identity import arguments_of, call_key, digest_of
from stepwell.execution.journal import Succession, TransientConflict
from stepwell.execution.outcome import Activated
from stepwell.execution.passage import Passage
from stepwell.execution.primitives.repeats import Repeats
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.ids import new_run_id
from stepwell.requests import StopRequest
from stepwell.states import ExecutionState, Kind, Outcome, RunState

__all__ = ["ReplayProgram"]

_MOST_CONFLICTS: Final = 10


class ReplayProgram(Passage):
    """What ``run()`` can say (see ``definition.program.Program``)."""

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        super().__init__(recorder, runtime)
        self._uuids = random.Random(f"{recorder.run.id}:uuid4")
        self.random = random.Random(f"{recorder.run.id}:random")

    # -- steps --------------------------------------------------------------------------------------------------

    def call_step(self, spec: StepSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self._enter()
        arguments = arguments_of(spec.function, args, kwargs, is_method=True)
        key = call_key(spec, args, kwargs, self._codec)
        return self._called(spec, key, arguments, args, kwargs)

    def call_function(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        self._enter()
        arguments = arguments_of(function, args, kwargs, is_method=False)
        spec = StepSpec(name, self._unbound(function), is_async=is_async(function))
        return self._called(spec, None, arguments, args, kwargs)

    def _called(
        self,
        spec: StepSpec,
        key: str | None,
        arguments: Mapping[str, Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        digest = digest_of(arguments, self._codec, spec.name) if arguments and spec.digest else None
        key = self._numbered(Kind.STEP, spec.name, key)
        facts = self._history.of(Kind.STEP, spec.name, key)
        if facts and facts[-1].args_digest == digest and is_success(facts[-1]):
            # Nearly every call of a long replay is this one, and needs no more than what is recorded.
            return self._passed(facts, spec.name)
        return self._answer(
            Site(spec, spec.name, key=key, is_called=True, args=args, kwargs=kwargs, digest=digest)
        )

    def _unbound(self, function: Any) -> Callable[..., Any]:
        """The function as a step's: called with the attempt's own instance, where it is a method of this workflow."""
        inner = getattr(function, "__func__", None)
        if inner is not None and function.__self__ is self._runtime.body:
            return inner  # type: ignore[no-any-return]  # a method's function

        @functools.wraps(function)
        def call(workflow: Any, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return call

    def call(self, target: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self._enter()
        cls, _ = target_of(target, "self.call()")
        call = call_of(cls, args, kwargs)
        arguments = call.args if call.hero is None else {"hero": call.hero, **call.args}
        spec = StepSpec(cls.workflow_name, _any_arguments, child=Child(target, call))
        digest = digest_of(arguments, self._codec, spec.name)
        site = Site(spec, spec.name, Kind.CALL, is_called=True, kwargs=arguments, digest=digest)
        return self._answer(self._site(site))

    # -- waits --------------------------------------------------------------------------------------------------

    def sleep(self, wait: timedelta | None, until: Any, name: str | None) -> None:
        self._enter()
        wait_until = until if until is None or isinstance(until, datetime) else self._condition(until)
        spec = StepSpec(
            name or ("sleep" if until is None else "sleep_until"), _nothing, wait=wait, wait_until=wait_until
        )
        self._wait(spec, Kind.TIMER)

    def wait_until(self, poll: Poll, name: str | None, options: Mapping[str, Any]) -> Any:
        self._enter()
        poll, given = replace(poll, condition=self._condition(poll.condition)), poll.condition
        spec = StepSpec(name or _name_of(given, "wait_until"), _nothing, poll=poll, **options)
        return self._wait(spec, Kind.POLL)

    def continue_if(self, condition: Any, name: str | None, options: Mapping[str, Any]) -> None:
        self._enter()
        gate = self._condition(condition)
        self._wait(
            StepSpec(name or _name_of(condition, "continue_if"), _nothing, gate=gate, **options), Kind.GATE
        )

    def wait_for_signal(self, signal: Signal, deadline: datetime | None) -> Any:
        self._enter()
        if deadline is not None:
            signal = replace(signal, timeout=deadline - self._recorder.now())
        return self._wait(StepSpec(signal.name, _nothing, awaits=signal), Kind.SIGNAL)

    def _wait(self, spec: StepSpec, kind: Kind) -> Any:
        return self._answer(self._site(Site(spec, spec.name, kind, is_called=True)))

    def _condition(self, condition: Any) -> Callable[[Any], Any]:
        """The author's condition as one that is asked with an instance of its own."""
        if isinstance(condition, str):
            return lambda workflow: getattr(workflow, condition)()
        if isinstance(condition, FunctionType) and _wants_one(condition):
            # As declared conditions are written: lambda self: ...
            return condition
        return self._unbound(condition)

    # -- repetitions --------------------------------------------------------------------------------------------

    def repeat(
        self, spec: StepSpec | None, name: str, function: Callable[..., Any], repetition: Repetition
    ) -> Any:
        self._enter()
        if spec is None:
            spec = StepSpec(name, self._unbound(function), is_async=is_async(function))
        if repetition.until is not None:
            repetition = replace(repetition, until=self._condition(repetition.until))
        site = self._site(Site(replace(spec, name=name), name, Kind.REPEAT, is_called=True))
        repeats = Repeats(self._recorder, self._runtime, self._approach, site, repetition)
        return self._answer(site, lambda _: self._go_on(repeats.tick(), repeats.take))

    # -- what ends the run, or stops it -------------------------------------------------------------------------

    def pause(self, reason: str | None) -> None:
        self._enter()
        site = self._site(Site(StepSpec("pause", _nothing), "pause", Kind.PAUSE, is_called=True))
        if self._history.of(site.kind, site.name, site.key):
            self._answer(site)
            return
        with self._ours():
            self._pause_at(site, reason)

    def _pause_at(self, site: Site, reason: str | None) -> None:
        self._prepare()
        recorder = self._recorder
        request = StopRequest.parse(recorder.stop_request)
        if request is not None and request.verb == "skip":
            # Of what came before: nobody can leave out a pause that the run has not come to.
            self._close_if(recorder.answer())
        row = site.row(
            recorder.next_position,
            ExecutionState.COMPLETED,
            outcome=Outcome.PAUSED,
            started_at=recorder.now(),
            finished_at=recorder.now(),
            result="null",
        )
        ended = recorder.stop(Settlement(RunState.PAUSED, reason=reason), row, next_step=site.name)
        if ended is not None:
            self.close(ended)

    def cancel(self, reason: str | None) -> NoReturn:
        self._enter()
        with self._ours():
            self._prepare()
            settlement = Settlement(RunState.CANCELED, reason=reason)
            ended = self.end(settlement, ExecutionState.CANCELED, Outcome.CANCELED)
        self.close(ended)

    def finish(self, result: object) -> NoReturn:
        self._enter()
        with self._ours():
            self._prepare()
            text = self._codec.dumps(result, what="result of finish()", limit=self._recorder.result_limit)
            self._recorder.take_up_changes()
            settlement = Settlement(RunState.COMPLETED, result=text)
            ended = self.end(settlement, ExecutionState.SKIPPED, Outcome.SKIPPED)
        self.close(ended)

    def start_over(self, args: Mapping[str, Any], context: Any) -> NoReturn:
        self._enter()
        values = arguments_of_run(self._recorder.run.workflow, args)
        with self._ours():
            self._prepare()
            kept = self._recorder.context if context is UNSET else context
            succession = Succession(new_run_id(), values, handed_over(kept, self._codec))
            ended = None
            while ended is None:
                self.honour_requests()
                ended = self._hand_over(succession)
        self.close(ended)

    def _hand_over(self, succession: Succession) -> Activated | None:
        rows = self._closing(ExecutionState.SKIPPED, Outcome.SKIPPED)
        for attempt in range(_MOST_CONFLICTS):
            try:
                return self._recorder.hand_over(succession, *rows)
            except TransientConflict:
                if attempt == _MOST_CONFLICTS - 1:
                    raise
        return None

    # -- values that replay alike -------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self._now

    def uuid4(self) -> UUID:
        return UUID(int=self._uuids.getrandbits(128), version=4)


def _name_of(condition: Any, fallback: str) -> str:
    name = condition if isinstance(condition, str) else getattr(condition, "__name__", "")
    return name if name and not name.startswith("<") else fallback


def _any_arguments(workflow: Any, **arguments: Any) -> None:
    """The body of what is called elsewhere."""


def _nothing(workflow: Any) -> None:
    """The body of what only waits."""


def _wants_one(function: FunctionType) -> bool:
    """It takes one argument that it cannot do without."""
    return function.__code__.co_argcount - len(function.__defaults__ or ()) == 1
