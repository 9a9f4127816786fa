"""How to say that a value of an unknown type cannot be stored, and what its author can do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final

from stepwell.serialization.paths import Misfit, with_article

__all__ = ["refusal"]

_ADVICE: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((GeneratorType, AsyncGeneratorType), "It has not run yet: collect its items in a list first."),
    ((CoroutineType,), "It has not run yet: await it, and store what it gives."),
    (
        (FunctionType, MethodType, BuiltinFunctionType, ModuleType, type),
        "Store data that tells which one is meant.",
    ),
    ((bytearray, memoryview), "Use bytes(value)."),
    ((BaseException,), "Use str(error), or the data that it carries."),
    ((range, Iterator), "Use list(value)."),
)


def refusal(value: object, known: Iterable[type]) -> Misfit:
    """The error for a value of a type that is not among the known ones."""
    cls = type(value)
    base = next((base for base in cls.__mro__ if base in set(known)), None)
    if base is not None:
        return Misfit(
            f"{with_article(cls.__name__)}, a subclass of {base.__name__} "
            f"that would come back as a plain {base.__name__}",
            f"Convert it to a plain {base.__name__}, or {_register(cls)}.",
        )
    for types, advice in _ADVICE:
        if isinstance(value, types):
            return Misfit(with_article(cls.__name__), advice)
    return Misfit(
        with_article(cls.__name__), f"Store the data in it, make it a dataclass, or {_register(cls)}."
    )


def _register(cls: type[Any]) -> str:
    return f"teach the codec: codec.register({cls.__name__}, 'a-tag', encode, decode)"
