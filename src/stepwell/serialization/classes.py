"""Classes by name: ``"module:QualName"``, and back to the class in another process, another day.

Reading a name back imports its module. Whoever can write to the tables can therefore have any installed
module imported; the class found is then used only if it is of the expected kind.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from stepwell.errors import Undecodable, Unstorable

__all__ = ["find_class", "stable_name"]

_MAIN: Final = "__main__"


def stable_name(cls: type) -> str:
    """The name under which a class can be found again.

    A class of the script that is run as the main program is named as if the script had been imported: ``python app.py``
    starts runs with ``app:User``, which a worker that imports ``app`` finds, and the other way round. Where the main
    program cannot be imported (a notebook), the name is ``__main__:...``.

    Raises:
        Unstorable: The class cannot be found by its name: it is local to a function, was made on the fly, or
            another object has taken its place.
    """
    module = cls.__module__
    if module == "__mp_main__":  # what multiprocessing's "spawn" calls the parent's main program
        module = _MAIN
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
    if module == _MAIN:
        module = _imported_name(sys.modules[_MAIN]) or _MAIN
    return f"{module}:{name}"


def find_class(name: str) -> type:
    """The class with this stable name; imports its module if need be.

    The main program is not imported once more under its name: it would run again, and define everything twice.

    Raises:
        Undecodable: The module cannot be imported, or has no such class any more.
    """
    module, _, qualname = name.partition(":")
    place = _MAIN if _is_main(module, qualname) else module
    if place not in sys.modules:
        try:
            import_module(module)
        except (Exception, SystemExit) as error:  # a module's top level may do anything
            raise Undecodable(
                f"module {module!r} cannot be imported ({type(error).__name__}: {error}). "
                f"Install it where this process runs, or, if it has moved, leave a module of the old name "
                f"behind that imports {qualname} from the new place."
            ) from error
    found = _lookup(place, qualname)
    if isinstance(found, type):
        return found
    if module == _MAIN:
        raise Undecodable(
            f"{qualname} was defined in the script that ran as the main program, and this process runs "
            f"another one. Move {qualname} into a module that both import."
        )
    raise Undecodable(
        f"module {module!r} has no class {qualname}. "
        f"If it was renamed or moved, leave the old name behind as an alias of the new class."
    )


def _is_main(module: str, qualname: str) -> bool:
    """This module is the main program here, and not loaded once more with a class that the main program lacks."""
    if module != _imported_name(sys.modules[_MAIN]):
        return False
    return module not in sys.modules or isinstance(_lookup(_MAIN, qualname), type)


def _imported_name(main: ModuleType) -> str | None:
    """The name under which other processes import what is the main program here; None if they cannot."""
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m package.app
        return spec.name if spec.name != _MAIN else None
    file = getattr(main, "__file__", None)
    if file is None or not file.endswith(".py"):
        return None
    name = _name_of_file(file)
    namesake = sys.modules.get(name)
    return name if namesake is None or getattr(namesake, "__file__", None) == file else None


@cache
def _name_of_file(file: str) -> str:
    path = Path(file)
    parts = [path.stem]
    for folder in path.parents:
        if not (folder / "__init__.py").exists():
            break
        parts.append(folder.name)
    return ".".join(reversed(parts))


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
