"""Workers that die at a chosen place, without a process that has to be killed for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

from stepwell.engine.store_journal import StoreJournal
from stepwell.entries import Execution, Settlement, Verdict
from stepwell.execution.journal import Body
from stepwell.execution.suspension import LeaseLost
from stepwell.states import BODIES, ExecutionState

__all__ = ["CrashPoint", "MortalJournal", "Trap", "WorkerDied"]


class CrashPoint(StrEnum):
    """Where a worker can die."""

    BEFORE_STEP = "before_step"
    """The run is claimed, the step's body has not begun."""
    AFTER_BODY = "after_body"
    """The body has ended, and nothing of it is recorded: what it did outside of the database is done."""
    BEFORE_COMMIT = "before_commit"
    """An attempt at a step is about to be recorded, with what it wrote through its session."""
    AFTER_COMMIT = "after_commit"
    """The attempt is recorded, and nothing that follows from it has happened."""
    BEFORE_CHECKPOINT = "before_checkpoint"
    """A resumable step is about to record its cursor, with what it wrote since the last checkpoint."""
    AFTER_CHECKPOINT = "after_checkpoint"
    """The cursor is recorded."""
    BEFORE_SETTLE = "before_settle"
    """The run is about to be given back: it waits, it has stopped, or it is over."""
    AFTER_SETTLE = "after_settle"
    """The run is given back, and nobody has been told."""


_BEFORE: Final = {
    "commit": CrashPoint.BEFORE_COMMIT,
    "checkpoint": CrashPoint.BEFORE_CHECKPOINT,
    "settle": CrashPoint.BEFORE_SETTLE,
}
_AFTER: Final = {
    "commit": CrashPoint.AFTER_COMMIT,
    "checkpoint": CrashPoint.AFTER_CHECKPOINT,
    "settle": CrashPoint.AFTER_SETTLE,
}


class WorkerDied(LeaseLost):
    """Ends an activation as a killed process would: nothing more is written, and the lease is left behind."""

    def __init__(self, trap: Trap) -> None:
        super().__init__(f"the worker has died {trap}, as crash_at() asked")
        self.trap = trap


class Trap:
    """Kills the worker that comes to a place, once.

    Args:
        point: The place.
        step: At this step only; None: at any.
        nth: Which visit kills, from 1.

    Attributes:
        visits: How often a worker has come there.
        is_sprung: One has died.
    """

    def __init__(self, point: CrashPoint, step: str | None, nth: int) -> None:
        if nth < 1:
            raise ValueError(f"nth counts from 1; got {nth}")
        self._point = point
        self._step = step
        self._nth = nth
        self.visits = 0
        self.is_sprung = False

    def __str__(self) -> str:
        times = f", visit {self._nth}" if self._nth > 1 else ""
        step = f" of step {self._step!r}" if self._step else ""
        return f"at {self._point.value}{step}{times}"

    def visit(self, point: CrashPoint, step: str | None) -> None:
        """The worker comes by.

        Raises:
            WorkerDied: This is the place; or the worker is dead, and the author's code has caught that.
        """
        if not self.is_sprung and point is self._point and self._step in (None, step):
            self.visits += 1
            self.is_sprung = self.visits == self._nth
        if self.is_sprung:
            raise WorkerDied(self)


class MortalJournal(StoreJournal):
    """A run's journal that leads its worker past a trap.

    Args:
        trap: The trap.
        arguments: As of ``StoreJournal``.
    """

    def __init__(self, trap: Trap, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._trap = trap

    def body_starts(self, body: Body) -> None:
        super().body_starts(body)
        self._trap.visit(CrashPoint.BEFORE_STEP, body.name)

    def body_ends(self) -> None:
        shown = self._lease.shown
        super().body_ends()
        self._trap.visit(CrashPoint.AFTER_BODY, None if shown is None else shown.name)

    def write(
        self,
        executions: Sequence[Execution],
        *,
        current_step: str | None,
        settlement: Settlement | None = None,
        **more: Any,
    ) -> Verdict:
        acts = list(_acts(executions, current_step, settlement))
        for act, step in acts:
            self._trap.visit(_BEFORE[act], step)
        verdict = super().write(executions, current_step=current_step, settlement=settlement, **more)
        for act, step in acts if verdict.accepted else ():
            self._trap.visit(_AFTER[act], step)
        return verdict


def _acts(
    executions: Sequence[Execution], current_step: str | None, settlement: Settlement | None
) -> Iterator[tuple[str, str | None]]:
    """What one write does, and for which step."""
    for row in executions:
        if row.kind in BODIES and row.state is ExecutionState.IN_PROGRESS:
            yield "checkpoint", row.name
        elif row.kind in BODIES and row.finished_at is not None:
            yield "commit", row.name
    if settlement is not None:
        yield "settle", current_step
