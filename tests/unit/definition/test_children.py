"""What a class says about the runs that its steps call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Child, DefinitionError, RunError, Signal, Workflow, step


class Shipment(Workflow):
    """What is called."""

    workflow_name = "children.Shipment"

    def run(self, order_id: str) -> str:
        return order_id


def spec(**options: Any) -> Any:
    """The plan's only step with these options, in a class of its own."""

    class Tried(Workflow):
        workflow_name = "children.Tried"

        def answers(self) -> dict[str, str]:
            return {"order_id": "7"}

        @step(**options)
        def probe(self, parcel: str) -> str:
            return parcel

    return Tried.plan.steps[0]


def refusal(make: Callable[[], object]) -> str:
    with pytest.raises(DefinitionError) as caught:
        make()
    return str(caught.value)


def test_a_step_is_given_what_its_child_answers() -> None:
    """Its parameter is the child's result, and in a unit test it is called with one."""
    found = spec(awaits=Child(Shipment, {"order_id": "7"}))
    assert found.takes_payload
    assert found.child == Child(Shipment, {"order_id": "7"})
    assert found.awaits is None


def test_the_arguments_may_be_a_method_or_a_function() -> None:
    """A name is looked up when the class is created, and asked when the step is due."""

    class Asked(Workflow):
        workflow_name = "children.Asked"

        def answers(self) -> dict[str, str]:
            return {"order_id": "7"}

        @step(awaits=Child(Shipment, "answers"))
        def probe(self) -> None: ...

    child = Asked.plan.steps[0].child
    assert child is not None
    assert child.arguments(Asked()) == {"order_id": "7"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"awaits": Child(7)}, "awaits=Child() takes a workflow class, or what its with_options(...) answered; got 7"),
        ({"awaits": Child(Shipment, 7)}, "awaits=Child: arguments must be a mapping, a method's name or a function"),
        ({"awaits": Child(Shipment, "nobody")}, "awaits=Child: arguments='nobody' names no method of the class"),
        ({"awaits": Child(Shipment, lambda: {})}, "awaits=Child: arguments takes no parameter"),
        ({"awaits": Child(Shipment), "gate": "answers"}, "awaits and gate exclude each other"),
        ({}, "nobody gives this step parcel"),
    ],
)  # fmt: skip
def test_what_cannot_be_called_is_refused_when_the_class_is_created(
    options: dict[str, Any], told: str
) -> None:
    """The message names the class, the step and the option."""
    assert refusal(lambda: spec(**options)).startswith(f"Tried.probe: {told}")


def test_a_class_with_run_calls_by_itself() -> None:
    """``awaits=`` is for declared steps; ``run()`` says ``self.call()``."""

    def make() -> object:
        class Wrong(Workflow):
            def run(self) -> None: ...

            @step(awaits=Child(Shipment))
            def probe(self) -> None: ...

        return Wrong

    assert "awaits is for steps of a class without run()" in refusal(make)


def test_a_change_of_the_child_is_a_change_of_the_plan() -> None:
    """The fingerprint tells which workflow is called, and differs from that of a signal."""

    def fingerprint(awaits: Any) -> str:
        class Printed(Workflow):
            workflow_name = "children.Printed"

            @step(awaits=awaits)
            def probe(self) -> None: ...

        return Printed.plan.fingerprint

    prints = [
        fingerprint(awaits)
        for awaits in (
            Child(Shipment),
            Child("children.Other"),
            Signal("children.Shipment", timeout=timedelta(days=1)),
        )
    ]
    assert len(set(prints)) == 3
    assert fingerprint(Child(Shipment.with_options(priority=5))) == prints[0]


def test_calling_belongs_to_a_run() -> None:
    """Made by hand, a workflow has nobody who would start the child."""
    for act in (lambda: Shipment().call(Shipment, "7"), lambda: Shipment().start_over(order_id="7")):
        with pytest.raises(RunError, match="exists only while a run is driven"):
            act()
