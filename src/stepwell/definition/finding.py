"""Which run is meant, by what its author knows of it: a key, a record, or the arguments that identify it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stepwell.definition.functions import parameters_of
from stepwell.definition.identity import Canonical, RunKey, key_of, name_key, unique_key
from stepwell.definition.settings import setting_of
from stepwell.definition.starting import Call
from stepwell.definition.unset import UNSET
from stepwell.errors import WrongArguments

__all__ = ["IfMissing", "Wanted", "key_wanted", "wanted_of"]

IfMissing = Literal["raise", "ignore"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The open run of a class that is meant.

    Attributes:
        workflow: The class.
        key: The key that it was started with; None if it is known otherwise.
        hero: The record that it is about, or None.
        args: The arguments that identify it, by name.
    """

    workflow: type[Any]
    key: object
    hero: Any
    args: Mapping[str, Any]

    def __str__(self) -> str:
        said = {"key": self.key, "hero": self.hero, **self.args}
        return ", ".join(f"{name}={value!r}" for name, value in said.items() if value is not None)


def wanted_of(cls: type[Any], key: object, hero: Any, args: Mapping[str, Any]) -> Wanted:
    """What is said about a run, checked against its class.

    Raises:
        WrongArguments: Nothing is said that could tell, or ``run()`` takes no such argument.
    """
    if key is not None and (hero is not None or args):
        raise WrongArguments(f"{cls.__name__}: key= says it all; leave {_named(hero, args)} out.")
    run = getattr(cls, "run", None)
    parameters = None if run is None else parameters_of(run)
    if parameters is not None and not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        for name in args:
            if name not in parameters:
                raise WrongArguments(
                    f"{cls.__name__}.run() takes no {name!r}: its runs cannot be told by it. They can by "
                    f"{', '.join(list(parameters)[1:]) or 'their key'}."
                )
    if key is None and hero is None and not args:
        raise WrongArguments(
            f"{cls.__name__}: say which run is meant, by key=, by hero=, or by the arguments that identify it."
        )
    return Wanted(cls, key, hero, args)


def key_wanted(wanted: Wanted, codec: Canonical) -> RunKey | None:
    """The identity that is meant: unique if it has a digest, else a name; None if the run is known by its hero only.

    Raises:
        WrongArguments: What is said does not identify a run of the class.
        Unstorable: It cannot be written down.
    """
    cls = wanted.workflow
    if wanted.key is not None:
        return key_of(wanted.key, codec)
    unique_by = setting_of(cls, "unique_by")
    is_by_hero = unique_by is UNSET or unique_by in ("hero", ("hero",))
    if wanted.hero is not None and not wanted.args and not is_by_hero:
        return None
    call = Call(cls, wanted.hero, dict(wanted.args))
    if _is_named_so(wanted):
        named = name_key(call, codec)
        return None if named is None else RunKey(named.text, None)
    try:
        key = unique_key(call, codec)
    except WrongArguments:
        if setting_of(cls, "identified_by") is None:
            raise
        key = None
    if key is None:
        named = name_key(call, codec)
        key = None if named is None else RunKey(named.text, None)
    if key is None and wanted.hero is None:
        raise WrongArguments(
            f"{cls.__name__} has neither unique_by nor identified_by, so that its arguments identify no run: say key= "
            "or hero=."
        )
    return key


def _is_named_so(wanted: Wanted) -> bool:
    """What is said is exactly what runs of the class are called by, and not what makes them unique."""
    said = {*wanted.args, *(() if wanted.hero is None else ("hero",))}
    named, unique = (_names(setting_of(wanted.workflow, each)) for each in ("identified_by", "unique_by"))
    return named == said != unique


def _names(setting: object) -> set[str] | None:
    """The arguments that a setting names; None if it names none."""
    names = (setting,) if isinstance(setting, str) else setting
    return set(names) if isinstance(names, tuple) else None


def _named(hero: Any, args: Mapping[str, Any]) -> str:
    return ", ".join([*(["hero"] if hero is not None else []), *args])
