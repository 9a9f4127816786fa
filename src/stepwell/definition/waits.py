"""What a step can wait for besides an instant: a signal from outside, or a condition that is looked at.

They are plain values. The class whose step has them checks them, so that a message can name class, step and
rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from stepwell.definition import checks
from stepwell.definition.functions import truth_of
from stepwell.definition.unset import UNSET

__all__ = ["Child", "Poll", "Signal", "broken_poll", "broken_signal"]


@dataclass(frozen=True, slots=True)
class Signal:
    """``awaits=Signal("review")``: the step waits until somebody sends the run a signal of this name.

    The signal's payload is given to the step's one parameter, if it has one. A signal that came before the
    run waits for it is kept and counts.

    Args:
        name: The signal's name; at most 190 characters.
        timeout: A ``timedelta``, more than zero, from the moment at which the step begins to wait for the
            signal. None, the default, waits for ever.
        default: The payload if nothing came in time, which may be None. Not given, a wait that runs out is an
            error of the step, ``WaitTimedOut``, and the step's policies decide.

    Durability:
        A run that waits is one row. The signal is marked as read in the transaction that records the
        end of the wait, so that a step that is tried again reads the same signal.

    Example:
        >>> from datetime import timedelta
        >>> from stepwell import Signal, Workflow, step
        >>> class Review(Workflow):
        ...     @step(awaits=Signal("verdict", timeout=timedelta(days=3), default="expired"))
        ...     def decide(self, verdict):
        ...         return verdict
        >>> Review().decide("approved")
        'approved'
    """

    name: str
    timeout: timedelta | None = None
    default: object = UNSET

    @property
    def has_default(self) -> bool:
        """A wait that runs out is no error: the step gets ``default``."""
        return self.default is not UNSET


@dataclass(frozen=True, slots=True)
class Child:
    """``awaits=Child(Shipping, ...)``: the step starts a run of another workflow and waits until it is over.

    The child's result is given to the step's one parameter, if it has one. A child that fails or is canceled is an
    error of the step, ``ChildFailed``, and the step's policies decide: to retry means to start another one.

    Args:
        workflow: The class, declared or with ``run()``; what its ``with_options(...)`` answered; or the class's
            stable name, where it is defined further down.
        arguments: What its ``start`` would get, by name, the hero as ``hero``: a mapping, or a method's name or a
            function of the workflow that answers one. None means no arguments.

    Durability:
        The child is started in the transaction in which the run parks for it: exactly once. A run that waits is one
        row.

    Example:
        >>> from stepwell import Child, Workflow, step
        >>> class Shipping(Workflow):
        ...     def run(self, order_id: str) -> str:
        ...         return f"parcel of {order_id}"
        >>> class Order(Workflow):
        ...     @step(awaits=Child(Shipping, lambda self: {"order_id": self.args["order_id"]}))
        ...     def close(self, parcel):
        ...         return parcel
    """

    workflow: Any
    arguments: Any = None


@dataclass(frozen=True, slots=True)
class Poll:
    """``wait_until=Poll(...)``: the step waits until a condition holds, which is looked at again and again.

    Args:
        condition: A method's name, or a function of the workflow; a true answer lets the step run. It may
            read ``self.hero`` and ``self.session``, and must not write.
        every: A ``timedelta``, more than zero: how long after one look comes the next.
        timeout: A ``timedelta``, more than zero, from the first look. None, the default, waits for ever.
        default: Whatever it is: the step runs although the condition does not hold in time. Not given, a wait
            that runs out is an error of the step, ``WaitTimedOut``, and the step's policies decide.

    Durability:
        A run that waits is one row, which is written once and claimed again for each look.

    Example:
        >>> from datetime import timedelta
        >>> from stepwell import Poll, Workflow, step
        >>> class Shipping(Workflow):
        ...     def is_paid(self):
        ...         return "paid" in self.context
        ...
        ...     @step(wait_until=Poll("is_paid", every=timedelta(minutes=15), timeout=timedelta(hours=48)))
        ...     def ship(self): ...
        >>> Shipping.plan.find("ship").poll.is_met(Shipping())
        False
    """

    condition: str | Callable[[Any], object]
    every: timedelta
    timeout: timedelta | None = None
    default: object = UNSET

    @property
    def has_default(self) -> bool:
        """A wait that runs out is no error: the step runs."""
        return self.default is not UNSET

    def is_met(self, workflow: Any) -> bool:
        """Ask the condition once; what it raises passes through."""
        condition = self.condition
        answer = getattr(workflow, condition)() if isinstance(condition, str) else condition(workflow)
        return truth_of(answer)


def broken_signal(signal: Signal) -> str | None:
    """Why nothing can be awaited with these values; None if it can."""
    if problem := checks.broken_name(signal.name):
        return f"signal name {problem}"
    return _broken_limit(signal.timeout, signal.has_default)


def broken_poll(poll: Poll) -> str | None:
    """Why nothing can be polled with these values, the condition aside; None if it can."""
    if problem := checks.broken_duration(poll.every, zero=False):
        return f"every {problem}"
    return _broken_limit(poll.timeout, poll.has_default)


def _broken_limit(timeout: timedelta | None, has_default: bool) -> str | None:
    if timeout is not None:
        problem = checks.broken_duration(timeout, zero=False)
        return None if problem is None else f"timeout {problem}"
    return "default is for a wait that runs out; give a timeout too" if has_default else None
