"""The options of ``@step`` and ``@resumable_step``: what there is, and what each value must be.

What only the whole class can tell, such as whether a method of some name exists, is judged in ``reading``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict

from stepwell.definition import checks
from stepwell.definition.waits import Child, Poll, Signal
from stepwell.policies import Handler, Policy

if TYPE_CHECKING:
    from stepwell.definition.steps import Step

__all__ = [
    "ResumableStepOptions",
    "StepOptions",
    "broken_combination",
    "broken_policies",
    "broken_value",
    "unknown_option",
]


class StepOptions(TypedDict, total=False):
    """The keywords of ``@step``; what they mean is said there."""

    name: str
    wait: timedelta | None
    wait_until: datetime | Poll | str | Callable[[Any], datetime] | None
    awaits: str | Signal | Child | None
    gate: str | Callable[[Any], object] | None
    skip_if: bool | str | Callable[[Any], object] | None
    on_exception: Policy | Callable[..., Any] | Sequence[Policy | Callable[..., Any]] | None
    key_by: str | tuple[str, ...] | Callable[..., object] | None
    digest: bool
    timeout: timedelta | None
    queue: str | None
    priority: int | None
    isolated: bool
    before: str | Step[Any, ..., Any] | None
    after: str | Step[Any, ..., Any] | None


class ResumableStepOptions(StepOptions, total=False):
    """The keywords of ``@resumable_step``; what they mean is said there."""

    max_iterations: int | None
    max_runtime: timedelta | None
    checkpoint_every: int


_ALL: Final = tuple(StepOptions.__annotations__)
_RESUMABLE_ONLY: Final = tuple(
    option for option in ResumableStepOptions.__annotations__ if option not in StepOptions.__annotations__
)
_PLACE_AND_TIME: Final = ("before", "after", "wait", "wait_until", "awaits", "gate")
"""The options that only a class without ``run()`` has a use for: with it, ``run()`` decides place and
time."""
_EXCLUDING: Final = (("before", "after"), ("wait", "wait_until"), ("awaits", "gate"))

_VALUES: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "wait": lambda value: checks.broken_duration(value, zero=True),
    "timeout": lambda value: checks.broken_duration(value, zero=False),
    "queue": checks.broken_name,
    "priority": lambda value: checks.broken_whole(value, least=0),
    "isolated": checks.broken_flag,
    "digest": checks.broken_flag,
    "max_iterations": lambda value: checks.broken_whole(value, least=1),
    "max_runtime": lambda value: checks.broken_duration(value, zero=False),
    "checkpoint_every": lambda value: checks.broken_whole(value, least=1),
}


def unknown_option(names: Collection[str], *, is_resumable: bool) -> str | None:
    """What is wrong with the names of the options that were given; None if there are such options."""
    known = (*_ALL, *_RESUMABLE_ONLY) if is_resumable else _ALL
    for name in names:
        if name in known:
            continue
        if name in _RESUMABLE_ONLY:
            return f"{name} is an option of @resumable_step; a plain @step has no cursor"
        hint = checks.meant(name, known)
        return f"there is no option {name!r}{hint}. The options are {', '.join(known)}"
    return None


def broken_combination(options: Mapping[str, Any], *, is_procedural: bool) -> str | None:
    """Which options do not go together, or not with ``run()``; None if all do."""
    for one, other in _EXCLUDING:
        if one in options and other in options:
            return f"{one} and {other} exclude each other; give one of them"
    if isinstance(options.get("wait_until"), Poll):
        for option in ("awaits", "gate"):
            if option in options:
                return (
                    f"wait_until=Poll(...) and {option} exclude each other: a step waits for one condition, "
                    f"and before it for an instant. Ask for the other in the step, or in a step before"
                )
    if is_procedural:
        for option in _PLACE_AND_TIME:
            if option in options:
                return (
                    f"{option} is for steps of a class without run(). Here run() decides when and in "
                    "which order steps are called: say it there"
                )
    return None


def broken_value(options: Mapping[str, Any]) -> str | None:
    """The first option whose value is wrong whatever the class, with the rule; None if there is none."""
    for option, broken in _VALUES.items():
        if option in options and (problem := broken(options[option])):
            return f"{option} {problem}"
    return None


def broken_policies(policies: object) -> str | None:
    """Why this is no list of policies; None if it is one."""
    if not isinstance(policies, list | tuple):
        return f"must be a list of policies, such as [Retry(ConnectionError), Pause()]; got {policies!r}"
    for policy in policies:
        if not isinstance(policy, Policy):
            return (
                f"must hold policies: Retry, Skip, Pause, Cancel, Fail or a @handles function; got {policy!r}"
            )
    claimed: set[str] = set()
    for policy in policies:
        # A handler may pass an error on, so others for the same error can stand beside it.
        names = set() if isinstance(policy, Handler) else {policy.label}
        if names & claimed:
            return f"has two policies for {', '.join(names).replace('*', 'any error')}: one is never reached"
        claimed |= names
    return None
