"""What a class has from itself and from its bases: steps, conditions and policies, each in its order.

Base classes come first (in the order of ``reversed(__mro__)``, as dataclasses do it); what a subclass binds
under a name that it inherits takes the inherited one's place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stepwell.definition.body import ClassBody
from stepwell.definition.functions import broken_condition
from stepwell.definition.ordering import Place, arrange
from stepwell.definition.plan import Condition, StepSpec
from stepwell.definition.steps import Step, is_condition
from stepwell.errors import DefinitionError
from stepwell.policies import Handler, Policy

__all__ = ["Lineage"]

AnyStep = Step[Any, ..., Any]


@dataclass(frozen=True, slots=True)
class Lineage:
    """A class and the bodies that it is made of.

    Attributes:
        workflow: The class's name, for messages.
        bodies: The bodies of its bases and its own, the remotest first; mix-ins that are no workflows
            included.
    """

    workflow: str
    bodies: tuple[ClassBody, ...]

    def steps(self) -> dict[str, AnyStep]:
        """The steps by name, in the order of declaration.

        Raises:
            DefinitionError: Something that is no step overrides one.
        """
        steps: dict[str, AnyStep] = {}
        for body in self.bodies:
            own = {step.name: step for step in body.steps if isinstance(step, Step)}
            for name in steps:
                if name in body and name not in own:
                    raise DefinitionError(
                        self.workflow,
                        "this overrides an inherited step by something that is no step. Decorate it with "
                        "@step, or write removed_step(...) to take the step away",
                        step=name,
                    )
            steps |= own
        return steps

    def in_order(self, specs: Mapping[str, StepSpec]) -> tuple[StepSpec, ...]:
        """The steps in the order in which they run.

        An overriding step that says neither ``before`` nor ``after`` stays where the overridden one stands.

        Raises:
            DefinitionError: A step is placed by something that is no step of the class, or in a circle.
        """
        places = {name: Place(name) for name in specs}
        everyone = {id(step) for body in self.bodies for step in body.steps}
        for body in self.bodies:
            for step in body.steps:
                if isinstance(step, Step) and (place := self._place_of(step, everyone)) is not None:
                    places[step.name] = place
        return tuple(specs[name] for name in arrange(self.workflow, places.values()))

    def conditions(self) -> Iterator[Condition]:
        """The ``@cancel_if`` methods.

        A subclass's method of the same name is asked instead, decorated or not.

        Raises:
            DefinitionError: One of them cannot be asked.
        """
        found: dict[str, Any] = {}
        for body in self.bodies:
            for name, value in body.items():
                if name in found or is_condition(value):
                    found[name] = value
        for name, function in found.items():
            if problem := broken_condition(function):
                raise DefinitionError(self.workflow, f"this @cancel_if {problem}", step=name)
            yield Condition(name, function)

    def policies(self) -> Iterator[Policy]:
        """Each class's ``policies`` and then its ``@handles`` methods.

        Raises:
            DefinitionError: Something that is no handler overrides one.
        """
        for at, body in enumerate(self.bodies):
            yield from body.get("policies", ())
            for name, handler in body.handlers:
                later = [other[name] for other in self.bodies[at + 1 :] if name in other]
                if not later:
                    yield handler
                elif not isinstance(later[-1], Handler):
                    raise DefinitionError(
                        self.workflow, "this overrides a handler; decorate it with @handles", step=name
                    )

    def _place_of(self, step: AnyStep, everyone: set[int]) -> Place | None:
        for side in ("before", "after"):
            anchor = step.options.get(side)
            if isinstance(anchor, Step) and id(anchor) not in everyone:
                raise DefinitionError(
                    self.workflow, f"{side} names a step of another class, {anchor!r}", step=step.name
                )
            if isinstance(anchor, Step | str):
                name = anchor.name if isinstance(anchor, Step) else anchor
                return Place(step.name, "before" if side == "before" else "after", name)
            if anchor is not None:
                raise DefinitionError(
                    self.workflow,
                    f"{side} must be a step of this class or its name; got {anchor!r}",
                    step=step.name,
                )
        return None
