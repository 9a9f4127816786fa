"""Durable verbs: done at once in a ``Workflow``, awaited in an ``AsyncWorkflow``; each is written once for both."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

if TYPE_CHECKING:
    from stepwell.definition.async_workflow import AsyncWorkflow

__all__ = ["durable", "durable_in_run", "durable_one_off", "is_durable"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


def is_durable(value: object) -> bool:
    """``value`` is a verb whose call an ``AsyncWorkflow`` awaits."""
    return getattr(value, "_stepwell_is_durable", False)


def durable(verb: Callable[Concatenate[Any, P], R]) -> Verb[P, R]:
    """Make a method a verb whose call is journaled: in the body of an ``async def run()`` it is to be awaited."""
    return cast("Verb[P, R]", _durable(verb))


def durable_in_run(verb: Callable[Concatenate[Any, P], R]) -> PauseVerb[P, R]:
    """The same for a verb that steps say, too; there it does not return, and nobody awaits it."""
    return cast("PauseVerb[P, R]", _durable(verb))


def durable_one_off(verb: Callable[..., Any]) -> OneOffVerb:
    """The same for the verb that takes a function with its arguments, and answers what that answers."""
    return cast("OneOffVerb", _durable(verb))


def _durable(verb: Callable[..., Any]) -> Any:
    @functools.wraps(verb)
    def call(workflow: Any, *args: Any, **kwargs: Any) -> Any:
        if not workflow._is_async:
            return verb(workflow, *args, **kwargs)
        work = functools.partial(verb, workflow, *args, **kwargs)
        return workflow._durable(f"{verb.__name__}()", work)

    call._stepwell_is_durable = True  # type: ignore[attr-defined]  # a mark on a function
    return call


if TYPE_CHECKING:
    # What a verb is to a type checker: its owner decides whether it is awaited.

    class Verb(Generic[P, R_co]):
        """A durable verb."""

        @overload
        def __get__(self, workflow: None, owner: type) -> Verb[P, R_co]: ...
        @overload
        def __get__(
            self, workflow: AsyncWorkflow[Any], owner: type | None = None
        ) -> Callable[P, Coroutine[Any, Any, R_co]]: ...
        @overload
        def __get__(self, workflow: object, owner: type | None = None) -> Callable[P, R_co]: ...
        def __get__(self, workflow: Any, owner: Any = None) -> Any: ...

    class PauseVerb(Generic[P, R_co]):
        """A durable verb that may also be left without ``await``."""

        @overload
        def __get__(self, workflow: None, owner: type) -> PauseVerb[P, R_co]: ...
        @overload
        def __get__(
            self, workflow: AsyncWorkflow[Any], owner: type | None = None
        ) -> Callable[P, Awaitable[R_co]]: ...
        @overload
        def __get__(self, workflow: object, owner: type | None = None) -> Callable[P, R_co]: ...
        def __get__(self, workflow: Any, owner: Any = None) -> Any: ...

    class _OneOff(Protocol):
        @overload
        def __call__(
            self, name: str, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
        ) -> T: ...
        @overload
        def __call__(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    class _AwaitedOneOff(Protocol):
        @overload
        def __call__(
            self, name: str, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[Any, Any, T]: ...
        @overload
        def __call__(
            self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[Any, Any, T]: ...

    class OneOffVerb:
        """The durable verb that takes a function."""

        @overload
        def __get__(self, workflow: None, owner: type) -> OneOffVerb: ...
        @overload
        def __get__(self, workflow: AsyncWorkflow[Any], owner: type | None = None) -> _AwaitedOneOff: ...
        @overload
        def __get__(self, workflow: object, owner: type | None = None) -> _OneOff: ...
        def __get__(self, workflow: Any, owner: Any = None) -> Any: ...
