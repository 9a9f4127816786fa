"""Steps as an author writes them: ``@step``, ``removed_step`` and ``@cancel_if``.

Decorating remembers; nothing is judged here. The class that a step ends up in checks it, because only then
can a message name class, step and rule.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from stepwell.definition.body import ClassBody, Declared
from stepwell.definition.functions import is_generator
from stepwell.definition.overrides import CallOptions, checked
from stepwell.definition.plan import StepKind, StepSpec
from stepwell.errors import DefinitionError, RunError

if TYPE_CHECKING:
    from typing import Unpack

    from stepwell.definition.async_workflow import AsyncWorkflow
    from stepwell.definition.options import StepOptions
    from stepwell.definition.runtime import Runtime

__all__ = [
    "BoundStep",
    "Step",
    "StepDecorator",
    "cancel_if",
    "decorated",
    "is_condition",
    "removed_step",
    "step",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
W = TypeVar("W")
F = TypeVar("F", bound=Callable[[Any], object])

_CONDITION: Final = "__stepwell_cancel_if__"


class Step(Declared, Generic[W, P, R_co]):
    """A step of a workflow class; accessed on an instance it is a :class:`BoundStep`.

    Attributes:
        name: The step's name: the one given, else the attribute that it was first bound to.
        function: The plain function.
        options: What the author gave to ``@step(...)``.
        kind: A step, a resumable one, or the gravestone of one.
    """

    def __init__(
        self,
        function: Callable[Concatenate[W, P], Any],
        options: Mapping[str, Any],
        kind: StepKind = StepKind.STEP,
    ) -> None:
        self.function = function
        self.options = options
        self.kind = kind
        self.name: str = options.get("name", "")
        if inspect.isroutine(function):
            functools.update_wrapper(self, function, updated=())
            self.__isabstractmethod__ = getattr(function, "__isabstractmethod__", False)

    def __set_name__(self, owner: type, name: str) -> None:
        self.bound_to(name)

    def bound_to(self, attribute: str) -> None:
        """Tell the step that it is bound to an attribute; the first one names a step without a name."""
        if self.name == "":
            self.name = attribute

    @overload
    def __get__(self, workflow: None, owner: type | None = None) -> Step[W, P, R_co]: ...
    @overload
    def __get__(
        self, workflow: AsyncWorkflow[Any], owner: type | None = None
    ) -> BoundStep[P, Coroutine[Any, Any, R_co]]: ...
    @overload
    def __get__(self, workflow: W, owner: type | None = None) -> BoundStep[P, R_co]: ...
    def __get__(self, workflow: Any, owner: type | None = None) -> Any:
        return self if workflow is None else BoundStep(self, workflow)

    def __call__(self, workflow: W, *args: P.args, **kwargs: P.kwargs) -> R_co:
        bound: BoundStep[P, R_co] = BoundStep(self, workflow)
        return bound(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<step {self.name or self.function!r}>"


class BoundStep(Generic[P, R_co]):
    """A step of one workflow instance.

    While the instance is being run, calling it goes through the journal. Otherwise it is an ordinary method:
    a unit test calls it and gets what the body returns. An ``async def`` step called plainly is run to its
    end, and so is a generator; where an event loop already runs in this thread, the coroutine is returned.

    A step of an ``AsyncWorkflow`` is awaited, in ``run()`` and in a test.
    """

    __slots__ = ("_options", "_step", "_workflow")

    def __init__(
        self, step: Step[Any, P, R_co], workflow: Any, options: Mapping[str, Any] | None = None
    ) -> None:
        self._step = step
        self._workflow = workflow
        self._options = options

    def with_options(self, **options: Unpack[CallOptions]) -> BoundStep[P, R_co]:
        """The step with other options for its next call in ``run()``; an ordinary call has no use for them.

        Args:
            on_exception: A policy or a list of them, instead of the step's own.
            timeout: A ``timedelta``: how long the body may run.
            queue: The queue to run it in.
            priority: 0 is the most urgent.
            isolated: Give the call a claim of its own.

        Raises:
            WrongArguments: There is no such option, or a value does not fit.

        Example:
            >>> from stepwell import Retry, Workflow, step
            >>> class Shipping(Workflow):
            ...     def run(self, item: str) -> str:
            ...         return self.ship.with_options(on_exception=Retry(attempts=9))(item)
            ...
            ...     @step
            ...     def ship(self, item: str) -> str:
            ...         return f"shipped {item}"
        """
        known = self._options or {}
        return BoundStep(self._step, self._workflow, {**known, **checked(self._step.name, options)})

    @property
    def name(self) -> str:
        """The step's name."""
        return self._step.name

    @property
    def spec(self) -> StepSpec | None:
        """What the plan says about the step, with the options of this call; None for a part of an override."""
        spec = self._current_spec()
        return replace(spec, **self._options) if spec is not None and self._options else spec

    @property
    def __wrapped__(self) -> Callable[P, Any]:
        return functools.partial(self._step.function, self._workflow)

    @property
    def __name__(self) -> str:
        return self._step.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        runtime: Runtime | None = getattr(self._workflow, "_runtime", None)
        spec = self._current_spec() if runtime is not None else None
        if runtime is None or spec is None:
            if runtime is not None:
                self._refuse_a_part(runtime)
            return self._call_plainly(*args, **kwargs)
        if self._options:
            spec = replace(spec, **self._options)
        answer: R_co = runtime.call_step(spec, self._workflow, args, kwargs)
        return answer

    def _current_spec(self) -> StepSpec | None:
        """The step as the workflow's plan has it; None if the plan has another under this name.

        That is so when ``super().ship()`` reaches the step that a subclass overrides: a part of the
        override's body, and no step of its own.
        """
        spec: StepSpec | None = type(self._workflow).plan.find(self._step.name)
        return spec if spec is not None and spec.function is self._step.function else None

    def _call_plainly(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        answer: Any
        is_of_async = getattr(self._workflow, "_is_async", False)
        if is_of_async and (self._workflow._runtime is None or _loop_is_running()):
            answer = self._awaited(*args, **kwargs)
        else:
            answer = self._body(*args, **kwargs)
            if inspect.iscoroutine(answer) and not _loop_is_running():
                answer = asyncio.run(answer)
        result: R_co = answer
        return result

    def _body(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        answer = self._step.function(self._workflow, *args, **kwargs)
        return _exhausted(answer) if self._step.kind is StepKind.RESUMABLE else answer

    async def _awaited(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        answer = self._body(*args, **kwargs)
        return await answer if inspect.iscoroutine(answer) else answer

    def _refuse_a_part(self, runtime: Runtime) -> None:
        """What is overridden is a part of the step that overrides it, and of nothing else.

        A generator is not even that: it would do all its items without a checkpoint.
        """
        if runtime.is_in_body:
            name = self._step.name
            raise RunError(
                f"super().{name}() in run() is no step of this class, which overrides it: it would be done again by "
                f"each replay. Call self.{name}(), or super().{name}() inside the step that overrides it."
            )
        if self._step.kind is StepKind.RESUMABLE and is_generator(self._step.function):
            name = self._step.name
            raise RunError(
                f"super().{name}() of a generator step has no checkpoints. Delegate to it: "
                f"yield from super().{name}.__wrapped__()"
            )

    def __repr__(self) -> str:
        return f"<step {self.name!r} of {self._workflow!r}>"


class StepDecorator(Protocol):
    """What ``step(...)`` with options returns: it keeps the decorated function's signature."""

    @overload
    def __call__(self, function: Callable[Concatenate[W, P], Coroutine[Any, Any, R]], /) -> Step[W, P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[W, P], R], /) -> Step[W, P, R]: ...


@overload
def step(function: Callable[Concatenate[W, P], Coroutine[Any, Any, R]], /) -> Step[W, P, R]: ...
@overload
def step(function: Callable[Concatenate[W, P], R], /) -> Step[W, P, R]: ...
@overload
def step(**options: Unpack[StepOptions]) -> StepDecorator: ...
def step(function: Any = None, /, **options: Any) -> Any:
    """Make a method a step: a piece of a workflow that is done once, and not again after a crash.

    Steps run in the order in which the class body binds them. A subclass inherits them, adds its own, and
    overrides one by a step of the same name, which keeps its place but takes none of its options. In a loop
    in the class body give each step a ``name`` and bind the loop's variable as a default, ``def settle(self,
    currency=currency)``: a function cannot see the variables of a class body.

    Args:
        function: The method; ``async def`` too, no generator (see :func:`resumable_step`). Without ``run()``
            in the class it takes no parameters without defaults, since nobody would fill them; but for the
            payload of ``awaits``.
        name: The step's name, stored with each run; the attribute's by default. At most 190 characters.
        wait: A ``timedelta``: the step becomes due that long after the previous step's completion.
        wait_until: An aware ``datetime``, or a method's name or a function of the workflow that answers one.
            Or a :class:`Poll`: the step waits until its condition holds.
        awaits: A :class:`Signal` or its name: the step waits until it comes. Its payload is given to the
            function's one parameter, if it has one.
        gate: A method's name or a function of the workflow: the step waits until it answers true. It is
            looked at when the step is due and whenever somebody calls ``run.wake()``.
        skip_if: True, a method's name or a function of the workflow: a true answer skips the step. It is
            looked at before each attempt.
        on_exception: A policy or a list of them: ``Retry(ConnectionError, attempts=5)``. None leaves errors
            to the class's ``policies``.
        key_by: In ``run()``, what tells repeated calls of the step apart: an argument's name, a tuple of
            names, or a function of the arguments.
        digest: In ``run()``, False lets a replay call the step with other arguments than the first pass did; by
            default that stops the run, since its history does not fit the code any more.
        timeout: A ``timedelta``: how long the body may run. None means as long as it likes.
        queue: The queue to run the step in; the run's own by default.
        priority: 0 is the most urgent; the run's own by default.
        isolated: Give the step a claim of its own instead of running it right after the previous one.
        before: Place the step right before another, which may stand further down or in a base class.
        after: Place the step right behind another.

    ``before``, ``after``, ``wait``, ``wait_until``, ``awaits`` and ``gate`` are for classes without
    ``run()``, which says such things itself. With ``wait``, or an instant as ``wait_until``, a step first
    waits for it and then looks at its signal or gate.

    Durability:
        When the body has returned, its result, the changes of ``self.context`` and what it wrote through
        ``self.session`` are recorded in one transaction. A crash before that runs the step again; a crash
        after it does not. What the body does elsewhere, such as sending a mail, may therefore happen more
        than once.

    Raises:
        DefinitionError: When the class is created, for an option that does not exist or a value that does not
        fit.

    Example:
        >>> from datetime import timedelta
        >>> from stepwell import Retry, Workflow, step
        >>> class Welcome(Workflow):
        ...     @step
        ...     def greet(self):
        ...         return f"Hello, {self.args['name']}!"
        ...
        ...     @step(wait=timedelta(days=2), on_exception=Retry(ConnectionError, attempts=5))
        ...     def remind(self): ...
        >>> [spec.name for spec in Welcome.plan.steps]
        ['greet', 'remind']
        >>> Welcome(name="Ada").greet()
        'Hello, Ada!'
    """
    return decorated("@step", function, options, StepKind.STEP)


def decorated(decorator: str, function: Any, options: Mapping[str, Any], kind: StepKind) -> Any:
    """The step made of a function; without one, what makes a step of the function that follows.

    Raises:
        DefinitionError: What was given is no function.
    """
    if function is None:
        return lambda method: Step(method, options, kind)
    if not callable(function) and not isinstance(function, staticmethod | classmethod | property):
        raise DefinitionError(
            decorator,
            f"it decorates a method, and options are keywords, {decorator}(name=...); got {function!r}",
        )
    return Step(function, options, kind)


def removed_step(name: str) -> Step[Any, [], None]:
    """Leave a gravestone where a step was, so that runs which are parked on it go on with the step after it.

    Write it as a statement in the class body, in the step's old place. Once no run stands on the step any
    more, it can go.

    Args:
        name: The name of the step that is gone.

    Raises:
        DefinitionError: It is called outside the body of a workflow class.

    Example:
        >>> from stepwell import Workflow, removed_step, step
        >>> class Onboarding(Workflow):
        ...     @step
        ...     def greet(self): ...
        ...     removed_step("send_postcard")
        ...     @step
        ...     def complete(self): ...
        >>> Onboarding.plan.after("send_postcard").name
        'complete'
    """
    # The namespace of the statement that this is: a class body's own, and not a copy of it.
    body = sys._getframe(1).f_locals
    if not isinstance(body, ClassBody):
        raise DefinitionError(
            "removed_step", f"removed_step({name!r}) is a statement in the body of a Workflow class"
        )
    gravestone: Step[Any, [], None] = Step(_nothing, {"name": name}, StepKind.REMOVED)
    body.remember(gravestone)
    return gravestone


def cancel_if(method: F) -> F:
    """Make a method a condition that cancels the run: it is looked at before each step.

    A subclass inherits it, and overrides it like any method. It may read ``self.hero`` and ``self.session``,
    and must not write.

    Args:
        method: It takes only ``self`` and answers whether the run should be canceled; not ``async``.

    Raises:
        DefinitionError: What is decorated is no function.

    Example:
        >>> from stepwell import Workflow, cancel_if, step
        >>> class Onboarding(Workflow):
        ...     @cancel_if
        ...     def called_off(self):
        ...         return "called_off" in self.context
        ...
        ...     @step
        ...     def greet(self): ...
        >>> [condition.name for condition in Onboarding.plan.cancel_conditions]
        ['called_off']
    """
    if not inspect.isfunction(method):
        raise DefinitionError("@cancel_if", f"it decorates a method that takes only self; got {method!r}")
    setattr(method, _CONDITION, True)
    return method


def is_condition(value: object) -> bool:
    """``value`` is a function that ``@cancel_if`` decorated."""
    return inspect.isfunction(value) and getattr(value, _CONDITION, False)


def _nothing(workflow: Any) -> None:
    """The body of a step that is gone."""


def _exhausted(answer: Any) -> Any:
    """What a generator returns at its end; for an async one, a coroutine that goes there."""
    if inspect.isasyncgen(answer):
        return _drained(answer)
    if not inspect.isgenerator(answer):
        return answer
    while True:
        try:
            next(answer)
        except StopIteration as end:
            return end.value


async def _drained(answer: AsyncGenerator[Any, Any]) -> None:
    async for _ in answer:
        pass


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
