"""The states of a run and of a step execution, and which moves are allowed: data, no behaviour."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = [
    "ATTENTION",
    "BODIES",
    "LIVE",
    "OPEN",
    "RESUMING",
    "TERMINAL",
    "UNFINISHED",
    "VERBS",
    "ExecutionState",
    "Kind",
    "Outcome",
    "Reason",
    "RunState",
]


class RunState(StrEnum):
    """Where a run stands."""

    READY = "ready"
    """Due now, waiting for a worker."""
    RUNNING = "running"
    """A worker holds the lease."""
    WAITING = "waiting"
    """Parked until an instant."""
    AWAITING = "awaiting"
    """Parked until somebody wakes it; may have a deadline."""
    PAUSED = "paused"
    """Stopped on purpose; ``resume()`` goes on."""
    FAILED = "failed"
    """Stopped by an error; ``resume()`` tries again."""
    COMPLETED = "completed"
    """Over, well."""
    CANCELED = "canceled"
    """Over, called off."""


LIVE: Final = frozenset({RunState.READY, RunState.RUNNING, RunState.WAITING, RunState.AWAITING})
ATTENTION: Final = frozenset({RunState.PAUSED, RunState.FAILED})
TERMINAL: Final = frozenset({RunState.COMPLETED, RunState.CANCELED})
OPEN: Final = LIVE | ATTENTION
"""States in which a run holds its identity."""

VERBS: Final[dict[str, frozenset[RunState]]] = {
    "pause": LIVE | {RunState.PAUSED},
    "resume": ATTENTION | LIVE,
    "skip": OPEN,
    # Canceled twice is canceled: one whose first answer was lost is said again.
    "cancel": OPEN | {RunState.CANCELED},
    "reschedule": frozenset({RunState.WAITING, RunState.READY}),
    "signal": OPEN,
    "wake": OPEN,
}
"""The states in which each outside command works; elsewhere it raises ``InvalidTransition``."""

RESUMING: Final = frozenset({"resume", "skip"})
"""The commands in a journal that let a stopped run go on: what is counted in a row is counted anew from there."""


class ExecutionState(StrEnum):
    """Where one attempt at one step stands."""

    SCHEDULED = "scheduled"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    SKIPPED = "skipped"


UNFINISHED: Final = (ExecutionState.SCHEDULED, ExecutionState.IN_PROGRESS)
"""A row in one of these is finished by a later entry of its position; a finished one is never written again."""


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCESS = "success"
    RETRIED = "retried"
    CONTINUED = "continued"
    SKIPPED = "skipped"
    CANCELED = "canceled"
    FAILED = "failed"
    PAUSED = "paused"
    LOST = "lost"
    TIMED_OUT = "timed_out"


class Kind(StrEnum):
    """What a journal row records."""

    STEP = "step"
    TIMER = "timer"
    SIGNAL = "signal"
    GATE = "gate"
    POLL = "poll"
    CALL = "call"
    """Another workflow that the run has started, and waits for."""
    CONTEXT = "context"
    RECOVERY = "recovery"
    TICK = "tick"
    """One tick of a repetition."""
    REPEAT = "repeat"
    """The end of a repetition."""
    PAUSE = "pause"
    """``self.pause()`` in the body of ``run()``."""
    BODY = "body"
    """An error of ``run()`` outside its steps."""
    COMMAND = "command"
    """A person's act on the run: its name is the verb, such as ``resume``."""


BODIES: Final = frozenset({Kind.STEP, Kind.TICK})
"""Rows of these kinds are attempts at something of the author's; the others only wait, or tell."""


class Reason(StrEnum):
    """Why a run is where it is, where the state alone does not say it."""

    TIMER = "timer"
    RETRY = "retry"
    SIGNAL = "signal"
    GATE = "gate"
    POLL = "poll"
    CHILD = "child"
    """A run that it has called is not over yet."""
    CONTINUED = "continued"
    """It was started over: another run goes on in its place."""
    TICK = "tick"
    """The next tick of a repetition is not due yet."""
    PREDECESSOR = "predecessor"
    RECOVERING = "recovering"
    WORKER_LOST = "worker_lost"
    UNKNOWN_WORKFLOW = "unknown_workflow"
    UNKNOWN_STEP = "unknown_step"
    NEWER_VERSION = "newer_version"
    UNDECODABLE = "undecodable"
    HERO_GONE = "hero_gone"
    STEP_FAILED = "step_failed"
    HISTORY_MISMATCH = "history_mismatch"
    INTERRUPTED = "interrupted"
