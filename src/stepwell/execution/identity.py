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
    if not kwargs and known.required <= len(args) <= len(known.plain):
        pairs = zip(known.plain, args, strict=False)
        return {name: value for (name, default), value in pairs if not _is_default(value, default)}
    bound = known.signature.bind(*args, **kwargs).arguments
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
    parameters = list(signature.parameters.values())[1 if is_method else 0 :]
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
    bound = _parameters(spec.function, True).signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if isinstance(key_by, str):
        value: Any = bound.arguments[key_by]
    elif isinstance(key_by, tuple):
        value = [bound.arguments[name] for name in key_by]
    else:
        value = key_by(**bound.arguments)
    text = codec.canonical(value)
    if len(text) > _LONGEST_KEY:
        return f'"~{hashlib.sha256(text.encode()).hexdigest()}"'
    return text
