"""What a worker tells of single runs, for those who read its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from stepwell.engine.engine import Stepwell
from stepwell.execution.errors import describe
from stepwell.execution.outcome import Activated
from stepwell.logs import facts_logger
from stepwell.store.reads import find_run
from stepwell.store.rows import RunRow
from stepwell.texts import storable
from stepwell.worker.claimer import Claimed

__all__ = ["tell_attention", "tell_overdue"]

_log = facts_logger(__name__)
_LONGEST_MESSAGE: Final = 300
_MOST_RUNS: Final = 20


def tell_attention(engine: Stepwell, run: RunRow, activated: Activated) -> None:
    """The run has failed or was paused: say why, and at which step.

    Args:
        engine: The engine.
        run: Its row, as claimed.
        activated: How it was left.
    """
    facts = {
        "action": "run.attention",
        "run_id": str(run.id),
        "workflow": run.workflow,
        "state": activated.state.value,
        "reason": activated.reason,
    }
    _log.warning("a run has stopped and needs a person", extra={**facts, **_why(engine, run, activated)})


def _why(engine: Stepwell, run: RunRow, activated: Activated) -> dict[str, Any]:
    """What its row says: the driver's own error is not all that it may have stopped for."""
    error_class = message = None
    step = run.current_step
    try:
        with engine.database.read() as connection:
            now = find_run(connection, run.id)
        if now is not None and now.state == activated.state:
            step, error_class, message = now.current_step, now.error_class, now.error_message
    except Exception:
        # It is only told of: the database will be missed elsewhere.
        _log.debug("a run could not be looked at", exc_info=True)
    if error_class is None and activated.error is not None:
        record = describe(activated.error)
        error_class, message = record.error_class, record.message
    cut = None if message is None else storable(message, _LONGEST_MESSAGE)
    return {"step": step, "error": error_class, "error_message": cut}


def tell_overdue(worker: str, driven: Sequence[Claimed]) -> None:
    """The grace period is over, and these are not.

    Args:
        worker: The worker's name.
        driven: What its threads are driving.
    """
    bodies = [_named(each) for each in driven[:_MOST_RUNS]]
    more = len(driven) - len(bodies)
    _log.warning(
        "bodies are still running",
        extra={
            "action": "worker.overdue",
            "worker": worker,
            "bodies": ", ".join(bodies) + (f" and {more} more" if more else ""),
            "run_ids": [str(each.run.id) for each in driven],
        },
    )


def _named(claimed: Claimed) -> str:
    body = claimed.lease.shown
    step = claimed.run.current_step if body is None else body.shown().name
    return f"{claimed.run.workflow} {claimed.run.id} at {step}"
