"""Giving runs back that nobody has begun with: they were claimed ahead, and no thread became free for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

from sqlalchemy import Connection

from stepwell.engine.leases import Lease
from stepwell.engine.run import has_hook
from stepwell.errors import RunError
from stepwell.logs import facts_logger
from stepwell.requests import StopRequest
from stepwell.states import RunState
from stepwell.store.commands import Answer, Done

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["give_back_unbegun"]

_log = facts_logger(__name__)
_HONOURED: Final = ("pause", "cancel")


def give_back_unbegun(engine: Stepwell, unbegun: Sequence[tuple[Lease, str]]) -> None:
    """Give runs back, tell the workers of their queues, and do what was asked of the runs in the meantime.

    Args:
        engine: The engine.
        unbegun: The leases, each with its run's queue; nobody may begin with one of them any more.

    Durability: one statement. A lease that was lost is nobody's to give, and is left alone. What was asked and
    could not be done here is honoured by whoever claims the run.

    Raises:
        AnswerLost: The database cannot be reached; the runs may have been given back, and to do it again is harmless.
    """
    pairs = [(lease.run_id, lease.token) for lease, _ in unbegun]
    asked = engine.database.repeating(
        lambda connection: engine.claims.put_back(connection, pairs, engine.now()), urgent=True
    )
    for lease, _ in unbegun:
        engine.leases.remove(lease)
    _honour(engine, asked)
    for queue in dict.fromkeys(queue for _, queue in unbegun):
        engine.wake_queue(queue)


def _honour(engine: Stepwell, asked: Mapping[UUID, str]) -> None:
    """A run that was held here could only be asked to stop; now it can be stopped as any that waits."""
    for run_id, text in asked.items():
        request = StopRequest.parse(text)
        if request is None or request.verb not in _HONOURED:
            continue
        try:
            _stop(engine, run_id, request, text)
        except RunError:
            continue  # It is over.
        except Exception:
            _log.warning(
                "a run could not be stopped; whoever claims it will",
                extra={"action": "release.stop", "run_id": str(run_id)},
                exc_info=True,
            )


def _stop(engine: Stepwell, run_id: UUID, request: StopRequest, text: str) -> None:
    def stop(connection: Connection, now: datetime) -> Done:
        run = engine.commands.lock(connection, run_id, request.verb)
        if run.state != RunState.READY or run.stop_request != text:
            # Another worker was faster, or it was withdrawn.
            return Done(Answer.UNCHANGED)
        command = engine.commands.pause if request.verb == "pause" else engine.commands.cancel
        return command(connection, run_id, now, request.reason, request.by, has_hook(f"on_{request.verb}"))

    engine.command(run_id, request.verb, stop)
