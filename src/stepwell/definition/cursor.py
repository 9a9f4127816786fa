"""What a resumable step sees of its position: ``self.cursor``, which ``execution`` implements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    def set(self, value: Any) -> None:
        """Move to ``value``, which counts as one item done; committed at every ``checkpoint_every``-th.

        Raises:
            Unstorable: The value cannot be stored, or is too large for a cursor.
        """
        ...

    def advance(self, by: int = 1) -> None:
        """Move a whole-number position ahead; None counts as 0.

        Raises:
            RunError: The position is no whole number.
        """
        ...

    def checkpoint(self) -> None:
        """Commit now what was done so far, without moving; the step may be interrupted here."""
        ...

    def skip_to(self, value: Any, wait: timedelta | None = None) -> NoReturn:
        """Move to ``value``, commit, and leave the step there for ``wait``; this does not return.

        Raises:
            Unstorable: The value cannot be stored, or is too large for a cursor.
        """
        ...

    @overload
    def iterate(self, source: Sequence[T], *, key: Any = None, page: int = 500) -> Iterator[T]: ...
    @overload
    def iterate(self, source: Any, *, key: Any = None, page: int = 500) -> Iterator[Any]: ...
    def iterate(self, source: Any, *, key: Any = None, page: int = 500) -> Iterator[Any]:
        """The items that are still to do; when the next one is asked for, the one before counts as done.

        Args:
            source: A sequence, which must be the same each time; or a SQLAlchemy ``select`` of one mapped
                class, read in pages in constant memory.
            key: The column by which a ``select`` is read; its primary key by default.
            page: How many rows of a ``select`` are read at a time.
        """
        ...

    @overload
    def batches(self, source: Sequence[T], *, size: int = 500, key: Any = None) -> Iterator[Sequence[T]]: ...
    @overload
    def batches(self, source: Any, *, size: int = 500, key: Any = None) -> Iterator[Sequence[Any]]: ...
    def batches(self, source: Any, *, size: int = 500, key: Any = None) -> Iterator[Sequence[Any]]:
        """The same by up to ``size`` items at a time; each batch counts as one."""
        ...
