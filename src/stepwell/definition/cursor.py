"""What a resumable step sees of its position: ``self.cursor``.

``execution`` implements it; the annotations of a step's own functions may name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NoReturn, Protocol, TypeVar, overload

__all__ = ["Cursor"]

T = TypeVar("T")


class Cursor(Protocol):
    """Where a resumable step stands.

    Its value survives crashes and restarts: anything that a result may be. Each checkpoint is also the point
    at which the run can be interrupted, by a pause, a cancel, the worker's shutdown, ``max_iterations`` or
    ``max_runtime``; the body goes on later from its top, and reads here how far it came.

    Durability:
        A checkpoint commits the value, the changes of ``self.context`` and what the step wrote through
        ``self.session``, in one transaction. A crash between two checkpoints loses the work since the first
        one, and nothing is done twice to the database.
    """

    @property
    def value(self) -> Any:
        """The position; None until it is set."""
        ...

    @property
    def resumed(self) -> bool:
        """The step has begun in an earlier execution, and this one goes on."""
        ...

    def set(self, value: object) -> None:
        """Move to ``value``, and checkpoint."""
        ...

    def advance(self, by: int = 1) -> None:
        """Move a position that is an int, or not set yet (then it is 0), and checkpoint."""
        ...

    def checkpoint(self) -> None:
        """Commit what was done so far, without moving."""
        ...

    def skip_to(self, value: object, *, wait: timedelta | None = None) -> NoReturn:
        """Move to ``value``, leave the step there, and go on with it after ``wait``; this does not return."""
        ...

    @overload
    def iterate(self, source: Iterable[T]) -> Iterator[T]: ...
    @overload
    def iterate(self, source: Any) -> Iterator[Any]: ...
    def iterate(self, source: Any) -> Iterator[Any]:
        """The items that are still to do; a checkpoint follows each.

        Args:
            source: A sequence, which must be the same at each execution; or a SQLAlchemy ``select``, read by
                its primary or unique key in constant memory.
        """
        ...

    @overload
    def batches(self, source: Iterable[T], size: int) -> Iterator[Sequence[T]]: ...
    @overload
    def batches(self, source: Any, size: int) -> Iterator[Sequence[Any]]: ...
    def batches(self, source: Any, size: int) -> Iterator[Sequence[Any]]:
        """The same by up to ``size`` items at a time; a checkpoint follows each batch."""
        ...
