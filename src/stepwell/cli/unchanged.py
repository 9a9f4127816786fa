"""Why a command on a run has found nothing to do, and what would get the run on."""

from __future__ import annotations

from typing import Final

from stepwell.engine.run import Run
from stepwell.requests import StopRequest
from stepwell.states import Reason, RunState
from stepwell.store.rows import RunRow

__all__ = ["why_unchanged"]

_AWAITED: Final = {
    Reason.SIGNAL: "`signal` sends what it waits for",
    Reason.GATE: "`wake` makes it look again",
    Reason.CHILD: "it goes on when the run is over that it has called",
}


def why_unchanged(run: Run, verb: str) -> str:
    """The run's state, or the request that stands on it, and the command that would work.

    Args:
        run: The run, which has just answered ``unchanged``.
        verb: What it was asked to do.
    """
    row = run.info()
    standing = StopRequest.parse(row.stop_request)
    if standing is not None and standing.beats(verb):
        return f"nothing to do: it is asked to {standing.verb}, and heeds that first"
    if verb == "resume":
        return f"nothing to resume: {_going_on(row)}"
    if verb == "skip" and standing is not None and standing.verb == verb:
        return f"nothing to do: it is asked to skip {standing.step!r} already"
    if verb == "skip":
        return "nothing to skip: it is at no step"
    return f"nothing to do: it is {row.state} already"


def _going_on(row: RunRow) -> str:
    """What a run is about that nobody has to resume."""
    match row.state:
        case RunState.WAITING:
            return f"it is waiting ({row.reason or Reason.TIMER.value}); `reschedule` moves the instant"
        case RunState.AWAITING:
            advice = _AWAITED.get(Reason(row.reason)) if row.reason in set(Reason) else None
            return f"it is awaiting ({row.reason}); {advice or '`skip` leaves the step out'}"
        case RunState.READY:
            return "it is ready, and waits for a worker"
        case _:
            return f"it is {row.state}"
