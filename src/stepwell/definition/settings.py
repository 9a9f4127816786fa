"""The settings of a workflow's class: what each must be, and what people mistake for one."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

from stepwell.definition import checks
from stepwell.definition.functions import is_async, parameters_of
from stepwell.definition.options import broken_policies
from stepwell.definition.starting import CONFLICT_MODES
from stepwell.definition.unset import UNSET, Unset
from stepwell.errors import DefinitionError
from stepwell.policies import Policy

__all__ = ["HERO", "SETTINGS", "UniqueBy", "UniqueFor", "check_settings"]

HERO: Final = "hero"
"""The name by which ``unique_by`` calls the hero; no argument may have it."""

UniqueBy = str | tuple[str, ...] | Callable[..., object] | Unset | None
UniqueFor = Literal["run", "ever"]


def _broken_unique_by(value: object) -> str | None:
    if value is None or value is UNSET:
        return None
    if callable(value) and not isinstance(value, type):
        return _broken_unique_function(value)
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
        return f"must be an argument's name, a tuple of names, a function of them or None; got {value!r}"
    if len(set(names)) < len(names):
        return f"names an argument twice: {value!r}"
    return next(
        (f"must name arguments; {name!r} cannot be one" for name in names if not name.isidentifier()), None
    )


def _broken_unique_function(function: Callable[..., object]) -> str | None:
    if is_async(function):
        return "must be a plain function, not async"
    parameters = parameters_of(function) or {}
    if "self" in parameters:
        return (
            "is called with the start's arguments, before there is a run: it takes those by name, and no self"
        )
    loose = [
        each.name for each in parameters.values() if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL)
    ]
    return f"is called with arguments by name; {loose[0]!r} has none" if loose else None


SETTINGS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "workflow_name": checks.broken_name,
    "version": lambda value: checks.broken_whole(value, least=1),
    "queue": checks.broken_name,
    "priority": lambda value: checks.broken_whole(value, least=0),
    "policies": broken_policies,
    "unique_by": _broken_unique_by,
    "identified_by": _broken_unique_by,
    "unique_for": lambda value: checks.broken_choice(value, get_args(UniqueFor)),
    "on_conflict": lambda value: checks.broken_choice(value, CONFLICT_MODES),
    "hero_optional": checks.broken_flag,
    "max_recoveries": lambda value: None if value is None else checks.broken_whole(value, least=0),
    "deadline": lambda value: None if value is None else checks.broken_duration(value, zero=False),
    "deadline_includes_waits": checks.broken_flag,
}
"""Each setting of a class, with the function that tells what is wrong with a value."""

_MISTAKEN: Final[Mapping[str, str]] = {
    "on_exception": "policies = [...] holds for the whole class; on_exception= is an option of @step",
    "on_error": "policies = [...] holds for the whole class",
    "exception_policies": "write policies = [...]",
    "retry_policy": "write policies = [Retry(...)]",
    "retry_on": "write policies = [Retry(SomeError)]",
    "retries": "write policies = [Retry(attempts=...)]",
    "max_retries": "write policies = [Retry(attempts=...)]",
    "max_attempts": "write policies = [Retry(attempts=...)]",
    "hero_type": "write class ...(Workflow[HeroType])",
    "hero_class": "write class ...(Workflow[HeroType])",
    "unique_key": "write unique_by",
    "queue_name": "write queue",
    "run_timeout": "write deadline",
    "workflow_timeout": "write deadline",
}


def check_settings(cls: type, workflow: str, values: Mapping[str, object]) -> None:
    """Refuse settings with values that do not fit, and plain values that were meant to be settings.

    Args:
        cls: The class.
        workflow: Its name, for messages.
        values: The plain values in its body, by name.

    Raises:
        DefinitionError: A setting is wrong, or a name is mistaken for one.
    """
    for name, broken in SETTINGS.items():
        if problem := broken(setting_of(cls, name)):
            raise DefinitionError(workflow, f"{name} {problem}")
    if (setting_of(cls, "unique_for"), setting_of(cls, "on_conflict")) == ("ever", "replace"):
        raise DefinitionError(
            workflow,
            'on_conflict="replace" never comes about with unique_for="ever", which uses each identity once: '
            'write "skip", or leave it out',
        )
    for name, value in values.items():
        if name in SETTINGS or name.startswith("_"):
            continue
        hint = _MISTAKEN.get(name) or _near(cls, name, value)
        if hint:
            raise DefinitionError(
                workflow,
                f"{name} is no setting of a workflow: {hint}. For a value of your own take another name",
            )


def setting_of(cls: type, name: str) -> Any:
    """The setting's value; a function as it was written, not as a method."""
    value = inspect.getattr_static(cls, name, UNSET)
    return value.__func__ if isinstance(value, staticmethod) else value


def _near(cls: type, name: str, value: object) -> str | None:
    """A setting that is spelled almost like ``name`` and for which the value would do."""
    near = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.7)
    value = [value] if isinstance(value, Policy) else value
    if not near or SETTINGS[near[0]](value) is not None:
        return None
    says_nothing = value is None and setting_of(cls, near[0]) is None  # headline = None is no deadline
    return None if says_nothing else f"did you mean {near[0]}?"
