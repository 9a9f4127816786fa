"""What an author's class says, as plain values: the steps in their order, each with its options.

A plan is made once, when the class is created. It is all that a driver, a graph or a dashboard needs to know
about a class; nothing in it refers to a run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from stepwell.definition.waits import Child, Poll, Signal
from stepwell.policies import Policy

__all__ = ["Condition", "MethodCall", "Plan", "StepKind", "StepSpec"]


class StepKind(StrEnum):
    """What a name in the plan stands for."""

    STEP = "step"
    RESUMABLE = "resumable"
    """A step with a cursor: it can be interrupted, and goes on from there."""
    REMOVED = "removed"
    """A gravestone: the step is gone, runs parked on it go on with the next one."""


@dataclass(frozen=True, slots=True)
class MethodCall:
    """An option that was given as a method's name: called with the workflow, it calls that method.

    Attributes:
        name: The method.
    """

    name: str

    def __call__(self, workflow: Any) -> Any:
        return getattr(workflow, self.name)()


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step and everything its author said about it.

    Attributes:
        name: Unique in its plan.
        function: The plain function; called with the workflow as its first argument.
        kind: A step, a resumable one, or the gravestone of one.
        wait: How long after the previous step's completion it becomes due; None means at once.
        wait_until: The instant at which it becomes due, or what computes it from the workflow.
        poll: The condition that must hold before it runs; its ``condition`` is always something to call.
        awaits: The signal that must come before it runs.
        child: The run of another workflow that is started for it, and must be over before it runs.
        gate: Called with the workflow when the step is due and at each ``run.wake()``; a true answer lets it
            run.
        takes_payload: The function has a parameter for what ``awaits`` brings.
        skip_if: Called with the workflow before each attempt; a true answer skips the step.
        on_exception: The step's own policies, in the author's order.
        key_by: What tells repeated calls of this step apart in ``run()``.
        digest: The arguments of a call in ``run()`` are compared with those of the first pass.
        timeout: How long its body may run; None means as long as it likes.
        queue: The queue to run it in; None means the run's own.
        priority: 0 is the most urgent; None means the run's own.
        isolated: The step gets a claim of its own.
        is_async: The function is a coroutine function or an async generator function.
        is_generator: The function is a generator function, plain or async: resumable steps only.
        max_iterations: After so many moves of its cursor a resumable step is interrupted and goes on in
            another execution; None means never for that reason.
        max_runtime: The same after so much time.
        checkpoint_every: How many moves of its cursor a resumable step commits at once.
    """

    name: str
    function: Callable[..., Any]
    kind: StepKind = StepKind.STEP
    wait: timedelta | None = None
    wait_until: datetime | Callable[[Any], datetime] | None = None
    poll: Poll | None = None
    awaits: Signal | None = None
    child: Child | None = None
    gate: Callable[[Any], object] | None = None
    takes_payload: bool = False
    skip_if: Callable[[Any], object] | None = None
    on_exception: tuple[Policy, ...] = ()
    key_by: str | tuple[str, ...] | Callable[..., object] | None = None
    digest: bool = True
    timeout: timedelta | None = None
    queue: str | None = None
    priority: int | None = None
    isolated: bool = False
    is_async: bool = False
    is_generator: bool = False
    max_iterations: int | None = None
    max_runtime: timedelta | None = None
    checkpoint_every: int = 1

    @property
    def is_resumable(self) -> bool:
        """The step has a cursor."""
        return self.kind is StepKind.RESUMABLE

    @property
    def is_removed(self) -> bool:
        """The step is a gravestone."""
        return self.kind is StepKind.REMOVED


@dataclass(frozen=True, slots=True)
class Condition:
    """A ``@cancel_if`` method: looked at before each step; a true answer cancels the run.

    Attributes:
        name: The method's name.
        function: The plain function; called with the workflow.
    """

    name: str
    function: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Plan:
    """The road ahead of a workflow, as far as its class tells.

    Attributes:
        workflow: The workflow's stable name.
        steps: In the order in which they run; gravestones keep their place.
        cancel_conditions: Base classes' first.
        policies: The class's policies, base classes' first: later ones win.
        is_procedural: The class has ``run()``, which decides the order.
        is_async: That ``run()`` is a coroutine.
        hooks: The names of the hooks that the class overrides.
        fingerprint: SHA-256 hex of the names and options; the same in every process that has the same code.
    """

    workflow: str
    steps: tuple[StepSpec, ...] = ()
    cancel_conditions: tuple[Condition, ...] = ()
    policies: tuple[Policy, ...] = ()
    is_procedural: bool = False
    hooks: frozenset[str] = frozenset()
    fingerprint: str = ""
    is_async: bool = False
    _positions: dict[str, int] = field(init=False, repr=False, compare=False)
    _following: tuple[StepSpec | None, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_positions", {spec.name: at for at, spec in enumerate(self.steps)})
        # Asked at every step boundary of every run: made once.
        following = tuple(_living(self.steps[at + 1 :]) for at in range(len(self.steps)))
        object.__setattr__(self, "_following", following)
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", _fingerprint(self))

    @property
    def first(self) -> StepSpec | None:
        """The first step that is not a gravestone; None if there is none."""
        return _living(self.steps)

    @property
    def is_empty(self) -> bool:
        """There is nothing to run: neither a step nor ``run()``."""
        return not self.is_procedural and self.first is None

    def find(self, name: str) -> StepSpec | None:
        """The step of this name, a gravestone included; None if the class never had one."""
        at = self._positions.get(name)
        return None if at is None else self.steps[at]

    def after(self, name: str) -> StepSpec | None:
        """The step that comes after ``name``, gravestones passed over; None after the last one.

        Raises:
            LookupError: The plan has no step of this name. It never counts as the last one: a run that stands
                on an unknown step must not end as if it had done its work.
        """
        at = self._positions.get(name)
        if at is None:
            raise LookupError(f"{self.workflow} has no step {name!r}")
        return self._following[at]


def _living(steps: Iterable[StepSpec]) -> StepSpec | None:
    return next((spec for spec in steps if spec.kind is not StepKind.REMOVED), None)


def _fingerprint(plan: Plan) -> str:
    facts = {
        "workflow": plan.workflow,
        "procedural": plan.is_procedural,
        "steps": [_facts_of(spec) for spec in plan.steps],
        "cancel_if": [condition.name for condition in plan.cancel_conditions],
        "policies": [str(policy) for policy in plan.policies],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _facts_of(spec: StepSpec) -> dict[str, object]:
    return {
        "name": spec.name,
        "kind": spec.kind.value,
        "wait": _text(spec.wait),
        "wait_until": _text(spec.wait_until),
        "poll": _text(spec.poll),
        "awaits": _text(spec.awaits or spec.child),
        "gate": _text(spec.gate),
        "skip_if": _text(spec.skip_if),
        "on_exception": [str(policy) for policy in spec.on_exception],
        "key_by": _text(spec.key_by),
        "digest": spec.digest,
        "timeout": _text(spec.timeout),
        "queue": spec.queue,
        "priority": spec.priority,
        "isolated": spec.isolated,
        "max_iterations": spec.max_iterations,
        "max_runtime": _text(spec.max_runtime),
        "checkpoint_every": spec.checkpoint_every,
    }


def _text(option: object) -> str | None:
    """An option's text, the same in every process: never an address, so functions go by their names."""
    match option:
        case None:
            return None
        case MethodCall(name):
            return f"method {name}"
        case timedelta():
            return f"{option // timedelta(microseconds=1)}us"
        case datetime():
            return option.isoformat()
        case Signal(name, timeout, default):
            return f"signal {name!r}, {_text(timeout)}, {_constant(default)}"
        case Poll(condition, every, timeout, default):
            return f"poll {_text(condition)}, {_text(every)}, {_text(timeout)}, {_constant(default)}"
        case Child(workflow, arguments):
            name = workflow if isinstance(workflow, str) else _name_of(workflow)
            return (
                f"child {name}, {repr(arguments) if isinstance(arguments, str) else type(arguments).__name__}"
            )
        case str() | tuple():
            return repr(option)
        case _:
            return f"function {getattr(option, '__qualname__', type(option).__qualname__)}"


def _name_of(target: Any) -> str:
    """The stable name of a class, or of the one that options were given to."""
    name: str = getattr(target, "workflow", target).workflow_name
    return name


def _constant(value: object) -> str:
    """A default's text; of values whose own text might hold an address, the class."""
    plain = value is None or isinstance(value, bool | int | float | str | bytes)
    return repr(value) if plain else type(value).__qualname__
