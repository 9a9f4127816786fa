"""What the functions in a class must look like: their kind, their parameters, the names that they read."""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
from collections.abc import Callable, Collection, Iterator
from types import CodeType
from typing import Any, Final

__all__ = [
    "broken_condition",
    "broken_kind",
    "broken_laziness",
    "broken_receiver",
    "is_async",
    "is_generator",
    "parameters_of",
    "required_of",
    "stray_global",
    "truth_of",
]

_READS_A_GLOBAL: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


def is_async(function: Callable[..., Any]) -> bool:
    """Its body runs in an event loop: it makes a coroutine or an async generator.

    Wrappers and partials are looked through.
    """
    return any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
        for each in (function, _innermost(function))
    )


def is_generator(function: Callable[..., Any]) -> bool:
    """Calling it makes a generator, plain or async; wrappers and partials are looked through."""
    return any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each)
        for each in (function, _innermost(function))
    )


def broken_kind(function: object) -> str | None:
    """Why this cannot be a step's function, generator or not; None if it can."""
    if isinstance(function, staticmethod | classmethod | property):
        return f"is a {type(function).__name__}; a plain method that takes self is needed"
    if not callable(function) or isinstance(function, type):
        return f"is no function but {function!r}"
    if _takes_nothing(function):
        return "takes no parameter for the workflow: its first one is self"
    return None


def broken_laziness(function: object) -> str | None:
    """Why calling this does nothing yet; None if it does something.

    Wrappers are not looked through: what they wrap may be a generator that they consume.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "is a generator function: its body would not run when it is called"
    return None


def broken_condition(function: object) -> str | None:
    """Why this cannot be asked about a workflow, as ``skip_if``, ``wait_until`` and ``@cancel_if`` are."""
    if callable(function) and _takes_nothing(function):
        return "takes no parameter, and is called with the workflow: write lambda self: ..."
    problem = broken_kind(function) or broken_laziness(function)
    if problem is not None or not callable(function):
        return problem
    if is_async(function):
        return "is async: the coroutine that it makes would always count as true. Use a plain function"
    others = required_of(function)
    return f"must take only the workflow; it also wants {', '.join(others)}" if others else None


def truth_of(answer: object) -> bool:
    """Whether a condition's answer is a true one.

    Raises:
        TypeError: It is a coroutine, a generator or the like, which would always count as true.
    """
    if inspect.isawaitable(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        if inspect.iscoroutine(answer) or inspect.isgenerator(answer):
            answer.close()
        raise TypeError(
            f"a condition answered a {type(answer).__name__}, which would always count as true: make it a plain "
            "function that answers True or False, and do what takes waiting in a step before it"
        )
    return bool(answer)


def broken_receiver(function: Callable[..., Any]) -> str | None:
    """Why a step's function cannot be given a signal's payload, nor called without one; None if it can.

    The payload goes to the parameter after ``self``, which then has no default; a function may do without.
    """
    parameters = [
        each for each in (parameters_of(function) or {}).values() if each.kind is not each.VAR_KEYWORD
    ]
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return (
            "awaits a signal, and *args does not tell whether it takes the payload. Name the parameter; a "
            "decorator in between needs functools.wraps"
        )
    others = required_of(function)
    if len(parameters) > 1 and parameters[1].kind is not inspect.Parameter.KEYWORD_ONLY:
        first = parameters[1]
        if first.default is not first.empty:
            return (
                f"awaits a signal, whose payload goes to a parameter without a default; {first.name} has "
                f"one. Take it away, or write a * in front of {first.name} if that is not the payload"
            )
        others = others[1:]
    if others:
        return f"awaits a signal and is given its payload, by position: nobody gives it {', '.join(others)}"
    return None


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """The parameters by name, ``self`` included; None for built-in functions that do not tell theirs."""
    try:
        return dict(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        return None


def required_of(function: Callable[..., Any]) -> list[str]:
    """The parameters after ``self`` that have no default."""
    parameters = list((parameters_of(function) or {}).values())
    if parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        parameters = parameters[1:]
    loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in loose]


def stray_global(function: Callable[..., Any], class_body: Collection[str]) -> str | None:
    """A global name that the function reads and that exists in the class body only.

    There no function can see it.
    """
    inner = _innermost(function)
    code, scope = getattr(inner, "__code__", None), getattr(inner, "__globals__", {})
    if not isinstance(code, CodeType):
        return None
    for name in _global_reads(code):
        if name in class_body and name not in scope and not hasattr(builtins, name):
            return name
    return None


def _global_reads(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _READS_A_GLOBAL:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_reads(constant)


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    while True:
        unwrapped = inspect.unwrap(function)
        inner: Callable[..., Any] = unwrapped.func if isinstance(unwrapped, functools.partial) else unwrapped
        if inner is function:
            return function
        function = inner


def _takes_nothing(function: Callable[..., Any]) -> bool:
    parameters = parameters_of(function)
    return parameters is not None and not any(map(_is_positional, parameters.values()))


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
