"""Names that belong to every workflow, and that no class may take for something else.

They are computed from ``Workflow`` itself, so that a verb that is added there is protected from that day on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stepwell.definition.body import ClassBody
from stepwell.definition.findable import Findable
from stepwell.definition.hooks import HOOKS
from stepwell.definition.settings import SETTINGS
from stepwell.definition.steps import Step, is_condition
from stepwell.definition.verbs import Verbs
from stepwell.errors import DefinitionError
from stepwell.policies import Handler

__all__ = ["refuse_hiding", "reserved_names"]

_CONSTRUCTORS: Final = ("__init__", "__new__")


def reserved_names(root_body: ClassBody) -> frozenset[str]:
    """The verbs and attributes of ``Workflow``, its private ones too; not its settings."""
    names = (*root_body, *vars(Verbs), *vars(Findable))
    return frozenset(name for name in names if not _is_dunder(name) and name not in SETTINGS)


def refuse_hiding(workflow: str, reserved: frozenset[str], origin: str, names: Mapping[str, Any]) -> None:
    """Refuse names in a class, or in a mix-in in front of ``Workflow``, that hide what every workflow has.

    Args:
        workflow: The class's name, for messages.
        reserved: The names that belong to every workflow.
        origin: Where the names come from, for messages; empty for the class's own body.
        names: The names with their values.

    Raises:
        DefinitionError: One of them hides something, or a decorator hides a step.
    """
    for name, value in names.items():
        step = name if isinstance(value, Step) else None
        if name in reserved or (name == "run" and isinstance(value, Step | Handler)):
            raise DefinitionError(
                workflow,
                f"{name!r}{origin} is a name that every workflow keeps for itself; this would hide it. "
                "Choose another name",
                step=step,
            )
        if name in SETTINGS and step is not None:
            raise DefinitionError(
                workflow, f"{name!r} is a setting of the class; name the step otherwise", step=step
            )
        if name in HOOKS and isinstance(value, Step | Handler):
            raise DefinitionError(
                workflow, f"{name!r} is a hook of every workflow; choose another name", step=name
            )
        if name in _CONSTRUCTORS:
            raise DefinitionError(
                workflow,
                f"{name}{origin} cannot be overridden: the engine makes an instance for each activation",
            )
        _refuse_covered(workflow, name, value)


def _refuse_covered(workflow: str, name: str, value: object) -> None:
    """A decorator above ``@step`` hides the step in a function, and it would silently be none."""
    if isinstance(value, Step):
        return
    for attribute in ("__func__", "fget", "__wrapped__"):
        inner = getattr(value, attribute, None)
        if isinstance(inner, Step | Handler):
            kind = "@step" if isinstance(inner, Step) else "@handles"
            raise DefinitionError(workflow, f"{kind} must stand above all other decorators", step=name)
        if is_condition(inner) and not is_condition(value):
            raise DefinitionError(workflow, "@cancel_if must stand above all other decorators", step=name)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
