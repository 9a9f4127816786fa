"""What a running activation offers to the methods of a workflow.

The workflow's verbs and properties delegate to the :class:`Runtime` that drives it; ``execution`` implements
it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from uuid import UUID

from stepwell.definition.context import ContextMapping
from stepwell.definition.cursor import Cursor
from stepwell.definition.plan import StepSpec
from stepwell.definition.program import Program
from stepwell.serialization import RecordRef

if TYPE_CHECKING:
    from stepwell.definition.starting import Starter

__all__ = ["Logger", "Runtime", "current"]

Logger = logging.Logger | logging.LoggerAdapter[Any]


class Runtime(Protocol):
    """One activation of one run, as the workflow's own methods see it."""

    @property
    def run_id(self) -> UUID:
        """The run."""
        ...

    @property
    def workflow_version(self) -> int:
        """The class's version when the run started."""
        ...

    @property
    def logger(self) -> Logger:
        """A logger that names run, workflow and step in every record."""
        ...

    @property
    def starter(self) -> Starter:
        """The engine that drives this run: what a step starts without naming an engine goes there."""
        ...

    @property
    def context(self) -> ContextMapping:
        """The run's small durable memory."""
        ...

    @property
    def hero(self) -> Any:
        """The record that the run is about, loaded afresh for each step."""
        ...

    @property
    def session(self) -> Any:
        """The step's database session; what is written through it commits with the journal entry."""
        ...

    @property
    def cursor(self) -> Cursor:
        """The current resumable step's position.

        Raises:
            RunError: The current step is none, or no step is active.
        """
        ...

    def load(self, ref: RecordRef) -> Any:
        """The record that a reference means, fetched through the current step's session.

        Raises:
            RecordGone: It is gone.
            RunError: No step is active.
        """
        ...

    async def in_session(self, work: Callable[[Any], Any]) -> Any:
        """In an async step: call ``work`` with the step's session, on the thread that the session belongs to."""
        ...

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts at one step of one run."""
        ...

    @property
    def stop_requested(self) -> bool:
        """Somebody asked the run, or its worker, to stop: a long body should come to an end."""
        ...

    def call_step(
        self, spec: StepSpec, workflow: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A step was called on the workflow's instance; in an ``async def run()`` the answer is a coroutine."""
        ...

    def durable(self, what: str, work: Callable[[], Any]) -> Any:
        """Do it; called in an ``async def run()``, answer a coroutine that does it on the activation's thread."""
        ...

    @property
    def is_in_body(self) -> bool:
        """It is ``run()`` itself that runs now: no step, no condition, no hook."""
        ...

    def program(self, verb: str) -> Program:
        """The body of ``run()``, if that is what runs now.

        Raises:
            RunError: A step runs, or the class has no ``run()``.
        """
        ...

    def pause(self, reason: str | None, done: bool) -> None:
        """Stop the run until somebody resumes it; ``done`` completes the current step first."""
        ...

    def cancel(self, reason: str | None) -> NoReturn:
        """End the run as canceled."""
        ...

    def skip(self) -> NoReturn:
        """Leave the current step as skipped and go on with the next."""
        ...

    def retry(self, wait: timedelta | None, rewind: bool) -> NoReturn:
        """Run the current step again, after ``wait``; ``rewind`` forgets its cursor."""
        ...

    def finish(self, result: object) -> NoReturn:
        """End the run as completed, with this result."""
        ...

    def suspend(self, wait: timedelta | None) -> NoReturn:
        """Leave the current step at its cursor and go on with it after ``wait``."""
        ...

    def progress(self, done: int, total: int | None) -> None:
        """Tell how far the current step has come."""
        ...


current: ContextVar[Runtime | None] = ContextVar("stepwell_runtime", default=None)
"""The activation that runs in this thread or task; None outside one."""
