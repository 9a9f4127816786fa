"""Which record a workflow's runs are about: ``class Onboarding(Workflow[User])``.

The type is looked up when it is first needed and not at class creation, so that it may be named before it
exists (``Workflow["User"]``).
"""

from __future__ import annotations

import sys
import types
from typing import Any, Final, ForwardRef, TypeVar, Union, get_args, get_origin

from stepwell.errors import DefinitionError

__all__ = ["HeroType", "declares_hero", "resolve_hero"]

HeroType = type | types.UnionType
_UNIONS: Final = (Union, types.UnionType)


def declares_hero(root: type, cls: type) -> bool:
    """The class says that its runs have a hero.

    Args:
        root: ``Workflow`` itself.
        cls: The class.
    """
    return _argument(root, cls)[0] is not None


def resolve_hero(root: type, cls: type) -> tuple[HeroType | None, bool]:
    """The hero's type, good for ``isinstance``, and whether it was declared as ``| None``.

    The type is None for a class without a hero.

    Args:
        root: ``Workflow`` itself.
        cls: The class.

    Raises:
        DefinitionError: The declaration names something that does not exist, or that is no class.
    """
    argument, module = _argument(root, cls)
    if argument is None:
        return None, True
    if isinstance(argument, ForwardRef):
        argument = _look_up(cls, argument.__forward_arg__, module)
    members = get_args(argument) if get_origin(argument) in _UNIONS else (argument,)
    union: Any = None
    for member in members:
        if member is not type(None):
            found = _class_of(cls, member, module)
            union = found if union is None else union | found
    result: HeroType | None = union
    return result, type(None) in members


def _argument(root: type, cls: type) -> tuple[Any, str]:
    """What stands in the brackets of ``Workflow[...]``, and the module in which it was written.

    A type variable that no class on the way fills in stands for no hero.
    """
    found, module = _raw_argument(root, cls)
    return (None if isinstance(found, TypeVar) or found is type(None) else found), module


def _raw_argument(root: type, cls: type) -> tuple[Any, str]:
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = get_origin(base) or base
        if not isinstance(origin, type) or not issubclass(origin, root):
            continue
        given = get_args(base)
        found, module = given[0] if given else None, cls.__module__
        if origin is not root:
            found, module = _raw_argument(root, origin)
            if isinstance(found, TypeVar) and given:
                position = getattr(origin, "__parameters__", ()).index(found)
                found, module = given[position], cls.__module__
        if found is not None:
            return found, module
    return None, cls.__module__


def _class_of(cls: type, member: Any, module: str) -> type:
    if isinstance(member, ForwardRef):
        member = _look_up(cls, member.__forward_arg__, module)
    if member is Any:
        return object
    found = get_origin(member) or member
    if not isinstance(found, type):
        raise DefinitionError(cls.__name__, f"the hero's type must be a class; got {member!r}")
    return found


def _look_up(cls: type, expression: str, module: str) -> Any:
    scope = vars(sys.modules[module]) if module in sys.modules else {}
    try:
        return eval(expression, dict(scope))
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise DefinitionError(
            cls.__name__,
            f"the hero's type {expression!r} cannot be found in {module} ({error}). A type in quotes must be "
            "a global of the module in which the workflow stands",
        ) from error
