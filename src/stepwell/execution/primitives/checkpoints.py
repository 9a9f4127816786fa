"""Checkpoints of a resumable step: its row, rewritten with the cursor and what the body wrote since the last one."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NoReturn
from uuid import UUID

from stepwell.clock import to_micros
from stepwell.errors import RunError
from stepwell.execution.cursor import CURSOR_LIMIT, Cursor
from stepwell.execution.journal import TransientConflict, WritesRefused
from stepwell.execution.primitives.attempt import Attempt
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.suspension import LeaseLost
from stepwell.shield import shielded
from stepwell.states import ExecutionState

__all__ = ["cursor_of"]

_IMMUTABLE: Final = frozenset({type(None), bool, int, float, str, bytes, UUID, Decimal})


def cursor_of(attempt: Attempt, recorder: Recorder, runtime: ActivationRuntime) -> Cursor:
    """The cursor of an attempt, where the last checkpoint left it.

    Raises:
        Undecodable: Its text cannot be read back.
    """
    codec = recorder.codec
    what = f"cursor of step {attempt.spec.name!r}"

    def encode(value: Any) -> tuple[str, Any]:
        if type(value) is int:
            # What most cursors are, once for each item.
            return str(value), value
        text = codec.dumps(value, what=what, limit=CURSOR_LIMIT)
        return text, value if type(value) in _IMMUTABLE else codec.loads(text, what=what)

    return Cursor(
        None if attempt.cursor is None else codec.loads(attempt.cursor, what=what),
        resumed=attempt.cursor is not None,
        checkpoints=_Checkpoints(attempt, recorder, runtime),
        pages=attempt.scope.pages,
        every=attempt.spec.checkpoint_every,
        encode=encode,
    )


class _Checkpoints:
    """Writes the checkpoints of one execution of a resumable step."""

    def __init__(self, attempt: Attempt, recorder: Recorder, runtime: ActivationRuntime) -> None:
        self._attempt = attempt
        self._recorder = recorder
        self._runtime = runtime

    def enter(self) -> None:
        stopped = self._attempt.broken or self._runtime.asked
        if stopped is not None:
            raise stopped
        if not self._attempt.scope.is_here:
            raise RunError(
                "the cursor is moved on the thread that runs the step. In an async step write: "
                "await self.in_session(lambda session: self.cursor.set(...)), or make it an async generator that "
                "yields its position."
            )

    def write(self, text: str) -> None:
        attempt, recorder = self._attempt, self._recorder
        recorder.checkpoints += 1
        row = attempt.row(
            ExecutionState.IN_PROGRESS,
            None,
            None,
            cursor=text,
            result=_mark(recorder.checkpoints, recorder.now()),
            details=self._runtime.told,
        )
        try:
            with shielded():
                recorder.record(row, next_step=attempt.site.here, scope=attempt.scope)
                attempt.cursor, attempt.has_progressed = text, True
        except WritesRefused as refused:
            # As a flush by the body itself would have raised it.
            raise refused.error from refused
        except (LeaseLost, TransientConflict) as stopped:
            attempt.broken = stopped
            raise

    def should_stop(self, iterations: int) -> bool:
        spec, recorder = self._attempt.spec, self._recorder
        if spec.max_iterations is not None and iterations >= spec.max_iterations:
            return True
        if spec.max_runtime is not None and recorder.now() - self._attempt.started_at >= spec.max_runtime:
            return True
        return recorder.stop_request is not None or recorder.journal.stop_requested

    def stop(self, wait: timedelta) -> NoReturn:
        self._runtime.leave(wait)


def _mark(number: int, at: datetime) -> str:
    """What tells this checkpoint from every other one of its row, when its commit's answer was lost.

    The position does not: it may be the same as before. It stands where the row will have its result.
    """
    return json.dumps({"checkpoint": number, "at": to_micros(at)})
