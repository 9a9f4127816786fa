"""What one durable write says: the values that the drivers make and the store writes, each in one transaction.

An entry carries its lease token. It is written whole or, when the token is no longer the run's, not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from stepwell.requests import StopRequest
from stepwell.states import ExecutionState, Kind, Outcome, RunState

__all__ = ["Execution", "JournalEntry", "Settlement", "Verdict", "honoured"]


@dataclass(frozen=True, slots=True)
class Execution:
    """One row of the journal: an attempt at a step, a wait, a person's command.

    A row that was written as ``scheduled`` or ``in_progress`` is finished by an entry with the same position.
    """

    position: int
    name: str
    kind: Kind
    state: ExecutionState
    outcome: Outcome | None = None
    key: str | None = None
    attempt: int = 1
    args_digest: str | None = None
    result: str | None = None
    context_delta: str | None = None
    cursor: str | None = None
    continues_from: int | None = None
    scheduled_for: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error_class: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    details: str | None = None


def honoured(request: StopRequest, position: int, at: datetime) -> Execution:
    """The row that tells of a request which was honoured: who asked, when and why."""
    return Execution(
        position,
        request.verb,
        Kind.COMMAND,
        ExecutionState.COMPLETED,
        Outcome.SUCCESS,
        finished_at=at,
        details=request.note(RunState.RUNNING),
    )


@dataclass(frozen=True, slots=True)
class Settlement:
    """How an activation leaves its run: the lease is given back in the same write.

    Attributes:
        state: The run's next state; never ``running``.
        due_at: When it was due (``ready`` only).
        wake_at: When to look at it again (``waiting``, and ``awaiting`` with a deadline).
        seen_wakeups: Park only if the run's counter still stands here: else something came in the meantime.
        answers_request: The stop request was honoured (or came too late) and is cleared.
        frees_identity: The run is over and another one may take its identity.
        queue: Move the run to this queue; None leaves it.
        priority: Give the run this priority; None leaves it.
    """

    state: RunState
    reason: str | None = None
    due_at: datetime | None = None
    wake_at: datetime | None = None
    result: str | None = None
    error_class: str | None = None
    error_message: str | None = None
    seen_wakeups: int | None = None
    answers_request: bool = False
    frees_identity: bool = False
    queue: str | None = None
    priority: int | None = None
    details: str | None = None


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One durable write of an activation.

    Attributes:
        at: The instant of the write, in store time.
        current_step: The step that the run is at after this write; None past the last one.
        context: The run's whole context as text, when it changed; else None.
        version: The version of the class that drives the run; the highest one stays on the row.
        consumes: The signal that the first row answers with; it is marked as read in the same transaction.
    """

    run_id: UUID
    token: UUID
    at: datetime
    worker: str
    current_step: str | None
    executions: tuple[Execution, ...] = ()
    context: str | None = None
    settlement: Settlement | None = None
    version: int = 1
    consumes: int | None = None

    @property
    def is_progress(self) -> bool:
        """The run has come on: a change that somebody else has made to its context is not its doing."""
        return bool(self.executions) and self.executions[0].kind is not Kind.CONTEXT


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the store answers to an entry.

    Attributes:
        accepted: It is durable. Otherwise nothing of it was written: the token is gone, or a park was refused.
        wakeups: The run's counter at the write.
        stop_request: What somebody asks of this run, as stored text.
    """

    accepted: bool
    wakeups: int = 0
    stop_request: str | None = None
