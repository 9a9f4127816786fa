"""From the arguments of ``start(...)`` to a :class:`Call` that has been checked against the class."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from stepwell.definition.heroes import HeroType
from stepwell.definition.settings import HERO
from stepwell.definition.starting import OPTION_NAMES, Call
from stepwell.errors import RunError, WrongArguments
from stepwell.serialization import RecordRef
from stepwell.serialization.paths import with_article

__all__ = ["arguments_of_run", "call_of", "calls_of"]


def call_of(cls: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """The start of ``cls`` with these arguments: the hero first, if it has one.

    Raises:
        RunError: The class has nothing to run.
        WrongArguments: The arguments are not those of the class.
    """
    name = cls.__name__
    _refuse_abstract(cls)
    hero_type: HeroType | None = cls.hero_type
    hero, args, kwargs = _take_hero(name, hero_type, args, dict(kwargs))
    if hero is None and hero_type is not None and not cls.is_hero_optional:
        raise WrongArguments(
            f"{name}.start() needs its hero, {with_article(_told(hero_type))}: {name}.start(hero, ...). "
            "Runs without one are allowed by hero_optional = True in the class."
        )
    # run() knows records as references only.
    if hero is not None and hero_type is not None and not isinstance(hero, RecordRef | hero_type):
        raise WrongArguments(
            f"{name} is about {with_article(_told(hero_type))}; {with_article(type(hero).__qualname__)} "
            f"cannot be its hero: {_short(hero)}."
        )
    if hasattr(cls, "run"):
        return Call(cls, hero, _bound(cls, args, kwargs))
    if args:
        raise WrongArguments(
            f"{name}.start() takes arguments by name only"
            f"{', after its hero' if hero_type is not None else ''}; got {_short(args[0])}."
            f"{'' if hero_type is not None else _NO_HERO.format(name=name)}"
        )
    _refuse_options(name, kwargs)
    return Call(cls, hero, kwargs)


def _refuse_options(name: str, kwargs: Mapping[str, Any]) -> None:
    """A class without ``run()`` takes any argument: one that is called like an option would be one silently."""
    for option in kwargs:
        if option in OPTION_NAMES:
            raise WrongArguments(
                f"{name}.start({option}=...): {option!r} is an option of the start and no argument of the workflow. "
                f"Write {name}.with_options({option}=...).start(...); an argument needs another name."
            )


_NO_HERO = " If it is about a record, say so: class {name}(Workflow[RecordType])."


def calls_of(cls: Any, items: Iterable[Any]) -> Iterable[Call]:
    """One call for each item: a call made by ``with_args``, a hero, or a mapping of arguments.

    Raises:
        WrongArguments: While iterating: an item is none of these, or a call of another class.
    """
    for item in items:
        if isinstance(item, Call):
            if item.workflow is not cls:
                raise WrongArguments(
                    f"{cls.__name__}.start_many() got a call of {item.workflow.__name__}; "
                    "each class starts its own."
                )
            yield item
        elif cls.hero_type is not None:
            yield call_of(cls, (item,), {})
        elif isinstance(item, Mapping):
            yield call_of(cls, (), item)
        else:
            raise WrongArguments(
                f"{cls.__name__}.start_many() takes mappings of arguments, or calls made by "
                f"{cls.__name__}.with_args(...); got {_short(item)}."
            )


def arguments_of_run(cls: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for another pass through ``run()`` of the same class; its hero stays.

    Raises:
        WrongArguments: They are not those of ``run()``.
    """
    return _bound(cls, (), dict(kwargs))


def _refuse_abstract(cls: Any) -> None:
    name = cls.__name__
    if cls.__abstractmethods__:
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise RunError(f"{name} is abstract and cannot be started: a subclass must define {missing}.")
    if cls.plan.is_empty:
        raise RunError(
            f"{name} has neither steps nor run(), so there is nothing to start. Decorate methods with @step, "
            "or start a subclass that has some."
        )


def _take_hero(
    name: str, hero_type: HeroType | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    if hero_type is None:
        if HERO in kwargs:
            raise WrongArguments(
                f"{name} has no hero, and no argument may be called {HERO!r}.{_NO_HERO.format(name=name)}"
            )
        return None, args, kwargs
    if HERO in kwargs:
        return kwargs.pop(HERO), args, kwargs
    return (args[0], args[1:], kwargs) if args else (None, args, kwargs)


def _bound(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names of ``run()``'s parameters; those left to their defaults stay out."""
    signature = inspect.signature(cls.run)
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError as error:
        parameters = list(signature.parameters.values())[1:]
        told = ", ".join(str(each) for each in parameters)
        raise WrongArguments(f"{cls.__name__}.start({told}): {error}.") from error
    values: dict[str, Any] = {}
    for parameter, value in list(bound.arguments.items())[1:]:
        if signature.parameters[parameter].kind is inspect.Parameter.VAR_KEYWORD:
            values.update(value)
        else:
            values[parameter] = value
    return values


def _told(hero_type: HeroType) -> str:
    return hero_type.__qualname__ if isinstance(hero_type, type) else str(hero_type)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        return f"<{type(value).__qualname__}>"
    return text if len(text) <= 80 else f"{text[:77]}..."
