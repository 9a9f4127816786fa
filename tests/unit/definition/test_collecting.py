"""Which steps a class has: those of its body, its bases and its mix-ins."""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from typing import Any

import pytest

from stepwell.definition.metaclass import WorkflowMeta
from stepwell.definition.plan import StepKind
from stepwell.definition.steps import Step, removed_step, step
from stepwell.definition.workflow import Workflow
from stepwell.errors import DefinitionError
from tests.unit.definition.sample import names, refusal


class Payment(Workflow):
    @step
    def charge(self) -> str:
        return "charged"

    for currency in ("usd", "eur", "gbp"):

        @step(name=f"settle_{currency}")
        def settle(self, currency: str = currency) -> str:
            return f"settled {currency}"

    @step
    def notify(self) -> str:
        return "notified"


def test_steps_stand_in_the_order_of_the_class_body() -> None:
    """Steps made in a loop are all there, each at its place."""
    assert names(Payment) == ["charge", "settle_usd", "settle_eur", "settle_gbp", "notify"]


def test_each_step_is_an_attribute_of_its_name() -> None:
    """A step that was given a name is called by it; the loop's own name, which means no step, is gone."""
    payment: Any = Payment()
    assert [payment.settle_usd(), payment.settle_gbp()] == ["settled usd", "settled gbp"]
    assert not hasattr(Payment, "settle")


def test_a_renamed_step_is_callable_under_both_names() -> None:
    """A single method with a name for the history keeps its own in the code."""

    class Renamed(Workflow):
        @step(name="send_invoice")
        def send(self) -> str:
            return "sent"

    assert names(Renamed) == ["send_invoice"]
    assert Renamed().send() == Renamed.send_invoice(Renamed()) == "sent"  # type: ignore[attr-defined]


def test_steps_may_be_bound_by_hand() -> None:
    """A function of the module, or a lambda, becomes the step of the attribute that it is bound to."""

    def work(workflow: Any) -> str:
        return "done"

    class ByHand(Workflow):
        first = step(work)
        second = step(lambda self: "short")
        for number in range(2):
            vars()[f"extra_{number}"] = step(lambda self: "extra")

    assert names(ByHand) == ["first", "second", "extra_0", "extra_1"]
    assert (ByHand().first(), ByHand().second()) == ("done", "short")


def test_a_class_made_by_a_call_is_a_workflow_too() -> None:
    """``types.new_class`` and ``type(cls)(...)`` end in the same plan as a class statement."""
    made = types.new_class("Made", (Workflow,), {}, lambda body: body.update(run_first=None))
    assert names(made) == []
    called: Any = WorkflowMeta("Called", (Workflow,), {"greet": step(lambda self: "hello")})
    assert names(called) == ["greet"]


class TestInheritance:
    def test_a_subclass_adds_to_its_bases(self) -> None:
        """Inherited steps come first; the base does not change."""

        class Refundable(Payment):
            @step
            def refund(self) -> None: ...

        assert names(Refundable) == [*names(Payment), "refund"]
        assert "refund" not in names(Payment)

    def test_an_override_keeps_the_place(self) -> None:
        """A step of an inherited name runs where the inherited one ran, with its own options only."""

        class Stricter(Payment):
            @step(queue="slow")
            def charge(self) -> str:
                return f"{super().charge()} twice"

        assert names(Stricter) == names(Payment)
        assert Stricter().charge() == "charged twice"
        (spec, base) = (Stricter.plan.find("charge"), Payment.plan.find("charge"))
        assert spec is not None
        assert base is not None
        assert (spec.queue, base.queue) == ("slow", None)

    def test_several_bases_join(self) -> None:
        """Each base's steps appear once, the more remote ones first."""

        class Base(Workflow):
            @step
            def start_up(self) -> None: ...

        class Left(Base):
            @step
            def left(self) -> None: ...

        class Right(Base):
            @step
            def right(self) -> None: ...

        class Both(Left, Right):
            @step
            def end(self) -> None: ...

        assert names(Both) == ["start_up", "right", "left", "end"]

    def test_a_mixin_brings_steps(self) -> None:
        """A plain class may hold steps for workflows to share."""

        class Audited:
            @step
            def audit(self) -> str:
                return type(self).__name__

        class Sale(Audited, Workflow):
            @step
            def sell(self) -> None: ...

        assert names(Sale) == ["audit", "sell"]
        assert Sale().audit() == "Sale"

    def test_an_abstract_step_holds_a_place(self) -> None:
        """A base may leave a step to its subclasses."""

        class Export(Workflow, ABC):
            @step
            @abstractmethod
            def fetch(self) -> str: ...

            @step
            def send(self) -> None: ...

        class CsvExport(Export):
            @step
            def fetch(self) -> str:
                return "csv"

        assert names(CsvExport) == ["fetch", "send"]
        with pytest.raises(TypeError, match="abstract"):
            Export()  # type: ignore[abstract]

    def test_only_a_step_overrides_a_step(self) -> None:
        """A plain method in place of a step would look like one and never run."""

        def build() -> None:
            class Plain(Payment):
                def charge(self) -> str:  # type: ignore[override]
                    return ""

        assert refusal(build) == (
            "Plain.charge: this overrides an inherited step by something that is no step. Decorate it "
            "with @step, "
            "or write removed_step(...) to take the step away"
        )


class TestRemovedSteps:
    def test_a_gravestone_keeps_its_place(self) -> None:
        """Runs that are parked on a step that is gone go on with the one behind it."""

        class Shorter(Workflow):
            @step
            def first(self) -> None: ...

            removed_step("second")

            @step
            def third(self) -> None: ...

        gone = Shorter.plan.find("second")
        assert gone is not None
        assert (gone.kind, gone.is_removed) == (StepKind.REMOVED, True)
        following = [Shorter.plan.after(name) for name in ("first", "second")]
        assert [spec and spec.name for spec in following] == ["third", "third"]

    def test_a_gravestone_may_be_bound_and_is_one_still(self) -> None:
        """Assigning it to a name changes nothing."""

        class Bound(Workflow):
            old = removed_step("second")

            @step
            def third(self) -> None: ...

        assert names(Bound) == ["second", "third"]

    def test_a_loop_may_bury_many(self) -> None:
        """Steps that were made in a loop go in one."""

        class Many(Workflow):
            for letter in ("a", "b"):
                removed_step(letter)

            @step
            def third(self) -> None: ...

        assert names(Many) == ["a", "b", "third"]

    def test_a_subclass_may_bury_an_inherited_step(self) -> None:
        """It is gone there, and alive in the base."""

        class Unsettled(Payment):
            removed_step("settle_eur")

        assert [spec.name for spec in Unsettled.plan.steps if not spec.is_removed] == [
            "charge",
            "settle_usd",
            "settle_gbp",
            "notify",
        ]

    def test_a_gravestone_stands_in_a_class(self) -> None:
        """Elsewhere it would do nothing, silently."""
        assert refusal(lambda: removed_step("second")) == (
            "removed_step: removed_step('second') is a statement in the body of a Workflow class"
        )


class TestRefusals:
    def test_two_steps_of_one_name(self) -> None:
        """The first of two would be lost."""

        def build() -> None:
            class Twice(Workflow):
                @step
                def charge(self) -> None: ...

                @step  # type: ignore[no-redef]
                def charge(self) -> None: ...  # noqa: F811

        assert (
            refusal(build)
            == "Twice.charge: two steps have this name; give one of them another, @step(name=...)"
        )

    def test_a_step_and_its_gravestone(self) -> None:
        """A name is alive or gone, not both."""

        def build() -> None:
            class Undead(Workflow):
                @step
                def charge(self) -> None: ...

                removed_step("charge")

        assert refusal(build).startswith("Undead.charge: two steps have this name")

    def test_a_step_that_is_overwritten(self) -> None:
        """A method further down hides a step of the same name."""

        def build() -> None:
            class Hidden(Workflow):
                @step
                def charge(self) -> None: ...

                def charge(self) -> None: ...  # type: ignore[no-redef]  # noqa: F811

        assert refusal(build) == (
            "Hidden.charge: this step's name is also bound to an ordinary method in the class body, "
            "which hides "
            "the step. Rename one of them"
        )

    def test_a_name_that_is_taken_by_a_value(self) -> None:
        """``name=`` must not replace an attribute of the class."""

        def build() -> None:
            class Taken(Workflow):
                charge = 5

                @step(name="charge")
                def pay(self) -> None: ...

        assert "is also bound to 5 in the class body" in refusal(build)

    def test_two_steps_that_swap_names(self) -> None:
        """``self.a`` must be the step ``a``."""

        def build() -> None:
            class Swapped(Workflow):
                @step(name="b")
                def a(self) -> None: ...

                @step(name="a")
                def b(self) -> None: ...

        assert refusal(build).startswith("Swapped.b: this step's name is also bound to another step, 'a'")

    @pytest.mark.parametrize("cover", [staticmethod, classmethod, property])
    def test_a_decorator_above_step(self, cover: Any) -> None:
        """What covers a step would be called in its place, and the step would be none."""

        def build() -> None:
            class Covered(Workflow):
                charge = cover(step(lambda self: None))

        assert refusal(build) == "Covered.charge: @step must stand above all other decorators"

    def test_a_wrapper_above_step(self) -> None:
        """Ordinary decorators go below @step too."""
        import functools

        def log(function: Any) -> Any:
            @functools.wraps(function)
            def wrapper(*args: Any) -> Any: ...

            return wrapper

        def build() -> None:
            class Covered(Workflow):
                @log
                @step
                def charge(self) -> None: ...

        assert refusal(build) == "Covered.charge: @step must stand above all other decorators"

    def test_step_decorates_functions(self) -> None:
        """A name as the first argument is a habit from elsewhere, answered at once."""
        assert refusal(lambda: step("charge")) == (  # type: ignore[call-overload]
            "@step: it decorates a method, and options are keywords, @step(name=...); got 'charge'"
        )

    def test_the_error_tells_where(self) -> None:
        """Class, step and rule are attributes too."""
        with pytest.raises(DefinitionError) as refused:

            class Bad(Workflow):
                @step(queue="")
                def charge(self) -> None: ...

        error = refused.value
        assert (error.workflow, error.step) == ("Bad", "charge")
        assert error.rule == "queue must not be empty, nor begin or end with a space; got ''"


def test_a_step_is_no_step_where_nothing_binds_it() -> None:
    """Class access answers the step itself, with what its author said."""
    assert isinstance(Payment.charge, Step)
    assert Payment.charge.name == "charge"
    assert repr(Payment.charge) == "<step 'charge'>"
