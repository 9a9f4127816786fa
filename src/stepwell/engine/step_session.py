"""The SQLAlchemy session that a step sees as ``self.session``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from sqlalchemy import Connection
from sqlalchemy.orm import Session, SessionTransaction

from stepwell.errors import RunError

__all__ = ["StepSession"]


class StepSession(Session):
    """A SQLAlchemy session whose transaction ends with the step.

    ``begin_nested()`` is there for partial rollback; ``commit()``, ``rollback()`` and ``close()`` are not.

    Args:
        connect: Answers the connection that a statement goes to.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        super().__init__(expire_on_commit=False)
        self._connect = connect

    def get_bind(self, *_arguments: Any, **_named: Any) -> Connection:
        return self._connect()

    def begin(self, nested: bool = False) -> SessionTransaction:
        if not nested:
            _refuse("begin")
        return super().begin(nested=True)

    def commit(self) -> None:
        _refuse("commit")

    def rollback(self) -> None:
        _refuse("rollback")

    def close(self) -> None:
        _refuse("close")

    def reset(self) -> None:
        _refuse("reset")

    def invalidate(self) -> None:
        _refuse("invalidate")

    def prepare(self) -> None:
        _refuse("prepare")

    def end_look(self, *, keeps: bool) -> None:
        """End the transaction in which something was looked at; what was loaded stays attached if kept."""
        if keeps:
            Session.commit(self)
        else:
            Session.rollback(self)

    def discard(self) -> None:
        """Forget everything."""
        Session.close(self)


def _refuse(verb: str) -> NoReturn:
    raise RunError(
        f"self.session.{verb}() is not for a step to call: its writes commit together with the journal entry "
        "when the step returns, and are undone when it raises. Use begin_nested() for a partial rollback."
    )
