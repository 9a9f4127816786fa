"""Places at which a body is not ended from outside.

The watchdog ends a synchronous body by an exception that Python raises wherever its thread happens to be. In the
middle of a commit nobody could tell afterwards what is durable; in the middle of taking a lock it would never be given
back. So the engine shields such places: what comes in the meantime is raised at their end.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Protocol

__all__ = ["Ward", "shielded", "ward"]


class Ward(Protocol):
    """A body that may be ended from outside."""

    def hold(self) -> None:
        """Not now."""
        ...

    def let_go(self) -> None:
        """Now again; raises what came in the meantime."""
        ...


class _Here(threading.local):
    ward: Ward | None = None


_here = _Here()


def ward(body: Ward | None) -> Ward | None:
    """Say which body this thread runs; answers the one before."""
    before, _here.ward = _here.ward, body
    return before


class shielded:  # noqa: N801  # reads as a statement
    """``with shielded():`` the body that this thread runs, if any, is not ended in here."""

    __slots__ = ("_ward",)

    def __enter__(self) -> None:
        self._ward = _here.ward
        if self._ward is not None:
            self._ward.hold()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ward is not None:
            self._ward.let_go()
