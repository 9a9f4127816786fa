"""Calling a step's function: plain or async, limited in time or not, and the ones that go on where they stopped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from stepwell.errors import StepTimedOut
from stepwell.execution.primitives.attempt import Attempt
from stepwell.execution.primitives.checkpoints import cursor_of
from stepwell.execution.primitives.generators import AsyncItems, Items
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime

__all__ = ["Bodies"]


class Bodies:
    """Runs the bodies of one activation's steps."""

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        self._recorder = recorder
        self._runtime = runtime
        self._journal = recorder.journal

    def run(self, attempt: Attempt, workflow: Any) -> Any:
        """Call the step's function and answer what it returns.

        Raises:
            StepTimedOut: It ran longer than the step's ``timeout``.
        """
        spec = attempt.spec
        if spec.is_async:
            attempt.scope.preload()
        if spec.timeout is None or spec.is_async:
            return self._called(attempt, workflow)
        try:
            return self._called(attempt, workflow)
        except StepTimedOut:
            attempt.scope.abandon()
            raise

    def _called(self, attempt: Attempt, workflow: Any) -> Any:
        spec = attempt.spec
        if spec.is_resumable:
            attempt.moves = cursor_of(attempt, self._recorder, self._runtime)
            self._runtime.moves(attempt.moves)
        call = self._call(attempt, workflow)
        if spec.is_generator:
            return self._exhaust(attempt, call)
        if spec.is_async:
            return self._journal.run_coroutine(call(), spec.timeout)
        if spec.timeout is not None:
            return self._journal.run_limited(call, spec.timeout)
        return call()

    def _call(self, attempt: Attempt, workflow: Any) -> Callable[[], Any]:
        """The function with what it is to be called with."""
        site, resolved = attempt.site, self._runtime.resolved
        function = site.spec.function
        if site.is_called:
            args = [resolved(value) for value in site.args]
            named = {name: resolved(value) for name, value in (site.kwargs or {}).items()}
            return partial(function, workflow, *args, **named)
        if site.spec.takes_payload:
            return partial(function, workflow, resolved(attempt.payload))
        return partial(function, workflow)

    def _exhaust(self, attempt: Attempt, call: Callable[[], Any]) -> Any:
        """A generator step: each ``yield`` moves the cursor and is a checkpoint; what it returns is the result."""
        spec, cursor = attempt.spec, attempt.moves
        kind = AsyncItems if spec.is_async else Items
        items = kind(self._journal, call(), spec.timeout)
        try:
            for value in items:
                if cursor is not None:
                    cursor.set(value)
            return items.result
        except BaseException:
            # If it raised by itself it is over already. Else what it does on its way out changes nothing.
            items.close()
            raise
