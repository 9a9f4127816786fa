"""The policies themselves: what an author writes in ``on_exception=`` and ``policies = [...]``."""

from __future__ import annotations

import inspect
import random as _random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal, TypeVar, cast, get_args, overload

from stepwell.policies.matching import ErrorSpec, check_error, is_error, name_of

__all__ = [
    "Backoff",
    "Cancel",
    "Fail",
    "Handler",
    "Pause",
    "Policy",
    "Report",
    "Retry",
    "Skip",
    "Then",
    "Verb",
    "handles",
]

Report = Literal["always", "never", "terminal_only"]
"""When the engine's error reporter hears of it; ``terminal_only``: not while the step will be tried again."""
Then = Literal["fail", "pause", "cancel", "skip"]
"""What happens when the attempts ran out."""

_F = TypeVar("_F", bound=Callable[..., Any])
_NO_WAIT: Final = timedelta()


class Verb(StrEnum):
    """What a policy does with the step, or the run."""

    RETRY = "retry"
    SKIP = "skip"
    PAUSE = "pause"
    CANCEL = "cancel"
    FAIL = "fail"
    HANDLE = "handle"
    """Ask the author's own function."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow from one retry to the next: ``base``, ``base * factor``, … up to ``cap``.

    Args:
        base: The first delay; more than zero, 1 second by default.
        factor: By how much each delay is longer than the one before; 1 or more.
        cap: No delay is longer; 5 minutes by default.
        jitter: The share of a delay that chance may add or take away, from 0 to 1, so that what failed
            together does not come back together.

    Example:
        >>> slow = Backoff(base=timedelta(minutes=1), factor=3, cap=timedelta(hours=1), jitter=0)
        >>> [str(slow.delay(retry)) for retry in (1, 2, 3, 4, 5)]
        ['0:01:00', '0:03:00', '0:09:00', '0:27:00', '1:00:00']
    """

    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(minutes=5)
    jitter: float = 0.1

    def __post_init__(self) -> None:
        _require_duration("Backoff", "base", self.base)
        _require_duration("Backoff", "cap", self.cap)
        if self.base <= _NO_WAIT or self.cap < self.base:
            raise ValueError(
                f"Backoff: base must be more than zero and cap no less than base; got {self.base}, {self.cap}"
            )
        _require_number("Backoff", "factor", self.factor, least=1, most=None)
        _require_number("Backoff", "jitter", self.jitter, least=0, most=1)

    def delay(self, retry: int, random: Callable[[], float] = _random.random) -> timedelta:
        """The delay before the ``retry``-th retry (1 is the first).

        Args:
            retry: Which retry it is.
            random: Answers from 0 (inclusive) to 1 (exclusive).
        """
        delay = self.base
        for _ in range(retry - 1 if self.factor > 1 else 0):
            if delay >= self.cap / self.factor:
                delay = self.cap
                break
            delay *= self.factor
        try:
            return delay * (1 + self.jitter * (2 * random() - 1))
        except OverflowError:
            return timedelta.max

    def __str__(self) -> str:
        return f"Backoff({self.base}, {self.factor:g}, {self.cap}, {self.jitter:g})"


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """What every policy has: the errors that it is for, and when the engine's error reporter hears of them.

    An error is named by its class, or by its dotted name where importing it is not wanted
    (``"smtplib.SMTPException"``); subclasses are included. Without errors a policy is *blanket*: it fits
    every ``Exception``. ``SystemExit``, ``KeyboardInterrupt`` and their like are met by policies that name
    them only.
    """

    verb: ClassVar[Verb]
    errors: tuple[ErrorSpec, ...]
    report: Report

    @property
    def is_blanket(self) -> bool:
        """It names no errors, so it fits all."""
        return not self.errors

    @property
    def label(self) -> str:
        """The sorted names of its errors, ``*`` for a blanket policy: under it attempts are counted."""
        return "|".join(sorted({name_of(error) for error in self.errors})) or "*"

    def matches(self, error: BaseException) -> bool:
        """The policy is for this error."""
        if not self.errors:
            return isinstance(error, Exception)
        return any(is_error(error, wanted) for wanted in self.errors)

    def reports(self, verb: Verb) -> bool:
        """The reporter hears of an error that ended in ``verb`` by this policy."""
        return self.report == "always" or (self.report == "terminal_only" and verb is not Verb.RETRY)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.label}, report={self.report})"


@dataclass(frozen=True, slots=True, init=False)
class Retry(Policy):
    """Run the step's body again, after a delay, until it succeeds or the attempts ran out.

    Args:
        *errors: The errors it is for; none means any.
        attempts: How many times the body runs in all, the first time included; 3 by default.
        wait: A fixed delay; None means that ``backoff`` says it.
        backoff: Growing delays; by default from 1 second, doubling up to 5 minutes.
        then: What happens when the attempts ran out: ``"fail"``, ``"pause"``, ``"cancel"`` or ``"skip"``.
        report: When the error reporter hears of it.

    Attempts are counted per policy, over restarts of the process too; a success or an operator's ``resume()``
    starts the count anew. All the policies of one list together run the body no more often than the smallest
    ``attempts`` among them says.

    Raises:
        TypeError: A value of the wrong type, or both ``wait`` and ``backoff``.
        ValueError: A value out of range.

    Example:
        >>> str(Retry(ConnectionError, "smtplib.SMTPException", wait=timedelta(seconds=10), then="pause"))
        'Retry(ConnectionError|smtplib.SMTPException, attempts=3, wait=0:00:10, then=pause, report=always)'
    """

    verb: ClassVar[Verb] = Verb.RETRY
    attempts: int
    wait: timedelta | None
    backoff: Backoff | None
    then: Then

    def __init__(
        self,
        *errors: ErrorSpec,
        attempts: int = 3,
        wait: timedelta | None = None,
        backoff: Backoff | None = None,
        then: Then = "fail",
        report: Report = "always",
    ) -> None:
        if isinstance(attempts, bool) or not isinstance(attempts, int):
            raise TypeError(f"Retry: attempts must be an int; got {attempts!r}")
        if attempts < 1:
            raise ValueError(f"Retry: attempts counts the first run too, so it is 1 or more; got {attempts}")
        if wait is not None:
            _require_duration("Retry", "wait", wait)
            if backoff is not None:
                raise TypeError("Retry: wait is a fixed delay and backoff a growing one; give one of them")
        if backoff is not None and not isinstance(backoff, Backoff):
            raise TypeError(f"Retry: backoff must be a Backoff(...); got {backoff!r}")
        _require_choice("Retry", "then", then, get_args(Then))
        _common(self, errors, report)
        _set(self, attempts=attempts, wait=wait, then=then)
        _set(self, backoff=Backoff() if wait is None and backoff is None else backoff)

    def delay(self, retry: int, random: Callable[[], float] = _random.random) -> timedelta:
        """The delay before the ``retry``-th retry (1 is the first)."""
        if self.wait is not None:
            return self.wait
        return cast(Backoff, self.backoff).delay(retry, random)

    def __str__(self) -> str:
        delay = f"wait={self.wait}" if self.wait is not None else str(self.backoff)
        facts = f"attempts={self.attempts}, {delay}, then={self.then}, report={self.report}"
        return f"Retry({self.label}, {facts})"


class _Plain(Policy):
    """A policy with nothing but errors and ``report``."""

    __slots__ = ()

    def __init__(self, *errors: ErrorSpec, report: Report = "always") -> None:
        _common(self, errors, report)


class Skip(_Plain):
    """Leave the step as skipped and go on with the next one."""

    __slots__ = ()
    verb = Verb.SKIP


class Pause(_Plain):
    """Stop the run for a person to look at; ``resume()`` runs the step again."""

    __slots__ = ()
    verb = Verb.PAUSE


class Cancel(_Plain):
    """End the run as canceled."""

    __slots__ = ()
    verb = Verb.CANCEL


class Fail(_Plain):
    """Stop the run as failed: what happens anyway where no policy fits; it overrules the class's policies."""

    __slots__ = ()
    verb = Verb.FAIL


@dataclass(frozen=True, slots=True, init=False)
class Handler(Policy):
    """A function of the author's that gets the error and says what to do with a verb of the workflow.

    Made by :func:`handles`. Accessed on an instance it is a bound method, so a unit test can call it.
    """

    verb: ClassVar[Verb] = Verb.HANDLE
    function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], *errors: ErrorSpec, report: Report = "always") -> None:
        if not callable(function):
            raise TypeError(f"handles: a function of (workflow, error) is decorated; got {function!r}")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(
                f"handles: {_name_of_function(function)} must be a plain function, not async or a generator"
            )
        _common(self, errors, report)
        _set(self, function=function)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else self.function.__get__(instance, owner)

    def __call__(self, workflow: object, error: BaseException) -> Any:
        return self.function(workflow, error)

    def __str__(self) -> str:
        return f"handles({self.label}, {_name_of_function(self.function)}, report={self.report})"


@overload
def handles(*errors: ErrorSpec, report: Report = "always") -> Callable[[_F], _F]: ...
@overload
def handles(function: _F, /) -> _F: ...
def handles(*errors: Any, report: Report = "always") -> Any:
    """Make a method the class's answer to errors.

    It gets the error and calls ``self.retry()``, ``self.pause()`` or another verb. A handler that returns
    without calling a verb leaves the error to the policies that come after it. It runs outside any
    transaction.

    Args:
        *errors: The errors it is for; none means any.
        report: When the error reporter hears of it.

    Raises:
        TypeError: What is decorated is no plain function.

    Example:
        >>> class RateLimited(Exception):
        ...     retry_after = timedelta(seconds=30)
        >>> @handles(RateLimited)
        ... def slow_down(workflow, error):
        ...     workflow.retry(wait=error.retry_after)
        >>> slow_down.matches(RateLimited())
        True
    """
    if len(errors) == 1 and not isinstance(errors[0], type | str):
        return Handler(errors[0], report=report)
    return lambda function: Handler(function, *errors, report=report)


def _name_of_function(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _common(policy: Policy, errors: tuple[Any, ...], report: Report) -> None:
    name = "handles" if isinstance(policy, Handler) else type(policy).__name__
    for error in errors:
        check_error(error, name)
    _require_choice(name, "report", report, get_args(Report))
    _set(policy, errors=errors, report=report)


def _set(policy: Policy, **facts: object) -> None:
    for name, value in facts.items():
        object.__setattr__(policy, name, value)


def _require_choice(name: str, option: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}: {option} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def _require_duration(name: str, option: str, value: object) -> None:
    if not isinstance(value, timedelta):
        raise TypeError(f"{name}: {option} must be a timedelta; got {value!r}")
    if value < _NO_WAIT:
        raise ValueError(f"{name}: {option} must not be negative; got {value}")


def _require_number(name: str, option: str, value: object, *, least: float, most: float | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: {option} must be a number; got {value!r}")
    if not least <= value < float("inf") or (most is not None and value > most):
        span = f"{least} or more" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}: {option} must be {span}; got {value!r}")
