"""From a class and its body to its plan: everything that can be judged when the class is created.

The checks come in the order in which an author would want to hear of them: hidden names, settings, ``run()``,
steps, their order, conditions, policies.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from stepwell.definition.body import ClassBody
from stepwell.definition.functions import is_async, parameters_of
from stepwell.definition.heroes import declares_hero
from stepwell.definition.hooks import overridden_hooks
from stepwell.definition.lineage import Lineage
from stepwell.definition.plan import Plan
from stepwell.definition.reading import spec_of
from stepwell.definition.reserved import refuse_hiding, reserved_names
from stepwell.definition.settings import HERO, check_settings, setting_of
from stepwell.errors import DefinitionError

__all__ = ["BODY", "assemble"]

BODY: Final = "__stepwell_body__"
"""The attribute under which a class keeps the names that its author wrote."""


def assemble(root: type, cls: Any) -> Plan:
    """The plan of a new workflow class.

    Args:
        root: ``Workflow`` itself.
        cls: The class, complete but for its plan.

    Raises:
        DefinitionError: The class breaks a rule.
    """
    name: str = cls.__name__
    body = _body_of(cls)
    _refuse_hiding(root, cls)
    check_settings(cls, name, {each: body[each] for each in sorted(body.variables) if each in body})
    parameters = _check_run(name, cls)
    for setting in ("unique_by", "identified_by"):
        _check_identity(setting, root, cls, parameters)
    lineage = Lineage(name, tuple(map(_body_of, _lineage(root, cls))))
    own = {id(step) for step in body.steps}
    specs = {
        each: spec_of(cls, name, step, body.variables if id(step) in own else ())
        for each, step in lineage.steps().items()
    }
    return Plan(
        workflow=cls.workflow_name,
        steps=tuple(specs.values()) if parameters is not None else lineage.in_order(specs),
        cancel_conditions=tuple(lineage.conditions()),
        policies=tuple(lineage.policies()),
        is_procedural=parameters is not None,
        is_async=parameters is not None and cls._is_async,
        hooks=overridden_hooks(root, cls),
    )


def _lineage(root: type, cls: type) -> list[type]:
    return [each for each in reversed(cls.__mro__) if each is not object and each not in root.__mro__]


def _body_of(cls: type) -> ClassBody:
    body = cls.__dict__.get(BODY)
    if isinstance(body, ClassBody):
        return body
    mixin = ClassBody.of(vars(cls))
    mixin.settle(cls.__name__)
    return mixin


def _refuse_hiding(root: type, cls: type) -> None:
    reserved = reserved_names(_body_of(root))
    refuse_hiding(cls.__name__, reserved, "", _body_of(cls))
    for each in cls.__mro__[: cls.__mro__.index(root)]:
        if not isinstance(each, type(root)):
            refuse_hiding(cls.__name__, reserved, f" (from {each.__qualname__})", vars(each))


def _check_run(workflow: str, cls: Any) -> dict[str, inspect.Parameter] | None:
    """The parameters of ``run()`` after ``self``; None for a class without it."""
    run = inspect.getattr_static(cls, "run", None)
    if run is None:
        return None
    if not inspect.isfunction(run):
        raise DefinitionError(workflow, f"run must be an ordinary method; got {run!r}")
    if inspect.isgeneratorfunction(run) or inspect.isasyncgenfunction(run):
        raise DefinitionError(workflow, "run() must not be a generator: call the steps, do not yield them")
    if is_async(run) and not cls._is_async:
        raise DefinitionError(
            workflow,
            f"run() is async, and a Workflow's is not: write class {workflow}(AsyncWorkflow), or def run(). Steps may "
            "be async in both",
        )
    if cls._is_async and not is_async(run):
        raise DefinitionError(
            workflow,
            f"run() of an AsyncWorkflow is awaited: write async def run(), or class {workflow}(Workflow). Steps may be "
            "plain in both",
        )
    parameters = list((parameters_of(run) or {}).values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise DefinitionError(workflow, "run() must take self as its first parameter")
    for each in parameters[1:]:
        if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
            raise DefinitionError(workflow, f"run() gets its arguments by name; {each} has none")
        if each.name == HERO:
            raise DefinitionError(
                workflow, f"no parameter of run() may be called {HERO!r}: the hero is self.hero"
            )
    return {each.name: each for each in parameters[1:]}


def _check_identity(
    setting: str, root: type, cls: type, parameters: dict[str, inspect.Parameter] | None
) -> None:
    """The names in ``unique_by`` and ``identified_by`` exist, as far as the class tells which arguments there are."""
    names = _named_by(setting_of(cls, setting))
    if HERO in names and not declares_hero(root, cls):
        raise DefinitionError(
            cls.__name__,
            f"{setting} names {HERO!r}, but the class has none: write class ...(Workflow[HeroType])",
        )
    if parameters is None or any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    for name in names:
        if name != HERO and name not in parameters:
            raise DefinitionError(
                cls.__name__,
                f"{setting} names {name!r}, which is no parameter of run(). They are "
                f"{', '.join(parameters) or 'none'}",
            )


def _named_by(unique_by: str | tuple[str, ...] | Callable[..., object] | object) -> tuple[str, ...]:
    if isinstance(unique_by, str):
        return (unique_by,)
    if isinstance(unique_by, tuple):
        return unique_by
    if callable(unique_by):
        parameters = (parameters_of(unique_by) or {}).values()
        return tuple(
            each.name
            for each in parameters
            if each.default is each.empty and each.kind is not each.VAR_KEYWORD
        )
    return ()
