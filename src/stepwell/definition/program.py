"""What a running activation offers to the body of ``run()``: each call of it is durable."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol
from uuid import UUID

from stepwell.definition.plan import StepSpec
from stepwell.definition.repeats import Repetition
from stepwell.definition.waits import Poll, Signal

__all__ = ["Program"]


class Program(Protocol):
    """The body of ``run()`` while it is driven, as the workflow's verbs see it.

    Each method journals what it does, and on replay answers from the journal. Where the run has to wait it does not
    return: the activation ends, and a later one comes here again.
    """

    def call_step(self, spec: StepSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a step, and answer its result.

        Raises:
            StepFailed: No policy absorbed its error.
        """
        ...

    def call_function(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run a function as a step of this name."""
        ...

    def call(self, target: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Start a run of another workflow, wait until it is over, and answer its result.

        Raises:
            ChildFailed: It has failed or was canceled.
            StepFailed: It could not be started.
        """
        ...

    def sleep(self, wait: timedelta | None, until: Any, name: str | None) -> None:
        """Wait for an instant: a duration from now, a given one, or what a function answers."""
        ...

    def wait_until(self, poll: Poll, name: str | None, options: Mapping[str, Any]) -> Any:
        """Wait until a condition holds; the answer is True, or the default when time ran out."""
        ...

    def wait_for_signal(self, signal: Signal, deadline: datetime | None) -> Any:
        """Wait for a signal and answer its payload."""
        ...

    def continue_if(self, condition: Any, name: str | None, options: Mapping[str, Any]) -> None:
        """Wait until a gate is open."""
        ...

    def repeat(
        self, spec: StepSpec | None, name: str, function: Callable[..., Any], repetition: Repetition
    ) -> Any:
        """Call a step, or a function as one, again and again; the answer is how often it has succeeded."""
        ...

    def pause(self, reason: str | None) -> None:
        """Stop the run here until a person resumes it; passed once that has happened."""
        ...

    def cancel(self, reason: str | None) -> NoReturn:
        """End the run as canceled."""
        ...

    def finish(self, result: object) -> NoReturn:
        """End the run as completed, with this result."""
        ...

    def start_over(self, args: Mapping[str, Any], context: Any) -> NoReturn:
        """End the run as completed, and have another one go on in its place."""
        ...

    @property
    def now(self) -> datetime:
        """The instant at which the last durable call ended."""
        ...

    @property
    def random(self) -> random.Random:
        """A generator that draws the same numbers in each replay."""
        ...

    def uuid4(self) -> UUID:
        """A random UUID, the same in each replay."""
        ...
