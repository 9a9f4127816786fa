"""Running an author's code apart from other code on its thread."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from contextvars import copy_context
from typing import ParamSpec, TypeVar

__all__ = ["apart"]

P = ParamSpec("P")
T = TypeVar("T")


def apart(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it so that what it leaves in context variables, the precision of ``decimal`` included, ends with it.

    Else a run would see what the one before it on this thread has left there, and ``run()`` what a step has: on the
    first pass, and not on a replay, which calls no step.
    """

    def with_own_digits() -> T:
        # A variable whose value is changed in place.
        decimal.setcontext(decimal.getcontext().copy())
        return work(*args, **kwargs)

    return copy_context().run(with_own_digits)
