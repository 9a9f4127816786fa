"""Calling a step's function: plain or async, limited in time or not, and the ones that can go on where they stopped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from stepwell.definition.plan import StepSpec
from stepwell.errors import StepTimedOut
from stepwell.execution.cursor import CURSOR_LIMIT, Cursor
from stepwell.execution.primitives.attempt import Attempt
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.states import ExecutionState

__all__ = ["Bodies"]

_END: Final = object()


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
        arguments = (workflow, attempt.payload) if spec.takes_payload else (workflow,)
        if spec.is_resumable:
            cursor = self._cursor(attempt)
            self._runtime.moves(cursor)
            if spec.is_generator:
                return self._exhaust(spec, spec.function(*arguments), cursor)
        if spec.is_async:
            return self._journal.run_coroutine(spec.function(*arguments), spec.timeout)
        if spec.timeout is not None:
            return self._journal.run_limited(lambda: spec.function(*arguments), spec.timeout)
        return spec.function(*arguments)

    def _cursor(self, attempt: Attempt) -> Cursor:
        codec = self._recorder.codec
        what = f"cursor of step {attempt.spec.name!r}"
        value = None if attempt.cursor is None else codec.loads(attempt.cursor, what=what)
        return Cursor(
            value,
            resumed=attempt.cursor is not None,
            checkpoints=_StepCheckpoints(self._recorder, attempt),
            pages=attempt.scope.pages,
            every=attempt.spec.checkpoint_every,
            encode=lambda new: codec.loads(codec.dumps(new, what=what, limit=CURSOR_LIMIT), what=what),
        )

    def _exhaust(self, spec: StepSpec, generator: Any, cursor: Cursor) -> Any:
        """A generator step: each ``yield`` moves the cursor and is a checkpoint; what it returns is the result."""
        items = _AsyncItems(self._journal, generator, spec) if spec.is_async else _Items(self._journal, generator, spec)
        try:
            for value in items:
                cursor.set(value)
            cursor.finish()
            return items.result
        finally:
            items.close()


class _StepCheckpoints:
    """Checkpoints of one execution of a resumable step."""

    def __init__(self, recorder: Recorder, attempt: Attempt) -> None:
        self._recorder = recorder
        self._attempt = attempt

    def write(self, value: Any) -> None:
        attempt, recorder = self._attempt, self._recorder
        attempt.cursor = recorder.codec.dumps(
            value, what=f"cursor of step {attempt.spec.name!r}", limit=CURSOR_LIMIT
        )
        row = attempt.row(ExecutionState.IN_PROGRESS, None, None)
        recorder.record(row, next_step=attempt.spec.name, scope=attempt.scope)

    def should_stop(self, iterations: int) -> bool:
        spec, recorder = self._attempt.spec, self._recorder
        if spec.max_iterations is not None and iterations >= spec.max_iterations:
            return True
        if spec.max_runtime is not None and recorder.now() - self._attempt.started_at >= spec.max_runtime:
            return True
        return recorder.stop_request is not None or recorder.journal.stop_requested


class _Items:
    """The values that a generator yields, within the step's time."""

    def __init__(self, journal: Any, generator: Any, spec: StepSpec) -> None:
        self._journal = journal
        self._generator = generator
        self._spec = spec
        self._left = spec.timeout
        self.result: Any = None

    def __iter__(self) -> Iterator[Any]:
        while True:
            value = self._limited()
            if value is _END:
                return
            yield value

    def _limited(self) -> Any:
        if self._left is None:
            return self._next(None)
        began = self._journal.now()
        if self._left <= timedelta():
            raise StepTimedOut(f"the body was ended at a yield (timeout {self._spec.timeout})")
        value = self._next(self._left)
        self._left -= self._journal.now() - began
        return value

    def _next(self, left: timedelta | None) -> Any:
        return self._step() if left is None else self._journal.run_limited(self._step, left)

    def _step(self) -> Any:
        try:
            return next(self._generator)
        except StopIteration as end:
            self.result = end.value
            return _END

    def close(self) -> None:
        self._generator.close()


class _AsyncItems(_Items):
    """The values that an async generator yields; it has no result."""

    def _next(self, left: timedelta | None) -> Any:
        return self._journal.run_coroutine(self._anext(), left)

    async def _anext(self) -> Any:
        try:
            return await anext(self._generator)
        except StopAsyncIteration:
            return _END

    def close(self) -> None:
        self._journal.run_coroutine(self._generator.aclose(), None)
