"""From the stored name of a workflow to its class.

There is no list to keep: the classes themselves are asked, so one that was defined anew, as in a notebook, is
found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from stepwell.definition.metaclass import WorkflowMeta
from stepwell.definition.workflow import Workflow
from stepwell.errors import DefinitionError, UnknownWorkflow

__all__ = ["find_workflow", "is_procedural", "known_workflows"]

_found: dict[str, tuple[int, type[Workflow[Any]]]] = {}
"""What was found, and how many classes there were then: asked for at each activation, and a walk otherwise."""


def find_workflow(name: str) -> type[Workflow[Any]]:
    """The class whose runs are stored under ``name``.

    A class that was defined again replaces the earlier one: the same name in the same module, or a class that
    was made inside a function.

    Raises:
        UnknownWorkflow: This process has not loaded such a class.
        DefinitionError: Two classes claim the name.
    """
    cached = _found.get(name)
    if cached is not None and cached[0] == WorkflowMeta.created and cached[1].workflow_name == name:
        return cached[1]
    created = WorkflowMeta.created
    claimants = [cls for cls in _all_workflows() if cls.workflow_name == name]
    if not claimants:
        raise UnknownWorkflow(
            f"no workflow {name!r} is loaded in this process. Import the module that defines it, or set "
            f"workflow_name = {name!r} in the class that now does its work."
        )
    latest = _latest(claimants)
    _found[name] = (created, latest)
    return latest


def is_procedural(name: str) -> bool:
    """The class of this name is known here and has ``run()``."""
    try:
        return find_workflow(name).plan.is_procedural
    except (UnknownWorkflow, DefinitionError):
        return False


def known_workflows() -> dict[str, type[Workflow[Any]]]:
    """The classes that can run, by the names under which their runs are stored.

    Raises:
        DefinitionError: Two classes claim one name.
    """
    claimants: dict[str, list[type[Workflow[Any]]]] = {}
    for cls in _all_workflows():
        claimants.setdefault(cls.workflow_name, []).append(cls)
    return {name: _latest(claimants[name]) for name in sorted(claimants)}


def _all_workflows() -> Iterable[type[Workflow[Any]]]:
    """Every class with something to run whose definition is sound."""
    pending = list(Workflow.__subclasses__())
    seen: set[type[Workflow[Any]]] = set()
    while pending:
        cls = pending.pop()
        if cls in seen:
            continue
        seen.add(cls)
        pending += cls.__subclasses__()
        # A class that failed a check lives on until it is collected; it never got a plan of its own.
        if "plan" in vars(cls) and (cls.plan.steps or cls.plan.is_procedural):
            yield cls


def _latest(claimants: list[type[Workflow[Any]]]) -> type[Workflow[Any]]:
    claimants = sorted(claimants, key=lambda cls: cls._stepwell_serial)
    latest = claimants[-1]
    for other in claimants[:-1]:
        if not _is_redefinition(other, latest):
            raise DefinitionError(
                latest.workflow_name,
                f"two workflows have this name: {_place(other)} and {_place(latest)}. "
                "Give one of them another workflow_name",
            )
    return latest


def _is_redefinition(earlier: type, later: type) -> bool:
    if "<locals>" in earlier.__qualname__ or "<locals>" in later.__qualname__:
        return True
    return earlier.__qualname__ == later.__qualname__ and _source(earlier) == _source(later)


def _source(cls: type) -> str:
    """The file that defines the class.

    A script is loaded twice when its own modules import it by its name.
    """
    module = sys.modules.get(cls.__module__)
    return getattr(module, "__file__", None) or cls.__module__


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
