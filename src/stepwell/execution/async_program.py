"""The body of an ``async def run()`` while it is driven."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from stepwell.definition.calls import arguments_of_run
from stepwell.definition.plan import StepSpec
from stepwell.definition.unset import UNSET
from stepwell.execution.async_body import AsyncBody
from stepwell.execution.program import ReplayProgram
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site

__all__ = ["AsyncProgram"]


class _NotRecorded(Exception):
    """The journal has no answer, or none at a glance."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.site = site


class AsyncProgram(ReplayProgram):
    """One pass through an ``async def run()``: the same calls, of which the durable ones come from a coroutine."""

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        super().__init__(recorder, runtime)
        runtime.async_body = self._body = AsyncBody(recorder.journal)

    def call_step(self, spec: StepSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if not self._body.is_here:
            return super().call_step(spec, args, kwargs)
        sites: list[Site] = []

        def recorded() -> tuple[Any] | None:
            try:
                return (super(AsyncProgram, self).call_step(spec, args, kwargs),)
            except _NotRecorded as what:
                sites.append(what.site)
                return None

        return self._body.call(f"step {spec.name!r}", lambda: self._answer(sites[0]), recorded)

    def _answer(self, site: Site, go_on: Callable[[Site], None] | None = None) -> Any:
        if self._body.is_here:
            # Here nothing is written.
            raise _NotRecorded(site)
        return super()._answer(site, go_on)

    def cancel(self, reason: str | None) -> NoReturn:
        if self._body.is_here:
            self._body.end("cancel()", lambda: self.cancel(reason))
        super().cancel(reason)

    def finish(self, result: object) -> NoReturn:
        if self._body.is_here:
            # Refused here if it cannot be stored, and kept as it is now: it is written when the coroutine is over.
            kept = self._codec.roundtrip(result, what="result of finish()")
            self._body.end("finish()", lambda: self.finish(kept))
        super().finish(result)

    def start_over(self, args: Mapping[str, Any], context: Any) -> NoReturn:
        if self._body.is_here:
            values = arguments_of_run(self._recorder.run.workflow, args)
            kept: Any = self._codec.roundtrip(values, what="arguments of start_over()")
            given = context if context is UNSET else copy.deepcopy(dict(context))
            self._body.end("start_over()", lambda: self.start_over(kept, given))
        super().start_over(args, context)
