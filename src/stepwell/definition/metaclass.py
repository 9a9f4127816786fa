"""The metaclass of ``Workflow``: it watches a class body run and turns the class into a plan."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import MutableMapping
from typing import Any, ClassVar

from stepwell.definition.assembly import BODY, assemble
from stepwell.definition.body import ClassBody
from stepwell.definition.heroes import HeroType, declares_hero, resolve_hero
from stepwell.definition.plan import Plan

__all__ = ["WorkflowMeta"]


class WorkflowMeta(ABCMeta):
    """Turns a class body into a plan, and tells an author at once what is wrong with it.

    It derives from ``ABCMeta``, so that a workflow may also be abstract, generic, or derive from an ``ABC``.
    Classes with other metaclasses, such as enums and pydantic models, cannot be mixed in.
    """

    plan: Plan
    workflow_name: str
    _stepwell_serial: int
    """Counts the classes of this process in the order of their creation."""
    created: ClassVar[int] = 0
    """How many classes were created so far."""

    @classmethod
    def __prepare__(
        mcs,  # noqa: N804 - a class method of a metaclass
        name: str,
        bases: tuple[type, ...],
        /,
        **kwargs: Any,
    ) -> MutableMapping[str, object]:
        return ClassBody()

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **kwargs: Any
    ) -> WorkflowMeta:
        body = namespace if isinstance(namespace, ClassBody) else ClassBody.of(namespace)
        body.settle(name)
        cls = super().__new__(mcs, name, bases, dict(body), **kwargs)
        setattr(cls, BODY, body)
        cls.workflow_name = body.get("workflow_name", name)
        # The plan comes last: a class without one of its own has failed a check and counts nowhere.
        cls.plan = Plan(name) if cls._root is cls else assemble(cls._root, cls)
        cls._stepwell_serial = WorkflowMeta.created = WorkflowMeta.created + 1
        return cls

    @property
    def hero_type(cls) -> HeroType | None:
        """The hero's class, or a union of classes; None for workflows without a hero.

        Raises:
            DefinitionError: It was declared by a name that does not exist.
        """
        return resolve_hero(cls._root, cls)[0]

    @property
    def has_hero(cls) -> bool:
        """The class says that its runs are about a record."""
        return declares_hero(cls._root, cls)

    @property
    def is_hero_optional(cls) -> bool:
        """A run may be without its hero: ``hero_optional = True``, or ``Workflow[User | None]``."""
        optional: bool = getattr(cls, "hero_optional", False)
        return optional or resolve_hero(cls._root, cls)[1]

    @property
    def _root(cls) -> WorkflowMeta:
        """``Workflow`` itself."""
        return [base for base in cls.__mro__ if isinstance(base, WorkflowMeta)][-1]
