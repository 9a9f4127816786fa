"""The methods that a class may override to hear what happens to its runs."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from stepwell.definition.functions import is_async, parameters_of
from stepwell.errors import DefinitionError, RunError

__all__ = ["HOOKS", "Hooks", "around_step_of", "overridden_hooks"]


class Hooks:
    """What ``Workflow`` calls at the turning points of a run; each does nothing unless a class overrides it.

    Hooks are called with their arguments by position, on the worker's thread; they are plain methods, not
    ``async``.

    ``before_step``, ``around_step`` and ``after_step`` with ``"success"`` are parts of the attempt: what they
    raise is an error of the step, they may say verbs, and what they write through ``self.session`` commits with
    it. All others are told what is durable already: what they raise is logged, ``self.session`` and verbs raise
    there, and a run that they start is started by itself. Should the worker die just then, they are not called
    again: for what must happen, write a step.

    They are called by the worker that drives the run. To pause or cancel a run that nobody drives (it waits, is
    ready, paused or failed) takes a worker if its class has the hook for that and is loaded where the command is
    given; else it is stopped at once, without. One that fails with its workers calls none.
    """

    def before_step(self, step: str) -> None:
        """Called before the body of each attempt at a step; not when a condition leaves the step out.

        Args:
            step: The step's name.
        """

    def after_step(self, step: str, outcome: str) -> None:
        """Called after each attempt at a step whose body began, whatever came of it.

        Args:
            step: The step's name.
            outcome: ``"success"``, ``"retried"``, ``"skipped"`` and so on.
        """

    def around_step(self, step: str) -> AbstractContextManager[object]:
        """Answer a context manager in which the body of each attempt runs.

        Write it with ``@contextmanager``: one ``yield``, at which the body runs.

        Args:
            step: The step's name.
        """
        return contextlib.nullcontext()

    def on_finish(self, result: Any) -> None:
        """Called when the run is completed.

        Args:
            result: What ``run.result()`` answers.
        """

    def on_fail(self, error: BaseException) -> None:
        """Called when the run has failed.

        Args:
            error: What stopped it.
        """

    def on_pause(self, reason: str | None) -> None:
        """Called when the run has paused.

        Args:
            reason: Why, if anybody said so.
        """

    def on_cancel(self, reason: str | None) -> None:
        """Called when the run is canceled.

        Args:
            reason: Why, if anybody said so.
        """


HOOKS: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple(inspect.signature(hook).parameters)
    for name, hook in vars(Hooks).items()
    if inspect.isfunction(hook)
}
"""Each hook with the names of its parameters, ``self`` first."""

_MISTAKEN: Final[Mapping[str, str]] = {
    "before_step_execution": "before_step",
    "before_each_step": "before_step",
    "before_steps": "before_step",
    "after_step_execution": "after_step",
    "after_each_step": "after_step",
    "after_steps": "after_step",
    "around_step_execution": "around_step",
    "around_each_step": "around_step",
    "around_steps": "around_step",
    "on_finished": "on_finish",
    "on_complete": "on_finish",
    "on_completed": "on_finish",
    "on_success": "on_finish",
    "on_failed": "on_fail",
    "on_failure": "on_fail",
    "on_error": "on_fail",
    "on_paused": "on_pause",
    "on_canceled": "on_cancel",
    "on_cancelled": "on_cancel",
}


def overridden_hooks(root: type, cls: type) -> frozenset[str]:
    """The hooks that the class has of its own or from a base below ``Workflow``.

    Args:
        root: ``Workflow`` itself.
        cls: The class.

    Raises:
        DefinitionError: One of them cannot be called as a hook is, or stands where it would never be called.
    """
    _refuse_uncalled(root, cls)
    found = {name: inspect.getattr_static(cls, name) for name in HOOKS}
    overridden = {name: hook for name, hook in found.items() if hook is not vars(Hooks)[name]}
    for name, hook in overridden.items():
        if problem := _broken_hook(name, hook):
            raise DefinitionError(cls.__name__, f"{name}() {problem}")
    return frozenset(overridden)


def around_step_of(workflow: Hooks, step: str) -> AbstractContextManager[object]:
    """What the workflow's ``around_step`` answers, which must be a context manager.

    Raises:
        RunError: It is none.
    """
    answer: object = workflow.around_step(step)
    if isinstance(answer, AbstractContextManager):
        return answer
    raise RunError(
        f"{type(workflow).__name__}.around_step({step!r}) must answer a context manager; got {answer!r}. "
        "Decorate it with contextlib.contextmanager and yield once."
    )


def _refuse_uncalled(root: type, cls: type) -> None:
    """Refuse what was meant as a hook, and would be silently ignored."""
    name = cls.__name__
    for mistaken, hook in _MISTAKEN.items():
        if inspect.isfunction(vars(cls).get(mistaken)):
            raise DefinitionError(
                name,
                f"{mistaken}() is no hook and is never called: did you mean {hook}? "
                "For a method of your own take another name",
            )
    for base in cls.__mro__[cls.__mro__.index(root) :]:
        hidden = [] if base in root.__mro__ else [hook for hook in HOOKS if hook in vars(base)]
        if hidden:
            raise DefinitionError(
                name,
                f"{base.__qualname__}.{hidden[0]}() is never called, because {root.__name__} stands in front "
                f"of it: write class {name}({base.__name__}, {root.__name__})",
            )


def _broken_hook(name: str, hook: object) -> str | None:
    told = f"def {name}({', '.join(HOOKS[name])})"
    if not inspect.isfunction(hook):
        return f"is a hook, an ordinary method: {told}; got {hook!r}"
    if is_async(hook):
        return f"is a hook and must not be async: {told}"
    if inspect.isgeneratorfunction(hook):
        if name == "around_step":
            return "is a generator function: decorate it with contextlib.contextmanager"
        return f"is a generator function: its body would not run when it is called. Write {told}"
    if parameters_of(hook) is not None and not _takes(hook, len(HOOKS[name])):
        return f"is called as {told} says; this one takes {inspect.signature(hook)}"
    return None


def _takes(hook: Any, arguments: int) -> bool:
    try:
        inspect.signature(hook).bind(*[None] * arguments)
    except TypeError:
        return False
    return True
