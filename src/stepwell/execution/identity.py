"""What tells the calls in ``run()`` apart, and what they were called with."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from stepwell.definition.plan import StepSpec
from stepwell.serialization import Codec

__all__ = ["arguments_of", "call_key", "digest_of"]

_LONGEST_KEY: Final = 200
_MISSING: Final = object()
_ANYTHING: Final = inspect.signature(lambda *args, **kwargs: None)


def arguments_of(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_method: bool
) -> dict[str, Any]:
    """The arguments by the names of the function's parameters; those equal to their defaults are left out.

    So a parameter with a default can be added while runs are under way.

    Raises:
        TypeError: The function cannot be called like that.
    """
    if not args and not kwargs:
        return {}
    known = _parameters(function, is_method)
    if not kwargs and known.fits(len(args)):
        pairs = zip(known.plain, args, strict=False)
        return {name: value for (name, default), value in pairs if not _is_default(value, default)}
    bound = known.bound(function, args, kwargs).arguments
    parameters = known.signature.parameters
    return {
        name: value for name, value in bound.items() if not _is_default(value, _default(parameters[name]))
    }


@dataclass(frozen=True, slots=True)
class _Parameters:
    """What a function takes, ``self`` left out.

    Attributes:
        plain: Name and default of those that can be given by position.
        required: How many a call by position must give at least.
    """

    signature: inspect.Signature
    plain: tuple[tuple[str, Any], ...]
    required: int

    def fits(self, count: int) -> bool:
        """The function can be called with so many arguments, all by position."""
        return self.required <= count <= len(self.plain)

    def bound(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> inspect.BoundArguments:
        """The arguments of a call of the function.

        Raises:
            TypeError: It cannot be called like that.
        """
        try:
            return self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{getattr(function, '__qualname__', function)}(): {error}") from None

    def all_of(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """All arguments by name, those that are not given with their defaults.

        Raises:
            TypeError: The function cannot be called like that.
        """
        if not kwargs and self.fits(len(args)) and len(self.plain) == len(self.signature.parameters):
            # As most are called; to bind them takes three times as long.
            given = {name: value for (name, _), value in zip(self.plain, args, strict=False)}
            given.update(self.plain[len(args) :])
            return given
        bound = self.bound(function, args, kwargs)
        bound.apply_defaults()
        return bound.arguments


def _parameters(function: Callable[..., Any], is_method: bool) -> _Parameters:
    """What a function takes; remembered only where that keeps nothing else alive, such as a run's instance."""
    if is_method or _holds_nothing(function):
        return _remembered(function, is_method)
    if inspect.ismethod(function):
        return _remembered(function.__func__, True)
    return _looked_up(function, is_method)


def _holds_nothing(function: Callable[..., Any]) -> bool:
    if inspect.isfunction(function):
        return function.__closure__ is None and not function.__defaults__ and not function.__kwdefaults__
    return inspect.isclass(function) or isinstance(getattr(function, "__self__", None), ModuleType)


def _looked_up(function: Callable[..., Any], is_method: bool) -> _Parameters:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Of some functions in C nobody knows the parameters.
        signature = _ANYTHING
    parameters = list(signature.parameters.values())
    if is_method and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        # What is behind a wrapper that takes anything gets self as one of it.
        del parameters[0]
    plain = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    required = sum(
        each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in parameters
    )
    return _Parameters(
        signature.replace(parameters=parameters),
        tuple((each.name, _default(each)) for each in plain),
        required,
    )


_remembered = functools.lru_cache(maxsize=4096)(_looked_up)


def _default(parameter: inspect.Parameter) -> Any:
    return _MISSING if parameter.default is parameter.empty else parameter.default


def _is_default(value: Any, default: Any) -> bool:
    if default is _MISSING or type(value) is not type(default):
        return False
    try:
        return bool(value == default)
    except Exception:
        return False


def digest_of(arguments: Mapping[str, Any], codec: Codec, name: str) -> str | None:
    """SHA-256 of the arguments' canonical text, 16 bytes in hex; None for a call without any.

    Raises:
        Unstorable: An argument cannot be stored.
    """
    if not arguments:
        return None
    return hashlib.sha256(
        codec.canonical(dict(arguments), what=f"arguments of {name!r}").encode()
    ).hexdigest()[:32]


def call_key(spec: StepSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any], codec: Codec) -> str | None:
    """What the step's ``key_by`` makes of the arguments, as typed and escaped text; long ones as a digest.

    Raises:
        Unstorable: It cannot be stored.
    """
    key_by = spec.key_by
    if key_by is None:
        return None
    given = _parameters(spec.function, True).all_of(spec.function, args, kwargs)
    if isinstance(key_by, str):
        value: Any = given[key_by]
    elif isinstance(key_by, tuple):
        value = [given[name] for name in key_by]
    else:
        value = key_by(**given)
    text = codec.canonical(value)
    if len(text) > _LONGEST_KEY:
        return f'"~{hashlib.sha256(text.encode()).hexdigest()}"'
    return text
