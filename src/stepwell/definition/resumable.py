"""``@resumable_step``: a step that can be interrupted between two of its items."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from stepwell.definition.plan import StepKind
from stepwell.definition.steps import Step, decorated

if TYPE_CHECKING:
    from typing import Unpack

    from stepwell.definition.options import ResumableStepOptions

__all__ = ["ResumableStepDecorator", "resumable_step"]

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W")


class ResumableStepDecorator(Protocol):
    """What ``resumable_step(...)`` with options returns: it keeps the function's parameters.

    A generator function becomes a step that answers what the generator returns.
    """

    @overload
    def __call__(self, function: Callable[Concatenate[W, P], Coroutine[Any, Any, R]], /) -> Step[W, P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # a generator is also an iterator; the first fits
        self, function: Callable[Concatenate[W, P], Generator[Any, Any, R]], /
    ) -> Step[W, P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[W, P], Iterator[Any]], /) -> Step[W, P, None]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[W, P], AsyncIterator[Any]], /) -> Step[W, P, None]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[W, P], R], /) -> Step[W, P, R]: ...


@overload
def resumable_step(function: Callable[Concatenate[W, P], Coroutine[Any, Any, R]], /) -> Step[W, P, R]: ...
@overload
def resumable_step(  # type: ignore[overload-overlap]  # a generator is also an iterator; the first fits
    function: Callable[Concatenate[W, P], Generator[Any, Any, R]], /
) -> Step[W, P, R]: ...
@overload
def resumable_step(function: Callable[Concatenate[W, P], Iterator[Any]], /) -> Step[W, P, None]: ...
@overload
def resumable_step(function: Callable[Concatenate[W, P], AsyncIterator[Any]], /) -> Step[W, P, None]: ...
@overload
def resumable_step(function: Callable[Concatenate[W, P], R], /) -> Step[W, P, R]: ...
@overload
def resumable_step(**options: Unpack[ResumableStepOptions]) -> ResumableStepDecorator: ...
def resumable_step(function: Any = None, /, **options: Any) -> Any:
    """Make a method a step with a cursor: it works through any number of items, and goes on where it stopped.

    The body always begins at its top and reads from ``self.cursor`` how far it has come. Each move of the
    cursor is a checkpoint; there a pause, a cancel, the worker's shutdown and the limits below interrupt the
    step, and the body starts again in a later execution. A generator function moves the cursor by ``yield``:
    ``yield value`` is ``self.cursor.set(value)``, and what it returns is the step's result. To stop, the
    generator is closed at a ``yield``.

    Args:
        function: The method; a generator function, an ``async def`` and an async generator will do.
        max_iterations: After so many moves of the cursor the step gives way and goes on in another execution;
            an int, 1 or more. None, the default, means no limit.
        max_runtime: The same after so much time, a ``timedelta``.
        checkpoint_every: Commit at every so many moves only, for items that are cheap to do again; 1 by
            default. ``self.cursor.checkpoint()`` commits at once.
        **options: All options of ``@step``, which mean the same. ``timeout`` is the time of one execution.

    Durability:
        A checkpoint commits the cursor, the changes of ``self.context`` and what was written through
        ``self.session`` since the last one, in one transaction. A crash loses and repeats the work since the
        last checkpoint; nothing that was written through ``self.session`` is lost or doubled. Of what the
        body does elsewhere, the last item may happen again, or the last ``checkpoint_every`` of them.

    Raises:
        DefinitionError: When the class is created, for an option that does not exist or a value that does not
        fit.

    Example:
        >>> from stepwell import Workflow, resumable_step
        >>> class Numbering(Workflow):
        ...     @resumable_step(checkpoint_every=100)
        ...     def count(self):
        ...         for number in range(self.cursor.value or 0, 1_000):
        ...             yield number + 1
        >>> Numbering.plan.find("count").checkpoint_every
        100
    """
    return decorated("@resumable_step", function, options, StepKind.RESUMABLE)
