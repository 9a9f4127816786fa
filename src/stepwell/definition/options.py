"""The options of ``@step``: what there is, what each must be, and the step that comes out of them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypedDict

from stepwell.definition import checks
from stepwell.definition.functions import (
    broken_condition,
    broken_kind,
    is_async,
    parameters_of,
    required_of,
    stray_global,
)
from stepwell.definition.plan import MethodCall, StepKind, StepSpec
from stepwell.errors import DefinitionError
from stepwell.policies import Handler, Policy

if TYPE_CHECKING:
    from stepwell.definition.steps import Step

__all__ = ["PLACE_AND_TIME", "StepOptions", "broken_policies", "spec_of"]


class StepOptions(TypedDict, total=False):
    """The keywords of ``@step``; what they mean is said there."""

    name: str
    wait: timedelta | None
    wait_until: datetime | str | Callable[[Any], datetime] | None
    skip_if: bool | str | Callable[[Any], object] | None
    on_exception: Policy | Callable[..., Any] | Sequence[Policy | Callable[..., Any]] | None
    key_by: str | tuple[str, ...] | Callable[..., object] | None
    timeout: timedelta | None
    queue: str | None
    priority: int | None
    isolated: bool
    before: str | Step[Any, ..., Any] | None
    after: str | Step[Any, ..., Any] | None


_KNOWN: Final = tuple(StepOptions.__annotations__)
PLACE_AND_TIME: Final = ("before", "after", "wait", "wait_until")
"""The options that only a class without ``run()`` has a use for: with it, ``run()`` decides place and
time."""

_VALUES: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "wait": lambda value: checks.broken_duration(value, zero=True),
    "timeout": lambda value: checks.broken_duration(value, zero=False),
    "queue": checks.broken_name,
    "priority": lambda value: checks.broken_whole(value, least=0),
    "isolated": checks.broken_flag,
}


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


def broken_policies(policies: object) -> str | None:
    """Why this is no list of policies; None if it is one."""
    if not isinstance(policies, list | tuple):
        return f"must be a list of policies, such as [Retry(ConnectionError), Pause()]; got {policies!r}"
    for policy in policies:
        if not isinstance(policy, Policy):
            return (
                f"must hold policies: Retry, Skip, Pause, Cancel, Fail or a @handles function; got {policy!r}"
            )
    claimed: set[str] = set()
    for policy in policies:
        # A handler may pass an error on, so others for the same error can stand beside it.
        names = set() if isinstance(policy, Handler) else {policy.label}
        if names & claimed:
            return f"has two policies for {', '.join(names).replace('*', 'any error')}: one is never reached"
        claimed |= names
    return None


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
        self._check_names_of_options()
        self._check_function()
        for option, broken in _VALUES.items():
            if option in self._options and (problem := broken(self._options[option])):
                self._fail(f"{option} {problem}")
        return StepSpec(
            name=self._step.name,
            function=self._step.function,
            wait=self._options.get("wait"),
            wait_until=self._wait_until(),
            skip_if=self._skip_if(),
            on_exception=self._on_exception(),
            key_by=self._key_by(),
            timeout=self._options.get("timeout"),
            queue=self._options.get("queue"),
            priority=self._options.get("priority"),
            isolated=self._options.get("isolated", False),
            is_async=is_async(self._step.function),
        )

    def _fail(self, rule: str) -> NoReturn:
        raise DefinitionError(self._workflow, rule, step=self._step.name)

    def _check_name(self) -> None:
        name = self._step.name
        if problem := checks.broken_name(name):
            self._fail(f"a step's name {problem}")
        if not name.isidentifier() or name.startswith("__"):
            self._fail(
                f"a step's name is an attribute of its class: letters, digits and _ only; got {name!r}"
            )

    def _check_names_of_options(self) -> None:
        for option in self._step.options:
            if option not in _KNOWN:
                near = difflib.get_close_matches(option, _KNOWN, n=1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                self._fail(f"there is no option {option!r}{hint}. The options are {', '.join(_KNOWN)}")
        for one, other in (("before", "after"), ("wait", "wait_until")):
            if one in self._options and other in self._options:
                self._fail(f"{one} and {other} exclude each other; give one of them")
        if self._is_procedural:
            for option in PLACE_AND_TIME:
                if option in self._options:
                    self._fail(
                        f"{option} is for steps of a class without run(). Here run() decides when and in "
                        "which order steps are called: say it there"
                    )

    def _check_function(self) -> None:
        function = self._step.function
        if problem := broken_kind(function):
            self._fail(f"this step {problem}")
        required = required_of(function)
        if required and not self._is_procedural:
            self._fail(
                f"nobody gives this step {', '.join(required)}: steps that run by themselves take no "
                "parameters without defaults. Read self.args or self.context, or write run() and call the "
                "step there"
            )
        self._check_globals(function)

    def _check_globals(self, function: Callable[..., Any], of: str = "this step") -> None:
        name = stray_global(function, self._variables)
        if name is not None:
            self._fail(
                f"{of} reads the global {name!r}, which exists in the class body only, where a function "
                f"cannot see it. Bind it as a default: def {self._step.name}(self, {name}={name})"
            )

    @property
    def _is_procedural(self) -> bool:
        return hasattr(self._owner, "run")

    def _skip_if(self) -> Callable[[Any], object] | None:
        value = self._options.get("skip_if", False)
        if value is False:
            return None
        if value is True:
            return _always
        return self._asked("skip_if", value, "True, False, a method's name or a function of the workflow")

    def _wait_until(self) -> datetime | Callable[[Any], datetime] | None:
        value = self._options.get("wait_until")
        if value is None:
            return None
        if isinstance(value, datetime):
            if problem := checks.broken_instant(value):
                self._fail(f"wait_until {problem}")
            return value
        return self._asked(
            "wait_until", value, "an aware datetime, a method's name or a function of the workflow"
        )

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
