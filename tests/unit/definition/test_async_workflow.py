"""``AsyncWorkflow``: which classes may derive from it, and what their steps are outside of a run."""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from datetime import timedelta
from typing import Any

import pytest

from stepwell import AsyncWorkflow, RunError, UnknownWorkflow, Workflow, resumable_step, step
from stepwell.definition.durable import is_durable
from stepwell.definition.metaclass import WorkflowMeta
from stepwell.definition.registry import find_workflow
from stepwell.definition.verbs import Verbs
from tests.unit.definition.sample import User, names, refusal

_PLAIN = {"uuid4", "start_over"}
"""What only answers, and what ends the run: neither is awaited."""


def test_an_async_run_makes_an_async_plan() -> None:
    """It is a procedural class like others; its parameters are those of ``run()``."""

    class Order(AsyncWorkflow[User]):
        unique_by = "order_id"

        async def run(self, order_id: str) -> str:
            return await self.ship(order_id)

        @step(key_by="item")
        def ship(self, item: str) -> str:
            return item

    assert (Order.plan.is_procedural, Order.plan.is_async) == (True, True)
    assert names(Order) == ["ship"]
    assert Order.hero_type is User
    assert issubclass(Order, Workflow)


def _plain(self: Any) -> None: ...


async def _later(self: Any) -> None: ...


async def _each(self: Any) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("base", "run", "text"),
    [
        (
            Workflow,
            _later,
            "Order: run() is async, and a Workflow's is not: write class Order(AsyncWorkflow), or def run(). Steps "
            "may be async in both",
        ),
        (
            AsyncWorkflow,
            _plain,
            "Order: run() of an AsyncWorkflow is awaited: write async def run(), or class Order(Workflow). Steps may "
            "be plain in both",
        ),
        (AsyncWorkflow, _each, "Order: run() must not be a generator: call the steps, do not yield them"),
    ],
)
def test_a_run_of_the_other_kind_is_refused(base: type, run: Any, text: str) -> None:
    """At class creation, saying what to write."""
    assert refusal(lambda: WorkflowMeta("Order", (base,), {"run": run})) == text


def test_an_inherited_run_of_the_other_kind_is_refused() -> None:
    """Also where it comes from a mix-in or from a base."""

    class Base(Workflow):
        def run(self) -> None: ...

    assert "is awaited" in refusal(lambda: WorkflowMeta("Both", (AsyncWorkflow, Base), {}))


def test_a_base_may_leave_run_to_others() -> None:
    """With an abstract one it holds steps with parameters."""

    class Base(AsyncWorkflow):
        @abstractmethod
        async def run(self) -> None: ...

        @step
        def ship(self, item: str) -> None: ...

    class Order(Base):
        async def run(self) -> None:
            await self.ship("a")

    assert Order.plan.is_async


def test_a_class_without_run_is_declared() -> None:
    """Its steps run from top to bottom, as those of a ``Workflow``."""

    class Declared(AsyncWorkflow):
        @step
        def first(self) -> None: ...

        @step
        async def second(self) -> None: ...

    assert (Declared.plan.is_procedural, Declared.plan.is_async) == (False, False)
    assert names(Declared) == ["first", "second"]


def test_the_library_s_names_stay_its_own() -> None:
    """As in a ``Workflow``: a step cannot be called like a verb."""

    def build() -> None:
        class Order(AsyncWorkflow):
            @step
            def sleep(self) -> None: ...

    assert "'sleep' is a name that every workflow keeps for itself" in refusal(build)


def test_it_is_no_workflow_itself() -> None:
    """There is nothing to run in it, so nobody finds it among the workflows."""
    with pytest.raises(UnknownWorkflow):
        find_workflow("AsyncWorkflow")


def test_each_verb_is_awaited_unless_it_only_answers() -> None:
    """A new verb of ``run()`` is durable, or is named here."""
    verbs = {
        name: value for name, value in vars(Verbs).items() if inspect.isfunction(value) and name[0] != "_"
    }
    assert {name for name, value in verbs.items() if not is_durable(value)} <= _PLAIN
    assert {
        "step",
        "sleep",
        "sleep_until",
        "wait_until",
        "continue_if",
        "wait_for_signal",
        "call",
    } <= verbs.keys()
    assert is_durable(Workflow.pause)
    assert (inspect.getdoc(Verbs.sleep) or "").startswith("Wait for a while")
    assert list(inspect.signature(Verbs.sleep).parameters) == ["self", "duration", "name"]


# -- by hand --------------------------------------------------------------------------------------------------------


class Parcel(AsyncWorkflow):
    async def run(self, items: list[str]) -> list[Any]:
        shipped = [await self.ship(item) for item in items]
        return [*shipped, await self.close(), await self.count()]

    @step(key_by="item")
    async def ship(self, item: str) -> str:
        await asyncio.sleep(0)
        return f"shipped {item}"

    @step
    def close(self) -> str:
        return "closed"

    @resumable_step
    def count(self) -> Any:
        yield 1
        return "counted"


class Padded(Parcel):
    @step(key_by="item")
    async def ship(self, item: str) -> str:
        return f"padded, {await super().ship(item)}"

    @step
    def close(self) -> str:
        return f"twice {super().close.__wrapped__()}"


def test_run_is_awaited_in_a_test_and_so_are_the_steps() -> None:
    """Plain ones too, so that the same ``run()`` works by hand."""
    assert asyncio.run(Parcel().run(["a"])) == ["shipped a", "closed", "counted"]
    assert asyncio.run(Parcel().close()) == "closed"
    assert asyncio.run(Padded().run(["a"])) == ["padded, shipped a", "twice closed", "counted"]


def test_a_verb_by_hand_is_refused_in_words() -> None:
    """It would have to wait for something that nobody drives."""
    with pytest.raises(RunError, match=r"sleep\(\) exists only while a run is driven"):
        Parcel().sleep(timedelta(1))
