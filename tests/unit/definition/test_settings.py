"""A class's settings, and the names that no class may take."""

from __future__ import annotations

import types
from abc import ABC
from datetime import timedelta
from typing import Any

import pytest

from stepwell.definition.assembly import BODY
from stepwell.definition.reserved import reserved_names
from stepwell.definition.settings import SETTINGS
from stepwell.definition.steps import step
from stepwell.definition.workflow import Workflow
from stepwell.policies import Cancel, Pause, Policy, Retry, Skip, handles
from tests.unit.definition.sample import User, refusal


def made(base: Any = Workflow, **body: Any) -> type[Workflow[Any]]:
    """A class with this body."""
    return types.new_class("Made", (base,), {}, lambda namespace: namespace.update(body))


class TestSettings:
    def test_the_settings_are_the_plain_attributes_of_workflow(self) -> None:
        """What is checked and what there is to set are the same names."""
        plain = {
            name
            for name, value in vars(Workflow).items()
            if not name.startswith("_") and not callable(value) and not hasattr(value, "__get__")
        }
        assert plain - {"plan", "serial"} == set(SETTINGS)

    def test_the_stable_name_is_the_classs_own(self) -> None:
        """It is not inherited: two classes under one name would take each other's runs."""

        class Invoice(Workflow):
            workflow_name = "billing"

        class Reminder(Invoice): ...

        assert (Invoice.plan.workflow, Reminder.plan.workflow) == ("billing", "Reminder")
        assert Reminder.workflow_name == "Reminder"

    def test_a_deadline_is_a_duration_or_none(self) -> None:
        """By default a run may take as long as it likes; a subclass may lift what its base set."""
        limited = made(deadline=timedelta(days=3), deadline_includes_waits=False)
        assert (Workflow.deadline, Workflow.deadline_includes_waits) == (None, True)
        assert (limited.deadline, limited.deadline_includes_waits) == (timedelta(days=3), False)
        assert made(limited, deadline=None).deadline is None

    def test_what_is_unique_for_ever_takes_no_place(self) -> None:
        """A mode that could never come about is a slip; so it is where a base class says the other half."""
        base = made(unique_for="ever", unique_by=None)
        assert 'on_conflict="replace" never comes about' in refusal(lambda: made(base, on_conflict="replace"))

    def test_other_settings_are_inherited(self) -> None:
        """A base class may speak for a whole family."""

        class Base(Workflow):
            queue = "slow"

        class Sub(Base): ...

        assert Sub.queue == "slow"

    @pytest.mark.parametrize(
        ("name", "value", "text"),
        [
            ("workflow_name", "", "workflow_name must not be empty, nor begin or end with a space; got ''"),
            ("workflow_name", "x" * 191, "workflow_name must have at most 190 characters; got 191"),
            ("workflow_name", 5, "workflow_name must be a string; got 5"),
            ("version", 0, "version must be 1 or more; got 0"),
            ("version", "1", "version must be an int; got '1'"),
            ("version", True, "version must be an int; got True"),
            ("queue", None, "queue must be a string; got None"),
            ("priority", -5, "priority must be 0 or more; got -5"),
            (
                "policies",
                Retry(),
                "policies must be a list of policies, such as [Retry(ConnectionError), Pause()]; got ",
            ),
            (
                "policies",
                [ValueError],
                "policies must hold policies: Retry, Skip, Pause, Cancel, Fail or a @handles",
            ),
            ("policies", [Skip(), Pause()], "policies has two policies for any error: one is never reached"),
            (
                "unique_by",
                5,
                "unique_by must be an argument's name, a tuple of names, a function of them or None; got 5",
            ),
            (
                "unique_by",
                (),
                "unique_by must be an argument's name, a tuple of names, a function of them or None",
            ),
            ("unique_by", ("a", "a"), "unique_by names an argument twice: ('a', 'a')"),
            ("unique_by", "order id", "unique_by must name arguments; 'order id' cannot be one"),
            (
                "unique_by",
                "hero",
                "unique_by names 'hero', but the class has none: write class ...(Workflow[HeroType])",
            ),
            (
                "unique_by",
                lambda self: 1,
                "unique_by is called with the start's arguments, before there is a run: it takes those "
                "by name, "
                "and no self",
            ),
            ("unique_by", lambda *items: 1, "unique_by is called with arguments by name; 'items' has none"),
            ("unique_for", "always", "unique_for must be one of 'run', 'ever'; got 'always'"),
            ("on_conflict", "ignore", "on_conflict must be one of 'reject', 'skip', 'replace'; got 'ignore'"),
            ("hero_optional", 1, "hero_optional must be True or False; got 1"),
            ("max_recoveries", -1, "max_recoveries must be 0 or more; got -1"),
            ("deadline", 30, "deadline must be a timedelta, such as timedelta(days=2); got 30"),
            ("deadline", timedelta(), "deadline must be more than zero; got 0:00:00"),
            (
                "deadline_includes_waits",
                None,
                "deadline_includes_waits must be True or False; got None",
            ),
        ],
    )
    def test_a_bad_setting_is_refused(self, name: str, value: Any, text: str) -> None:
        """The message names the class and the setting."""
        assert refusal(lambda: made(**{name: value})).startswith(f"Made: {text}")

    @pytest.mark.parametrize("value", [None, "order_id", ("hero", "order_id"), lambda order_id: order_id])
    def test_unique_by_has_four_forms(self, value: Any) -> None:
        """None, a name, several names, a function."""
        assert not made(Workflow[User], unique_by=value).plan.steps

    def test_an_async_unique_by_is_refused(self) -> None:
        """A coroutine identifies nothing."""

        async def later(order_id: str) -> str:
            return order_id

        assert refusal(lambda: made(unique_by=later)) == "Made: unique_by must be a plain function, not async"


class TestMistakenNames:
    @pytest.mark.parametrize(
        ("name", "value", "text"),
        [
            (
                "on_exception",
                [Retry()],
                "on_exception is no setting of a workflow: policies = [...] holds for the whole class; "
                "on_exception= "
                "is an option of @step. For a value of your own take another name",
            ),
            (
                "retries",
                3,
                "retries is no setting of a workflow: write policies = [Retry(attempts=...)]. For a ",
            ),
            (
                "hero_type",
                User(),
                "hero_type is no setting of a workflow: write class ...(Workflow[HeroType])",
            ),
            ("quue", "mail", "quue is no setting of a workflow: did you mean queue?"),
            ("policy", [Skip()], "policy is no setting of a workflow: did you mean policies?"),
            ("policy", Skip(), "policy is no setting of a workflow: did you mean policies?"),
            ("unique_fr", "run", "unique_fr is no setting of a workflow: did you mean unique_for?"),
            ("run_timeout", 5, "run_timeout is no setting of a workflow: write deadline."),
            ("dedline", timedelta(1), "dedline is no setting of a workflow: did you mean deadline?"),
        ],
    )
    def test_near_misses_are_answered(self, name: str, value: Any, text: str) -> None:
        """A misspelled setting would be ignored, silently."""
        assert refusal(lambda: made(**{name: value})).startswith(f"Made: {text}")

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("queues", ["a", "b"]),
            ("name", "x"),
            ("_quue", "mail"),
            ("versions", {"a": 1}),
            ("attempts", 3),
            ("headline", None),
        ],
    )
    def test_values_of_ones_own_are_fine(self, name: str, value: Any) -> None:
        """Only a value that would do for the setting is taken for it."""
        assert getattr(made(**{name: value}), name) == value


class TestReservedNames:
    def test_they_come_from_workflow_itself(self) -> None:
        """Every verb and attribute is protected, and no setting is."""
        reserved = reserved_names(vars(Workflow)[BODY])
        assert {
            "pause",
            "session",
            "start",
            "hero",
            "context",
            "cursor",
            "with_options",
            "_runtime",
        } <= reserved
        assert not reserved & set(SETTINGS)

    @pytest.mark.parametrize("name", sorted(reserved_names(vars(Workflow)[BODY])))
    def test_no_step_or_attribute_hides_them(self, name: str) -> None:
        """A step called ``pause`` would take the verb away from all others."""
        text = f"{name!r} is a name that every workflow keeps for itself; this would hide it. "
        text += "Choose another name"
        assert refusal(lambda: made(**{name: 5})) == f"Made: {text}"
        assert refusal(lambda: made(**{name: step(lambda self: None)})) == f"Made.{name}: {text}"

    def test_a_step_is_no_setting(self) -> None:
        """A step called ``queue`` would be the class's queue."""

        def build() -> None:
            class Made(Workflow):
                @step
                def version(self) -> None: ...  # type: ignore[override]

        assert refusal(build) == (
            "Made.version: 'version' is a setting of the class; name the step otherwise"
        )

    def test_run_is_no_step(self) -> None:
        """``run`` is what makes a workflow procedural."""
        assert refusal(lambda: made(run=step(lambda self: None))).startswith(
            "Made.run: 'run' is a name that every "
        )

    def test_a_mixin_in_front_hides_nothing_either(self) -> None:
        """Behind Workflow its names do no harm."""

        class Stopwatch:
            def pause(self) -> None: ...

        assert refusal(lambda: types.new_class("Made", (Stopwatch, Workflow))).startswith(
            "Made: 'pause' (from TestReservedNames."
        )
        assert issubclass(types.new_class("Made", (Workflow, Stopwatch)), Stopwatch)

    def test_instances_are_the_engines(self) -> None:
        """A constructor of one's own would run at each activation, with arguments that it does not know."""
        assert refusal(lambda: made(__init__=lambda self: None)) == (
            "Made: __init__ cannot be overridden: the engine makes an instance for each activation"
        )

    def test_ordinary_classes_mix_in(self) -> None:
        """ABCs, generics and plain mix-ins bring no reserved names."""

        class Labelled(ABC):  # noqa: B024 - the metaclass is what matters here
            label = "x"

            def __repr__(self) -> str:
                return self.label

        class Made(Labelled, Workflow): ...

        assert repr(Made()) == "x"


class TestPolicies:
    def test_a_subclass_adds_to_its_bases(self) -> None:
        """Later ones win, so the subclass's come last."""

        class Base(Workflow):
            policies = [Skip(KeyError)]

        class Sub(Base):
            policies = [Cancel(KeyError)]

        class Same(Base): ...

        assert Sub.plan.policies == (Skip(KeyError), Cancel(KeyError))
        assert Same.plan.policies == (Skip(KeyError),)

    def test_handlers_come_after_the_list(self) -> None:
        """A ``@handles`` method is a policy of its class."""

        class Base(Workflow):
            @handles(KeyError)
            def look(self, error: BaseException) -> None: ...

            policies = [Skip()]

        assert [str(policy.verb) for policy in Base.plan.policies] == ["skip", "handle"]

    def test_a_handler_can_be_overridden(self) -> None:
        """By a handler of the same name, which then stands for both."""

        class Base(Workflow):
            @handles(KeyError)
            def look(self, error: BaseException) -> None: ...

        class Sub(Base):
            @handles(ValueError)
            def look(self, error: BaseException) -> None: ...

        def build() -> None:
            class Plain(Base):
                def look(self, error: BaseException) -> None: ...

        assert [policy.label for policy in Sub.plan.policies] == ["ValueError"]
        assert refusal(build) == "Plain.look: this overrides a handler; decorate it with @handles"

    def test_they_may_be_made_by_the_class(self) -> None:
        """A tuple does as well as a list."""
        policies: tuple[Policy, ...] = (Retry(), Skip(KeyError))
        assert made(policies=policies).plan.policies == policies
