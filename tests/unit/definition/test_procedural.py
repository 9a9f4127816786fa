"""Classes with ``run()``: what else they may say."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell.definition.metaclass import WorkflowMeta
from stepwell.definition.steps import step
from stepwell.definition.waits import Poll, Signal
from stepwell.definition.workflow import Workflow
from tests.unit.definition.sample import names, refusal


class Declared(Workflow):
    @step
    def first(self) -> None: ...

    @step(wait=timedelta(days=1))
    def second(self) -> None: ...


def test_run_makes_a_class_procedural() -> None:
    """Its steps may then take parameters, since run() gives them."""

    class Order(Workflow):
        def run(self, order_id: str) -> None:
            self.ship(order_id)

        @step(key_by="item")
        def ship(self, item: str) -> str:
            return item

    assert Order.plan.is_procedural
    assert not Order.plan.is_empty
    assert names(Order) == ["ship"]
    assert Order().ship("a") == "a"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("wait", timedelta(days=1)),
        ("wait_until", datetime(2030, 1, 1, tzinfo=UTC)),
        ("wait_until", Poll("is_paid", timedelta(minutes=1))),
        ("awaits", "review"),
        ("awaits", Signal("review")),
        ("gate", "is_paid"),
        ("before", "other"),
        ("after", "other"),
    ],
)
def test_place_and_time_are_runs_business(option: str, value: Any) -> None:
    """An option that run() would have to ignore is refused."""

    def build() -> None:
        class Order(Workflow):
            def run(self) -> None: ...

            @step
            def other(self) -> None: ...

            @step(**{option: value})
            def ship(self) -> None: ...

    assert refusal(build) == (
        f"Order.ship: {option} is for steps of a class without run(). Here run() decides when and in "
        f"which order "
        "steps are called: say it there"
    )


def test_inherited_steps_count_too() -> None:
    """A subclass that adds run() to declared steps takes their order over, so their waits must go."""

    def build() -> None:
        class Taken(Declared):
            def run(self) -> None: ...

    assert refusal(build).startswith("Taken.second: wait is for steps of a class without run()")


def test_a_base_may_hold_steps_for_procedural_classes() -> None:
    """With an abstract run() it need not know the order."""

    class Base(Workflow):
        @abstractmethod
        def run(self) -> None: ...

        @step
        def ship(self, item: str) -> None: ...

    class Order(Base):
        def run(self) -> None:
            self.ship("a")

    assert names(Order) == ["ship"]


async def _later(self: Any) -> None: ...


def _each(self: Any) -> Iterator[int]:
    yield 1


def _nothing() -> None: ...


def _many(self: Any, *items: str) -> None: ...


def _heroic(self: Any, hero: str) -> None: ...


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (_later, "run() is async, and a Workflow's is not: write class Order(AsyncWorkflow), or def run()"),
        (_each, "run() must not be a generator: call the steps, do not yield them"),
        (_nothing, "run() must take self as its first parameter"),
        (_many, "run() gets its arguments by name; *items: 'str' has none"),
        (_heroic, "no parameter of run() may be called 'hero': the hero is self.hero"),
        (staticmethod(_heroic), "run must be an ordinary method; got <staticmethod"),
    ],
)
def test_run_is_an_ordinary_method(run: Any, text: str) -> None:
    """It is called with the start's arguments, by name."""
    assert refusal(lambda: WorkflowMeta("Order", (Workflow,), {"run": run})).startswith(f"Order: {text}")


def test_unique_by_names_parameters_of_run() -> None:
    """A misspelled argument would identify nothing."""

    def build(**body: Any) -> type[Workflow[Any]]:
        class Order(Workflow):
            vars().update(body)

            def run(self, order_id: str, note: str = "") -> None: ...

        return Order

    text = "Order: unique_by names 'oder_id', which is no parameter of run(). They are order_id, note"
    assert refusal(lambda: build(unique_by="oder_id")) == text
    assert refusal(lambda: build(unique_by=lambda oder_id: oder_id)) == text
    assert build(unique_by=("order_id", "note")).plan.is_procedural
