"""What runs and their children owe each other. All of it is done after the commit of what it follows from.

A child that is over wakes its parent, which looks at it; a parent that was canceled calls off the children that it
waits for. Whoever should do that may die before: the parent looks by itself now and then, and a child looks at its
parent when it is taken up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from stepwell.definition.starting import Call, Parentage, StartOptions
from stepwell.engine.run import Run
from stepwell.errors import InvalidTransition, RunNotFound
from stepwell.execution.journal import ChildFacts, TransientConflict
from stepwell.execution.primitives.calls import open_branch
from stepwell.requests import StopRequest
from stepwell.states import RunState
from stepwell.store.children import call_ids, successor_of
from stepwell.store.mailbox import wake
from stepwell.store.reads import find_run
from stepwell.store.rows import RunRow

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["CALLED_OFF", "Children", "facts_of"]

_PARENT_CANCELED: Final = "the run that called it was canceled"
CALLED_OFF: Final = StopRequest("cancel", _PARENT_CANCELED)
"""What is asked of the child of a run that was canceled."""


class Children:
    """The calls between runs of one engine.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: Stepwell) -> None:
        self._engine = engine

    def start(self, call: Call, options: StartOptions, parentage: Parentage) -> Run:
        """Start a child in the transaction of the call that is active here.

        Raises:
            TransientConflict: The database undid that for reasons of its own.
        """
        database = self._engine.database
        try:
            return self._engine.starts.one(call, options, parentage)
        except DBAPIError as error:
            if database.is_connection_error(error) or database.dialect.is_retryable(error):
                raise TransientConflict from error
            raise

    def ended(self, run_id: UUID, parent_id: UUID | None, state: str) -> None:
        """A run stands where it is, or where it wants a person: tell whom that concerns."""
        if parent_id is not None and state in (RunState.COMPLETED, RunState.CANCELED, RunState.FAILED):
            self._wake(parent_id)
        if state == RunState.CANCELED:
            self.call_off(run_id)

    def _wake(self, parent_id: UUID) -> None:
        engine = self._engine

        def work(connection: Connection) -> str | None:
            wake(connection, [parent_id], engine.now())
            parent = find_run(connection, parent_id)
            return None if parent is None else parent.lane

        lane = engine.database.repeating(work)
        if lane is not None:
            engine.wake_queue(lane)

    def call_off(self, parent_id: UUID) -> None:
        """Cancel the children that a canceled run was waiting for."""
        self.cancel(self.called_by(parent_id), _PARENT_CANCELED)

    def called_by(self, parent_id: UUID) -> list[UUID]:
        """The runs that this one has called, and that are not over."""
        with self._engine.reading() as connection:
            return call_ids(connection, open_branch(parent_id))

    def cancel(self, run_ids: Iterable[UUID], reason: str) -> None:
        """Cancel these, as far as they are not over."""
        for run_id in run_ids:
            try:
                Run(self._engine, run_id, created=False).cancel(reason)
            except (InvalidTransition, RunNotFound):
                # It has come to its end meanwhile.
                continue

    def is_called_off(self, run: RunRow) -> bool:
        """The run was called by one that was canceled, and whoever should have told it has not."""
        if run.parent_id is None or run.open_branch is None:
            return False
        if not run.open_branch.startswith(open_branch(run.parent_id)):
            return False
        with self._engine.database.read() as connection:
            parent = find_run(connection, run.parent_id)
        return parent is not None and parent.state == RunState.CANCELED


def facts_of(connection: Connection, run_id: UUID) -> ChildFacts | None:
    """How a run stands; of one that was started over, the last of its chain."""
    run = find_run(connection, run_id)
    while run is not None and (successor := successor_of(run)) is not None:
        following = find_run(connection, successor)
        if following is None:
            break
        run = following
    if run is None:
        return None
    return ChildFacts(run.id, run.state, run.reason, run.result, run.error_class, run.error_message)
