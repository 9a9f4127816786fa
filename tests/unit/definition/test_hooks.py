"""The hooks of a class: which there are, and which methods cannot be one."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell.definition.hooks import HOOKS, around_step_of
from stepwell.definition.steps import step
from stepwell.definition.workflow import Workflow
from stepwell.errors import RunError
from stepwell.policies import Retry, handles
from tests.unit.definition.sample import refusal


def made(*bases: Any, **body: Any) -> type[Workflow[Any]]:
    """A class with this body."""
    return types.new_class("Made", bases or (Workflow,), {}, lambda namespace: namespace.update(body))


class Auditing:
    """A mix-in that is no workflow."""

    def before_step(self, step: str) -> None: ...


class TestHooks:
    def test_they_are_these(self) -> None:
        """Each with what it is told."""
        assert HOOKS == {
            "before_step": ("self", "step"),
            "after_step": ("self", "step", "outcome"),
            "around_step": ("self", "step"),
            "on_finish": ("self", "result"),
            "on_fail": ("self", "error"),
            "on_pause": ("self", "reason"),
            "on_cancel": ("self", "reason"),
        }

    def test_by_default_they_do_nothing(self) -> None:
        """And the plan says that there are none."""
        workflow: Any = made()()
        for name, parameters in HOOKS.items():
            if name != "around_step":
                assert getattr(workflow, name)(*parameters[1:]) is None
        with workflow.around_step("work") as nothing:
            assert nothing is None
        assert made().plan.hooks == frozenset()

    def test_the_plan_names_the_overridden_ones(self) -> None:
        """Inherited ones and a mix-in's included, so that a driver calls only what there is."""

        class Base(Auditing, Workflow):
            def on_finish(self, result: Any) -> None: ...

        class Sub(Base):
            def on_fail(self, error: BaseException) -> None:
                super().on_fail(error)

        assert Base.plan.hooks == {"before_step", "on_finish"}
        assert Sub.plan.hooks == {"before_step", "on_finish", "on_fail"}

    def test_parameters_may_have_other_names(self) -> None:
        """They are given by position; ones with defaults, and *args, do no harm."""
        fine = made(
            before_step=lambda self, name: None,
            after_step=lambda self, *told: None,
            on_pause=lambda self, why=None, more=None: None,
            on_cancel=lambda *everything: None,
        )
        assert fine.plan.hooks == {"before_step", "after_step", "on_pause", "on_cancel"}

    def test_classes_with_run_have_them_too(self) -> None:
        """Hooks are about runs, whoever orders the steps."""
        assert made(run=lambda self: None, on_finish=lambda self, result: None).plan.hooks == {"on_finish"}


async def later(self: Any, told: Any) -> None: ...


def lazy(self: Any, told: Any) -> Iterator[None]:
    yield


@contextlib.asynccontextmanager
async def around_later(self: Any, step: str) -> Any:
    yield


@pytest.mark.parametrize(
    ("name", "hook", "text"),
    [
        (
            "before_step",
            lambda self: None,
            "before_step() is called as def before_step(self, step) says; this one takes (self)",
        ),
        (
            "after_step",
            lambda self, step: None,
            "after_step() is called as def after_step(self, step, outcome) says; this one takes (self, step)",
        ),
        (
            "on_fail",
            lambda self, error, *, how: None,
            "on_fail() is called as def on_fail(self, error) says; this one takes (self, error, *, how)",
        ),
        ("on_finish", lambda self, a, b: None, "on_finish() is called as def on_finish(self, result) says; "),
        ("on_pause", later, "on_pause() is a hook and must not be async: def on_pause(self, reason)"),
        (
            "around_step",
            around_later,
            "around_step() is a hook and must not be async: def around_step(self, step)",
        ),
        (
            "on_cancel",
            lazy,
            "on_cancel() is a generator function: its body would not run when it is called. "
            "Write def on_cancel(self, reason)",
        ),
        (
            "around_step",
            lazy,
            "around_step() is a generator function: decorate it with contextlib.contextmanager",
        ),
        ("on_fail", [Retry()], "on_fail() is a hook, an ordinary method: def on_fail(self, error); got ["),
        (
            "on_fail",
            staticmethod(lambda self, error: None),
            "on_fail() is a hook, an ordinary method: def on_fail(self, error); got <staticmethod",
        ),
    ],
)
def test_what_cannot_be_called_as_a_hook_is_refused(name: str, hook: Any, text: str) -> None:
    """When the class is created, and not when the run fails, weeks later."""
    assert refusal(lambda: made(**{name: hook})).startswith(f"Made: {text}")


@pytest.mark.parametrize("name", sorted(HOOKS))
@pytest.mark.parametrize("decorator", [step, handles(KeyError)])
def test_no_step_or_handler_takes_a_hooks_name(name: str, decorator: Any) -> None:
    """It would be called at every turn."""
    assert refusal(lambda: made(**{name: decorator(lambda self, error=None: None)})) == (
        f"Made.{name}: {name!r} is a hook of every workflow; choose another name"
    )


@pytest.mark.parametrize(
    ("mistaken", "hook"),
    [
        ("on_failure", "on_fail"),
        ("on_complete", "on_finish"),
        ("on_cancelled", "on_cancel"),
        ("before_step_execution", "before_step"),
    ],
)
def test_a_misspelled_hook_is_answered(mistaken: str, hook: str) -> None:
    """It would never be called, silently. An attribute that is no method may have the name."""
    assert refusal(lambda: made(**{mistaken: lambda self, told: None})) == (
        f"Made: {mistaken}() is no hook and is never called: did you mean {hook}? "
        "For a method of your own take another name"
    )
    assert made(**{mistaken: "later"})().__getattribute__(mistaken) == "later"


def test_a_mixin_behind_workflow_is_never_called() -> None:
    """Workflow's own empty hook comes first there."""
    assert refusal(lambda: made(Workflow, Auditing)) == (
        "Made: Auditing.before_step() is never called, because Workflow stands in front of it: write class "
        "Made(Auditing, Workflow)"
    )


class TestAroundStep:
    def test_the_body_runs_inside(self) -> None:
        """``@contextmanager`` makes one."""
        seen = []

        class Traced(Workflow):
            @contextlib.contextmanager
            def around_step(self, step: str) -> Iterator[None]:
                seen.append(f"{step} begins")
                yield
                seen.append(f"{step} ends")

        with around_step_of(Traced(), "work"):
            seen.append("body")
        assert seen == ["work begins", "body", "work ends"]

    def test_it_must_answer_a_context_manager(self) -> None:
        """A hook that forgot to return would leave the body outside."""

        class Forgetful(Workflow):
            def around_step(self, step: str) -> Any: ...

        with pytest.raises(RunError) as refused:
            around_step_of(Forgetful(), "work")
        assert str(refused.value) == (
            "Forgetful.around_step('work') must answer a context manager; got None. Decorate it with "
            "contextlib.contextmanager and yield once."
        )
