"""Options for one call of a step in ``run()``: ``self.ship.with_options(timeout=...)(item)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypedDict

from stepwell.definition import checks
from stepwell.definition.options import broken_policies, broken_value
from stepwell.errors import WrongArguments
from stepwell.policies import Policy

__all__ = ["CallOptions", "checked"]


class CallOptions(TypedDict, total=False):
    """The keywords of a step's ``with_options``; each stands for this call instead of what ``@step`` says."""

    on_exception: Policy | Callable[..., Any] | Sequence[Policy | Callable[..., Any]]
    timeout: timedelta | None
    queue: str | None
    priority: int | None
    isolated: bool


_KNOWN: Final = tuple(CallOptions.__annotations__)


def checked(step: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as they go into a :class:`StepSpec`.

    Raises:
        WrongArguments: There is no such option, or a value does not fit.
    """
    name = f"{step}.with_options()"
    for option in options:
        if option not in _KNOWN:
            hint = checks.meant(option, _KNOWN)
            raise WrongArguments(
                f"{name} has no option {option!r}{hint}. The options of one call are {', '.join(_KNOWN)}."
            )
    values = dict(options)
    if "on_exception" in values:
        given = values["on_exception"]
        policies = (given,) if isinstance(given, Policy) else given
        if problem := broken_policies(policies):
            raise WrongArguments(f"{name}: on_exception {problem}.")
        values["on_exception"] = tuple(policies)
    if problem := broken_value({option: value for option, value in values.items() if value is not None}):
        raise WrongArguments(f"{name}: {problem}.")
    return values
