"""The namespace in which a workflow's class body runs.

It remembers what an ordinary one forgets: every step that was ever bound, in order, also when its name is
bound again, as happens in a loop. Neither ``__set_name__`` nor ``__init_subclass__`` can see those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepwell.errors import DefinitionError
from stepwell.policies import Handler

__all__ = ["ClassBody", "Declared"]


class Declared:
    """What a class body remembers: the base of ``Step``."""

    name: str

    def bound_to(self, attribute: str) -> None:
        """Tell it that it is bound to an attribute of a class body."""
        raise NotImplementedError


class ClassBody(dict[str, Any]):
    """A class body's names, with the steps and handlers in the order in which they were bound.

    Attributes:
        steps: Each step once, at its first binding.
        handlers: Each ``@handles`` method once, with the name that it was bound to.
        variables: The names of plain values: constants, loop variables, settings. Deleted ones stay known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Declared] = []
        self.handlers: list[tuple[str, Handler]] = []
        self.variables: set[str] = set()
        self._bindings: dict[str, list[Declared]] = {}

    @classmethod
    def of(cls, namespace: Mapping[str, Any]) -> ClassBody:
        """A class body with these names: for classes that are made by a call, which bring a plain mapping."""
        body = cls()
        for name, value in namespace.items():
            body[name] = value
        return body

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Declared):
            value.bound_to(name)
            self.remember(value)
            self._bindings.setdefault(name, []).append(value)
        elif isinstance(value, Handler):
            if all(known is not value for _, known in self.handlers):
                self.handlers.append((name, value))
        elif not _is_behaviour(value) and not name.startswith("__"):
            self.variables.add(name)
        super().__setitem__(name, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """As a dict does it, seen like any other binding."""
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def remember(self, declared: Declared) -> None:
        """Add a step, unless it is there already."""
        if all(known is not declared for known in self.steps):
            self.steps.append(declared)

    def settle(self, workflow: str) -> None:
        """Make each step an attribute of its own name, once the body has run.

        An attribute that held several steps in turn, as in a loop, is taken away: it would be the last of
        them.

        Raises:
            DefinitionError: A step was overwritten, or its name belongs to something else.
        """
        for attribute, bound in self._bindings.items():
            if len(bound) > 1 and self.get(attribute) is bound[-1] and bound[-1].name != attribute:
                del self[attribute]
        self._refuse_twins(workflow)
        for declared in self.steps:
            if not isinstance(declared.name, str):
                continue  # The plan refuses it with the other bad names; here it would be a broken attribute.
            holder = self.setdefault(declared.name, declared)
            if holder is not declared:
                raise DefinitionError(
                    workflow,
                    f"this step's name is also bound to {_kind_of(holder)} in the class body, which "
                    "hides the step. Rename one of them",
                    step=declared.name,
                )

    def _refuse_twins(self, workflow: str) -> None:
        names: set[str] = set()
        for declared in self.steps:
            if declared.name in names:
                raise DefinitionError(
                    workflow,
                    "two steps have this name; give one of them another, @step(name=...)",
                    step=declared.name,
                )
            names.add(declared.name)


def _is_behaviour(value: object) -> bool:
    return callable(value) or hasattr(value, "__get__")


def _kind_of(value: object) -> str:
    if isinstance(value, Declared):
        return f"another step, {value.name!r}"
    return "an ordinary method" if callable(value) else repr(value)
