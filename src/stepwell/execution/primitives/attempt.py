"""An attempt at a step while it is under way, and the journal row with which it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from stepwell.definition.plan import StepSpec
from stepwell.entries import Execution
from stepwell.execution.attempts import RESCHEDULED, closed_waits
from stepwell.execution.cursor import Cursor
from stepwell.execution.errors import describe
from stepwell.execution.history import History
from stepwell.execution.journal import Scope
from stepwell.execution.site import Site
from stepwell.states import ExecutionState, Outcome

__all__ = ["Attempt"]


@dataclass(slots=True)
class Attempt:
    """An attempt under way; not frozen, since a resumable step's cursor moves.

    Attributes:
        site: The step, and which of its calls.
        scope: What the body writes through.
        position: The position of its row.
        number: Which attempt it is, from 1.
        scheduled_for: For when it was announced, if it was.
        payload: What the signal brought that the step awaited.
        closing: The row of a wait that ran out, which ends together with this attempt.
        cursor: Where a resumable step stands, as stored: what was not written with it is undone with the body.
        moves: The cursor that the body moves.
        broken: Why nothing of this body can be written any more (a lost lease, a conflict), once that is known.
        continues_from: The position of the execution whose cursor it took over.
        outcome: How it ended, once it has.
        has_progressed: A checkpoint of it is durable.
        has_begun: Its hooks, and then its body, were called.
        details: What its next attempt is to know, of a wait that is called from ``run()``.
        spec: The step.
        is_told: Its end was told to the class's hook, as part of it.
        is_asked: The conditions of the step were looked at before it.
        give_up_at: The wait that has failed ends then: no retry comes later.
        kept: The row of that wait, which goes on with the next attempt.
        is_set: A person has set its instant, or that of the attempt before it.
    """

    site: Site
    scope: Scope
    position: int
    number: int
    scheduled_for: datetime | None
    started_at: datetime
    payload: Any = None
    closing: tuple[Execution, ...] = ()
    cursor: str | None = None
    moves: Cursor | None = None
    broken: BaseException | None = None
    continues_from: int | None = None
    outcome: Outcome | None = None
    has_progressed: bool = False
    has_begun: bool = False
    details: str | None = None
    is_told: bool = False
    is_asked: bool = False
    give_up_at: datetime | None = None
    kept: Execution | None = None
    spec: StepSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = self.site.spec

    is_set: bool = False

    @property
    def next_step(self) -> str | None:
        """Where the run stands once the step is over."""
        return self.site.following

    def ending(self, row: Execution, history: History, *, ends_run: bool = False) -> tuple[Execution, ...]:
        """The rows with which the whole step ends: what it still waits for ends with it."""
        closing = self.closing
        if self.site.then is not None and not ends_run:
            closing += self.site.then(row, self.has_begun)
        if (
            history.open
            and not self.site.is_called
            and row.outcome is not None
            and row.finished_at is not None
        ):
            known = {each.position for each in closing}
            waits = closed_waits(history, self.site.name, row.state, row.outcome, row.finished_at)
            closing += tuple(each for each in waits if each.position not in known)
        return (row, *closing)

    def keep(self, wait: Execution) -> None:
        """The wait goes on with the next attempt: its row is written with this one's."""
        self.kept = wait
        if self.position == wait.position:
            # Both are new.
            self.position += 1

    def keep_cursor(self) -> None:
        """What the body wrote is about to be committed, and so is where it stands."""
        if self.moves is not None and self.moves.text is not None:
            self.cursor = self.moves.text

    def row(
        self, state: ExecutionState, outcome: Outcome | None, at: datetime | None, **more: Any
    ) -> Execution:
        """The journal row with which it ends."""
        self.outcome = outcome
        more.setdefault("cursor", self.cursor)
        if self.is_set and more.get("details") is None:
            # Whatever comes after it, a resume for instance, is to know.
            more["details"] = RESCHEDULED
        return self.site.row(
            self.position,
            state,
            outcome=outcome,
            attempt=self.number,
            scheduled_for=self.scheduled_for,
            started_at=self.started_at,
            finished_at=at,
            continues_from=self.continues_from,
            **more,
        )

    @property
    def name(self) -> str:
        """The step's name."""
        return self.site.name

    @property
    def is_called(self) -> bool:
        """``run()`` has called the step."""
        return self.site.is_called

    def shown(self) -> Execution:
        """The row by which a long body is seen while it runs."""
        return self.site.row(
            self.position,
            ExecutionState.IN_PROGRESS,
            attempt=self.number,
            scheduled_for=self.scheduled_for,
            started_at=self.started_at,
            continues_from=self.continues_from,
            cursor=self.cursor,
        )

    def failure_row(
        self,
        error: BaseException | None,
        state: ExecutionState,
        outcome: Outcome,
        at: datetime,
        details: str | None = None,
    ) -> Execution:
        """The row with which it ends when the body raised; without an error it is the row of a verb."""
        if error is None:
            return self.row(state, outcome, at, details=details)
        record = describe(error)
        return self.row(
            state,
            outcome,
            at,
            details=details,
            error_class=record.error_class,
            error_message=record.message,
            traceback=record.traceback,
        )
