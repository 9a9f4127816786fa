"""Generator steps: the values that they yield, each within the step's time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from stepwell.errors import StepTimedOut
from stepwell.execution.journal import Journal
from stepwell.logs import facts_logger

__all__ = ["AsyncItems", "Items"]

_log = facts_logger(__name__)
_END: Final = object()


class Items:
    """What a generator yields.

    Args:
        journal: Limits the time.
        generator: The generator.
        timeout: How long it may run, what happens between two of its values not counted; None does not limit it.

    Attributes:
        result: What it returned, once it has.
    """

    def __init__(self, journal: Journal, generator: Any, timeout: timedelta | None) -> None:
        self._journal = journal
        self._generator = generator
        self._timeout = timeout
        self._left = timeout
        self.result: Any = None

    def __iter__(self) -> Iterator[Any]:
        while True:
            value = self._limited()
            if value is _END:
                return
            yield value

    def close(self) -> None:
        """Close the generator where it stands; what it raises on its way out is logged."""
        try:
            self._close()
        except BaseException:
            _log.warning(
                "a step raised while it was stopped at a yield; it stays stopped there",
                extra={"action": "step.close_failed"},
                exc_info=True,
            )

    def _limited(self) -> Any:
        if self._left is None:
            return self._next(None)
        if self._left <= timedelta():
            raise StepTimedOut(f"the body was ended at a yield (timeout {self._timeout})")
        began = self._journal.now()
        value = self._next(self._left)
        self._left -= self._journal.now() - began
        return value

    def _next(self, left: timedelta | None) -> Any:
        return self._advance() if left is None else self._journal.run_limited(self._advance, left)

    def _advance(self) -> Any:
        try:
            return next(self._generator)
        except StopIteration as end:
            self.result = end.value
            return _END

    def _close(self) -> None:
        self._generator.close()


class AsyncItems(Items):
    """What an async generator yields; it has no result."""

    def _next(self, left: timedelta | None) -> Any:
        return self._journal.run_coroutine(self._anext(), left)

    async def _anext(self) -> Any:
        try:
            return await anext(self._generator)
        except StopAsyncIteration:
            return _END

    def _close(self) -> None:
        self._journal.run_coroutine(self._generator.aclose(), None)
