"""What tells the calls in ``run()`` apart, and what they were called with."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from stepwell.definition.plan import StepSpec
from stepwell.errors import Unstorable
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
    if known.fits(args, kwargs):
        given = dict(zip(known.defaults, args, strict=False))
        if not known.has_defaults:
            return given
        return {name: value for name, value in given.items() if not _is_default(value, known.defaults[name])}
    bound = known.bound(function, args, kwargs).arguments
    parameters = known.signature.parameters
    return {
        name: value for name, value in bound.items() if not _is_default(value, _default(parameters[name]))
    }


class _Parameters:
    """What a function takes, ``self`` left out; a long replay asks at each call.

    Args:
        parameters: In their order.
        signature: With these alone.

    Attributes:
        defaults: Of those that can be given by position, by name, in their order.
        places: At which place each of them stands.
    """

    __slots__ = ("_are_all_plain", "_most", "_required", "defaults", "has_defaults", "places", "signature")

    def __init__(self, parameters: Sequence[inspect.Parameter], signature: inspect.Signature) -> None:
        loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        plain = [each for each in parameters if each.kind not in (*loose, each.KEYWORD_ONLY)]
        self.signature = signature
        self.defaults = {each.name: _default(each) for each in plain}
        self.places = {each.name: place for place, each in enumerate(plain)}
        self.has_defaults = any(each is not _MISSING for each in self.defaults.values())
        self._are_all_plain = len(plain) == len(parameters)
        self._most = len(plain)
        self._required = sum(each.default is each.empty and each.kind not in loose for each in parameters)

    def fits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """The function can be called so, with all arguments by position; as most calls are."""
        return not kwargs and self._required <= len(args) <= self._most

    def one_of(
        self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """One argument, or its default.

        Raises:
            TypeError: The function cannot be called like that.
        """
        if self.fits(args, kwargs) and name in self.places:
            place = self.places[name]
            return args[place] if place < len(args) else self.defaults[name]
        return self.all_of(function, args, kwargs)[name]

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
        if self._are_all_plain and self.fits(args, kwargs):
            # To bind them takes three times as long.
            return {**self.defaults, **dict(zip(self.defaults, args, strict=False))}
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
    return _Parameters(parameters, signature.replace(parameters=parameters))


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
    values = dict(arguments)
    try:
        text = codec.canonical(values)
    except Unstorable:
        # Once more, by the name that nearly no call needs.
        text = codec.canonical(values, what=f"arguments of {name!r}")
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def call_key(spec: StepSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any], codec: Codec) -> str | None:
    """What the step's ``key_by`` makes of the arguments, as typed and escaped text; long ones as a digest.

    Raises:
        Unstorable: It cannot be stored.
    """
    key_by = spec.key_by
    if key_by is None:
        return None
    known = _parameters(spec.function, True)
    if isinstance(key_by, str):
        value: Any = known.one_of(spec.function, key_by, args, kwargs)
    elif isinstance(key_by, tuple):
        given = known.all_of(spec.function, args, kwargs)
        value = [given[name] for name in key_by]
    else:
        value = key_by(**known.all_of(spec.function, args, kwargs))
    text = codec.canonical(value)
    if len(text) > _LONGEST_KEY:
        return f'"~{hashlib.sha256(text.encode()).hexdigest()}"'
    return text
