"""Stopping a run as somebody asked, where this worker cannot drive it, or must not yet.

A run that is put off, that cannot be read, or that has to wait for another one, can be called off all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.engine.store_journal import StoreJournal
from stepwell.entries import Execution, Settlement, honoured
from stepwell.execution.attempts import closed
from stepwell.execution.history import History
from stepwell.execution.journal import Fact
from stepwell.execution.outcome import Activated
from stepwell.requests import StopRequest
from stepwell.states import ExecutionState, Outcome, RunState
from stepwell.store.commands import holds_identity_for_ever
from stepwell.store.rows import RunRow

__all__ = ["honour"]


def honour(journal: StoreJournal, run: RunRow, known: Sequence[Fact]) -> Activated | None:
    """Pause or cancel the run if that is asked of it.

    Args:
        journal: Its journal, under our lease.
        run: Its row, as claimed.
        known: Its journal's rows.

    Returns:
        How it was left; None if nothing of the kind is asked, or something else came at this very moment: then
        nothing was written.
    """
    request = StopRequest.parse(run.stop_request)
    if request is None or request.verb not in ("cancel", "pause"):
        return None
    history, rows = History(known), list[Execution]()
    settlement = Settlement(
        RunState.PAUSED, reason=request.reason, answers_request=True, seen_wakeups=run.wakeups
    )
    if request.verb == "cancel":
        now = journal.now()
        rows = [closed(row, ExecutionState.CANCELED, Outcome.CANCELED, now) for row in history.open.values()]
        settlement = Settlement(
            RunState.CANCELED,
            reason=request.reason,
            answers_request=True,
            seen_wakeups=run.wakeups,
            frees_identity=not holds_identity_for_ever(run.options),
            details=journal.details_at_end(),
        )
    rows.append(honoured(request, history.last + 1, journal.now()))
    verdict = journal.write(rows, current_step=run.current_step, settlement=settlement)
    if not verdict.accepted:
        return None
    return Activated(settlement.state, 0, settlement.reason, successor=request.successor)
