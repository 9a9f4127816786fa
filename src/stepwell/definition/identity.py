"""Which runs are the same: from a start to the key that no two open runs of a class may share.

The key is a value: the one given by hand, else what the class's ``unique_by`` says, else the hero. A class may say
by ``identified_by`` how its runs are called, whether they are unique or not. Its text
comes from the codec, which keeps ``1``, ``"1"``, ``None`` and ``""`` apart and writes a record as its type
and primary key.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from stepwell.definition.functions import parameters_of
from stepwell.definition.settings import HERO, setting_of
from stepwell.definition.starting import Call, StartOptions
from stepwell.definition.unset import UNSET
from stepwell.errors import WrongArguments

__all__ = ["Canonical", "RunKey", "key_of", "name_key", "run_key", "unique_key"]

_LONGEST: Final = 255
_LEGIBLE: Final = 180


class Canonical(Protocol):
    """The codec, as far as a key needs it."""

    def canonical(self, value: object) -> str:
        """Text that is the same for equal values, and differs for values that differ in type or content."""
        ...


@dataclass(frozen=True, slots=True)
class RunKey:
    """The identity of a run.

    Attributes:
        text: For people and for look-ups: at most 255 characters. A long one ends in its digest.
        digest: SHA-256 of what must be unique, in hex; None where the runs of a class are named, and never the same.
    """

    text: str
    digest: str | None


def key_of(value: object, codec: Canonical) -> RunKey:
    """The key that this value stands for, to start a run with or to look one up.

    Raises:
        Unstorable: The value cannot be written down, such as a record without a primary key.
    """
    text = codec.canonical(value)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return RunKey(text if len(text) <= _LONGEST else f"{text[:_LEGIBLE]}...#{digest}", digest)


def run_key(call: Call, options: StartOptions, codec: Canonical) -> RunKey | None:
    """The identity of the run that this call starts; None if runs of its class are never the same.

    Raises:
        Unstorable: What identifies it cannot be written down.
        WrongArguments: ``unique_by`` names an argument that the start did not get, or identifies nothing.
    """
    if options.key is not None:
        return key_of(options.key, codec)
    unique, named = unique_key(call, codec), name_key(call, codec)
    if named is None:
        return unique
    return RunKey(named.text, None if unique is None else unique.digest)


def unique_key(call: Call, codec: Canonical) -> RunKey | None:
    """What the class's ``unique_by`` makes of the call, its hero by default; None if its runs are never the same.

    Raises:
        Unstorable: It cannot be written down.
        WrongArguments: An argument is missing, or it identifies nothing.
    """
    if setting_of(call.workflow, "unique_by") is UNSET:
        return None if call.hero is None else key_of(call.hero, codec)
    return _derived(call, "unique_by", codec)


def name_key(call: Call, codec: Canonical) -> RunKey | None:
    """What the class's ``identified_by`` makes of the call; None if it has none.

    Raises:
        Unstorable: It cannot be written down.
        WrongArguments: An argument is missing, or it identifies nothing.
    """
    return _derived(call, "identified_by", codec)


def _derived(call: Call, setting: str, codec: Canonical) -> RunKey | None:
    said = setting_of(call.workflow, setting)
    if said is None:
        return None
    known = {**_defaults(call.workflow), **call.args, HERO: call.hero}
    if isinstance(said, str):
        return key_of(_named(call, setting, said, known), codec)
    if isinstance(said, tuple):
        return key_of(tuple(_named(call, setting, name, known) for name in said), codec)
    return key_of(_asked(call, setting, said, known), codec)


def _defaults(workflow: type[Any]) -> dict[str, Any]:
    """The defaults of ``run()``: a start that leaves one out means the same as one that says it."""
    run = getattr(workflow, "run", None)
    parameters = {} if run is None else parameters_of(run) or {}
    return {name: each.default for name, each in parameters.items() if each.default is not each.empty}


def _named(call: Call, setting: str, name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise WrongArguments(
            f"{call.workflow.__name__} is {setting.replace('_', ' ')} {name!r}, and start() did not get it. Pass "
            f"{name}=..."
        )
    return known[name]


def _asked(call: Call, setting: str, function: Callable[..., Any], known: Mapping[str, Any]) -> Any:
    """The answer of a function that takes, by name, the arguments that it wants to see."""
    parameters = (parameters_of(function) or {}).values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        wanted = dict(known)
    else:
        wanted = {
            each.name: _named(call, setting, each.name, known)
            for each in parameters
            if each.name in known or each.default is each.empty
        }
    answer = function(**wanted)
    if answer is None:
        raise WrongArguments(
            f"{setting} of {call.workflow.__name__} answered None, which identifies nothing. It must return "
            "a value."
        )
    return tuple(answer) if isinstance(answer, list) else answer
