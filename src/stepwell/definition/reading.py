"""From a step as its author wrote it to its :class:`StepSpec`, judged in the class that it stands in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from stepwell.definition import checks
from stepwell.definition.functions import (
    broken_condition,
    broken_kind,
    broken_laziness,
    broken_receiver,
    is_async,
    is_generator,
    parameters_of,
    required_of,
    stray_global,
)
from stepwell.definition.launching import target_of
from stepwell.definition.options import broken_combination, broken_policies, broken_value, unknown_option
from stepwell.definition.plan import MethodCall, StepKind, StepSpec
from stepwell.definition.waits import Child, Poll, Signal, broken_poll, broken_signal
from stepwell.errors import DefinitionError, WrongArguments
from stepwell.policies import Policy

if TYPE_CHECKING:
    from stepwell.definition.steps import Step

__all__ = ["spec_of"]

_QUESTION: Final = "a method's name or a function of the workflow"
_AS_GIVEN: Final = (
    "wait",
    "digest",
    "timeout",
    "queue",
    "priority",
    "isolated",
    "max_iterations",
    "max_runtime",
    "checkpoint_every",
)
"""The options that the plan has as the author gave them."""


def spec_of(owner: type, workflow: str, step: Step[Any, ..., Any], variables: Collection[str]) -> StepSpec:
    """The step as the plan of ``owner`` has it.

    Args:
        owner: The class, complete but for its plan.
        workflow: Its name, for messages.
        step: The step.
        variables: The names of plain values in the class body that the step stands in.

    Raises:
        DefinitionError: Something about the step breaks a rule.
    """
    return _Reading(owner, workflow, step, variables).spec()


class _Reading:
    """The options of one step while they are read."""

    def __init__(
        self, owner: type, workflow: str, step: Step[Any, ..., Any], variables: Collection[str]
    ) -> None:
        self._owner = owner
        self._workflow = workflow
        self._step = step
        self._variables = variables
        self._options = {name: value for name, value in step.options.items() if value is not None}

    def spec(self) -> StepSpec:
        self._check_name()
        if self._step.kind is StepKind.REMOVED:
            return StepSpec(self._step.name, self._step.function, StepKind.REMOVED)
        self._refuse_if(unknown_option(self._step.options, is_resumable=self._is_resumable))
        self._refuse_if(broken_combination(self._options, is_procedural=self._is_procedural))
        self._refuse_if(broken_value(self._options))
        function = self._step.function
        awaits, child = self._awaits(), self._child()
        takes_payload = self._check_function(function, is_given=awaits is not None or child is not None)
        return StepSpec(
            name=self._step.name,
            function=function,
            kind=self._step.kind,
            wait_until=self._wait_until(),
            poll=self._poll(),
            awaits=awaits,
            child=child,
            gate=self._gate(),
            takes_payload=takes_payload,
            skip_if=self._skip_if(),
            on_exception=self._on_exception(),
            key_by=self._key_by(),
            is_async=is_async(function),
            is_generator=self._is_resumable and is_generator(function),
            **{option: self._options[option] for option in _AS_GIVEN if option in self._options},
        )

    def _fail(self, rule: str) -> NoReturn:
        raise DefinitionError(self._workflow, rule, step=self._step.name)

    def _refuse_if(self, problem: str | None) -> None:
        if problem is not None:
            self._fail(problem)

    def _check_name(self) -> None:
        name = self._step.name
        if problem := checks.broken_name(name):
            self._fail(f"a step's name {problem}")
        if not name.isidentifier() or name.startswith("__"):
            self._fail(
                f"a step's name is an attribute of its class: letters, digits and _ only; got {name!r}"
            )

    def _check_function(self, function: Callable[..., Any], *, is_given: bool) -> bool:
        """Refuse a function that could not be run as this step; answer whether it takes a payload."""
        if problem := broken_kind(function):
            self._fail(f"this step {problem}")
        if not self._is_resumable and (problem := broken_laziness(function)):
            self._fail(f"this step {problem}. With @resumable_step each yield is a checkpoint")
        required = [] if self._is_procedural else required_of(function)
        if is_given:
            if problem := broken_receiver(function):
                self._fail(f"this step {problem}")
        elif required:
            self._fail(
                f"nobody gives this step {', '.join(required)}: steps that run by themselves take no "
                "parameters without defaults. Read self.args or self.context, or write run() and call the "
                "step there"
            )
        self._check_globals(function)
        return bool(required)

    def _check_globals(self, function: Callable[..., Any], of: str = "this step") -> None:
        name = stray_global(function, self._variables)
        if name is not None:
            self._fail(
                f"{of} reads the global {name!r}, which exists in the class body only, where a function "
                f"cannot see it. Bind it as a default: def {self._step.name}(self, {name}={name})"
            )

    @property
    def _is_resumable(self) -> bool:
        return self._step.kind is StepKind.RESUMABLE

    @property
    def _is_procedural(self) -> bool:
        return hasattr(self._owner, "run")

    def _skip_if(self) -> Callable[[Any], object] | None:
        value = self._options.get("skip_if", False)
        if value is False:
            return None
        if value is True:
            return _always
        return self._asked("skip_if", value, f"True, False, {_QUESTION}")

    def _wait_until(self) -> datetime | Callable[[Any], datetime] | None:
        value = self._options.get("wait_until")
        if value is None or isinstance(value, Poll):
            return None
        if isinstance(value, datetime):
            if problem := checks.broken_instant(value):
                self._fail(f"wait_until {problem}")
            return value
        return self._asked("wait_until", value, f"an aware datetime, a Poll, {_QUESTION}")

    def _poll(self) -> Poll | None:
        poll = self._options.get("wait_until")
        if not isinstance(poll, Poll):
            return None
        if problem := broken_poll(poll):
            self._fail(f"wait_until=Poll: {problem}")
        condition = self._asked("wait_until=Poll: condition", poll.condition, _QUESTION)
        return replace(poll, condition=condition)

    def _awaits(self) -> Signal | None:
        value = self._options.get("awaits")
        if value is None or isinstance(value, Child):
            return None
        signal = Signal(value) if isinstance(value, str) else value
        if not isinstance(signal, Signal):
            self._fail(
                f"awaits must be a signal's name, Signal(name, timeout=...) or Child(...); got {value!r}"
            )
        if problem := broken_signal(signal):
            self._fail(f"awaits: {problem}")
        return signal

    def _child(self) -> Child | None:
        child = self._options.get("awaits")
        if not isinstance(child, Child):
            return None
        if not isinstance(child.workflow, str):
            try:
                target_of(child.workflow, "awaits=Child()")
            except WrongArguments as error:
                self._fail(str(error))
        if child.arguments is None or isinstance(child.arguments, Mapping):
            return child
        arguments = self._asked("awaits=Child: arguments", child.arguments, f"a mapping, {_QUESTION}")
        return replace(child, arguments=arguments)

    def _gate(self) -> Callable[[Any], object] | None:
        value = self._options.get("gate")
        return None if value is None else self._asked("gate", value, _QUESTION)

    def _asked(self, option: str, value: object, kinds: str) -> Callable[[Any], Any]:
        """A method's name or a function, as something to be called with the workflow."""
        if isinstance(value, str):
            return self._method(option, value)
        if not callable(value):
            self._fail(f"{option} must be {kinds}; got {value!r}")
        if problem := broken_condition(value):
            self._fail(f"{option} {problem}")
        self._check_globals(value, of=option)
        return value

    def _method(self, option: str, name: str) -> MethodCall:
        method = inspect.getattr_static(self._owner, name, None)
        if method is None:
            self._fail(f"{option}={name!r} names no method of the class")
        if not inspect.isfunction(method):
            self._fail(f"{option}={name!r} must name an ordinary method; got {method!r}")
        if problem := broken_condition(method):
            self._fail(f"{option}={name!r} {problem}")
        return MethodCall(name)

    def _on_exception(self) -> tuple[Policy, ...]:
        value = self._options.get("on_exception", ())
        policies = (value,) if isinstance(value, Policy) else value
        if not isinstance(policies, list | tuple):
            self._fail(
                f"on_exception must be a policy, such as Retry(), or a list of policies; got {value!r}"
            )
        if problem := broken_policies(policies):
            self._fail(f"on_exception {problem}")
        return tuple(policies)

    def _key_by(self) -> str | tuple[str, ...] | Callable[..., object] | None:
        value = self._options.get("key_by")
        if value is None or callable(value):
            return value
        names = (value,) if isinstance(value, str) else value
        if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
            self._fail(
                "key_by must be an argument's name, a tuple of names or a function of the arguments; "
                f"got {value!r}"
            )
        parameters = parameters_of(self._step.function) or {}
        known = list(parameters)[1:]
        if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            known = [*known, *names]
        for name in names:
            if name not in known:
                self._fail(f"key_by names {name!r}, which is no parameter of this step")
        result: str | tuple[str, ...] = value
        return result


def _always(workflow: Any) -> bool:
    return True
