"""Classes by name: ``"module:QualName"``, and back to the class in another process, another day.

Reading a name back imports its module. Whoever can write to the tables can therefore have any installed
module imported; the class found is then used only if it is of the expected kind.
"""

from __future__ import annotations

import sys
from importlib import import_module

from stepwell.errors import Undecodable, Unstorable

__all__ = ["find_class", "stable_name"]


def stable_name(cls: type) -> str:
    """The name under which a class can be found again.

    A class of the script that is run as the main program is named ``__main__:...``, and can be read back by
    processes that run the same script.

    Raises:
        Unstorable: The class cannot be found by its name: it is local to a function, was made on the fly, or
            another object has taken its place.
    """
    module = cls.__module__
    if module == "__mp_main__":  # what multiprocessing's "spawn" calls the parent's main program
        module = "__main__"
    name = cls.__qualname__
    if "<locals>" in name:
        raise Unstorable(
            f"its class is defined inside a function ({name}), where no other process can find it. "
            f"{_move_or_register(cls)}"
        )
    if "[" in name:
        raise Unstorable(
            f"its class {name} is made on the fly from a generic one, and no other process can find it. "
            f"Give it a name at the top level of a module, such as: class {_identifier(name)}({name}): ..."
        )
    found = _lookup(module, name)
    if found is not cls:
        there = "there is nothing of that name" if found is None else "another object has that name now"
        raise Unstorable(
            f"its class cannot be found again as {module}:{name}, because {there}. {_move_or_register(cls)}"
        )
    return f"{module}:{name}"


def find_class(name: str) -> type:
    """The class with this stable name; imports its module if need be.

    Raises:
        Undecodable: The module cannot be imported, or has no such class any more.
    """
    module, _, qualname = name.partition(":")
    if module not in sys.modules:
        try:
            import_module(module)
        except (Exception, SystemExit) as error:  # a module's top level may do anything
            raise Undecodable(
                f"module {module!r} cannot be imported ({type(error).__name__}: {error}). "
                f"Install it where this process runs, or, if it has moved, leave a module of the old name "
                f"behind that imports {qualname} from the new place."
            ) from error
    found = _lookup(module, qualname)
    if isinstance(found, type):
        return found
    if module == "__main__":
        raise Undecodable(
            f"{qualname} was defined in the script that ran as the main program, and this process runs "
            f"another one. Move {qualname} into a module that both import."
        )
    raise Undecodable(
        f"module {module!r} has no class {qualname}. "
        f"If it was renamed or moved, leave the old name behind as an alias of the new class."
    )


def _lookup(module: str, qualname: str) -> object:
    found: object = sys.modules.get(module)
    for attribute in qualname.split("."):
        found = getattr(found, attribute, None)
    return found


def _move_or_register(cls: type) -> str:
    return (
        f"Move {cls.__name__} to the top level of a module, "
        f"or teach the codec: codec.register({cls.__name__}, 'a-tag', encode, decode)."
    )


def _identifier(name: str) -> str:
    return "".join(
        part.title() for part in reversed(name.replace("]", "").rpartition(".")[2].split("[")) if part
    )
