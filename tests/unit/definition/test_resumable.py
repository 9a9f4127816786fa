"""``@resumable_step``: its options, its kinds of functions, and what a plain call of one does."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Generator, Iterator
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from stepwell.definition.plan import StepKind, StepSpec
from stepwell.definition.resumable import resumable_step
from stepwell.definition.steps import step
from stepwell.definition.waits import Signal
from stepwell.definition.workflow import Workflow
from stepwell.errors import RunError
from stepwell.policies import Retry
from tests.unit.definition.sample import refusal


class Import(Workflow):
    done: list[int]

    @resumable_step
    def plain(self) -> int:
        return 7

    @resumable_step
    async def later(self) -> int:
        await asyncio.sleep(0)
        return 8

    @resumable_step
    def rows(self, upto: int = 3) -> Generator[int, None, str]:
        for number in range(upto):
            self.done.append(number)
            yield number + 1
        return "imported"

    @resumable_step
    async def pages(self) -> AsyncIterator[int]:
        for number in range(2):
            await asyncio.sleep(0)
            self.done.append(number)
            yield number


def by_hand(cls: type[Any] = Import) -> Any:
    workflow = cls()
    workflow.done = []
    return workflow


def spec(function: Any = None, decorator: Any = resumable_step, **options: Any) -> StepSpec:
    """The plan's view of a resumable step with these options."""

    class Tried(Workflow):
        probe = decorator(**options)(function or (lambda self: None))

    found = Tried.plan.find("probe")
    assert isinstance(found, StepSpec)
    return found


class TestOptions:
    def test_a_bare_one_has_no_limits(self) -> None:
        """It commits at each move of its cursor."""
        bare = spec()
        assert bare == StepSpec("probe", bare.function, StepKind.RESUMABLE)
        assert (bare.max_iterations, bare.max_runtime, bare.checkpoint_every) == (None, None, 1)
        assert bare.is_resumable
        assert not spec(decorator=step).is_resumable

    def test_all_options_of_step_apply(self) -> None:
        """A resumable step is a step."""
        full = spec(
            max_iterations=1,
            max_runtime=timedelta(seconds=5),
            checkpoint_every=100,
            wait=timedelta(days=1),
            awaits="go",
            on_exception=Retry(),
            timeout=timedelta(hours=1),
            queue="slow",
            isolated=True,
        )
        assert (full.max_iterations, full.max_runtime, full.checkpoint_every) == (
            1,
            timedelta(seconds=5),
            100,
        )
        assert (full.wait, full.awaits, full.on_exception) == (timedelta(days=1), Signal("go"), (Retry(),))
        assert (full.timeout, full.queue, full.isolated) == (timedelta(hours=1), "slow", True)

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"max_iterations": 0}, "max_iterations must be 1 or more; got 0"),
            ({"max_iterations": True}, "max_iterations must be an int; got True"),
            ({"max_iterations": 1.5}, "max_iterations must be an int; got 1.5"),
            ({"max_runtime": 60}, "max_runtime must be a timedelta, such as timedelta(days=2); got 60"),
            ({"max_runtime": timedelta()}, "max_runtime must be more than zero; got 0:00:00"),
            (
                {"max_runtime": timedelta(minutes=-1)},
                "max_runtime must be more than zero; got -1 day, 23:59:00",
            ),
            ({"checkpoint_every": 0}, "checkpoint_every must be 1 or more; got 0"),
            ({"checkpoint_every": "5"}, "checkpoint_every must be an int; got '5'"),
            (
                {"max_iteration": 5},
                "there is no option 'max_iteration' (did you mean max_iterations?). The options are name, "
                "wait, wait_until, awaits, gate, skip_if, on_exception, key_by, digest, timeout, queue, priority, "
                "isolated, before, after, max_iterations, max_runtime, checkpoint_every",
            ),
        ],
    )
    def test_a_bad_option_is_refused(self, options: dict[str, Any], text: str) -> None:
        """When the class is created, naming it, the step and the rule."""
        assert refusal(lambda: spec(**options)) == f"Tried.probe: {text}"

    @pytest.mark.parametrize(
        ("option", "value"),
        [("max_iterations", 5), ("max_runtime", timedelta(1)), ("checkpoint_every", 5)],
    )
    def test_a_plain_step_has_none_of_its_options(self, option: str, value: Any) -> None:
        """They would be ignored, silently."""
        assert refusal(lambda: spec(decorator=step, **{option: value})) == (
            f"Tried.probe: {option} is an option of @resumable_step; a plain @step has no cursor"
        )

    def test_run_leaves_no_place_and_time_to_it_either(self) -> None:
        """As for any step of a class with run(); the limits stay."""

        def build(**options: Any) -> type[Workflow[Any]]:
            class Order(Workflow):
                def run(self) -> None: ...

                @resumable_step(max_iterations=5, **options)
                def ship(self, order: str) -> Iterator[int]:
                    yield 1

            return Order

        assert build().plan.steps[0].max_iterations == 5
        assert refusal(lambda: build(wait=timedelta(1))).startswith(
            "Order.ship: wait is for steps of a class without run()"
        )

    def test_it_decorates_methods(self) -> None:
        """An option given by position is a mistake."""
        assert refusal(lambda: resumable_step(5)) == (  # type: ignore[call-overload]
            "@resumable_step: it decorates a method, and options are keywords, "
            "@resumable_step(name=...); got 5"
        )


class TestKinds:
    def test_the_plan_tells_how_the_body_runs(self) -> None:
        """In an event loop or not, by its yields or not."""
        assert {each.name: (each.is_async, each.is_generator) for each in Import.plan.steps} == {
            "plain": (False, False),
            "later": (True, False),
            "rows": (False, True),
            "pages": (True, True),
        }

    def test_wrappers_and_partials_are_looked_through(self) -> None:
        """What they wrap is what runs."""

        def rows(self: Any, upto: int = 3) -> Iterator[int]:
            yield upto

        @functools.wraps(rows)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return rows(*args, **kwargs)

        assert spec(wrapped).is_generator
        assert spec(functools.partial(rows, upto=5)).is_generator

    def test_a_plain_step_may_wrap_a_generator_that_it_consumes(self) -> None:
        """What counts is what a call answers."""

        def rows(self: Any) -> Iterator[int]:
            yield 5

        @functools.wraps(rows)
        def collected(self: Any) -> list[int]:
            return list(rows(self))

        assert not spec(collected, decorator=step).is_generator

    @pytest.mark.parametrize("kind", [staticmethod, classmethod, property])
    def test_only_plain_methods_are_steps(self, kind: Any) -> None:
        """A generator in a static method takes no workflow."""

        def rows(self: Any) -> Iterator[int]:
            yield 5

        for decorator in (resumable_step, step):
            assert refusal(lambda: spec(kind(rows), decorator=decorator)) == (  # noqa: B023 - called at once
                f"Tried.probe: this step is a {kind.__name__}; a plain method that takes self is needed"
            )

    def test_a_resumable_step_overrides_a_plain_one(self) -> None:
        """The kind is the override's own."""

        class Base(Workflow):
            @step
            def work(self) -> None: ...

        class Sub(Base):
            @resumable_step
            def work(self) -> None: ...

        assert [each.kind for each in (*Base.plan.steps, *Sub.plan.steps)] == [
            StepKind.STEP,
            StepKind.RESUMABLE,
        ]


class TestCalledPlainly:
    def test_any_kind_runs_to_its_end(self) -> None:
        """A unit test gets what the step would answer, and what is yielded moves nothing."""
        workflow = by_hand()
        assert (workflow.plain(), workflow.later(), workflow.rows(2)) == (7, 8, "imported")
        assert workflow.done == [0, 1]
        assert workflow.pages() is None
        assert workflow.done == [0, 1, 0, 1]

    def test_in_a_running_loop_async_ones_are_awaited(self) -> None:
        """A second loop cannot run in the same thread."""

        async def main() -> tuple[Any, Any]:
            return await by_hand().later(), await by_hand().pages()

        assert asyncio.run(main()) == (8, None)

    def test_errors_pass_through(self) -> None:
        """As from any method."""

        class Broken(Workflow):
            @resumable_step
            def rows(self) -> Iterator[int]:
                yield 1
                raise KeyError("x")

        with pytest.raises(KeyError):
            Broken().rows()

    def test_the_cursor_belongs_to_a_run(self) -> None:
        """A step made by hand has no position."""
        with pytest.raises(
            RunError, match=r"^cursor exists only while a run is driven; this Import was made"
        ):
            by_hand().cursor

    def test_the_generator_itself_can_be_had(self) -> None:
        """For a test that looks at each yield."""
        assert list(by_hand().rows.__wrapped__(3)) == [1, 2, 3]


class TestInARun:
    def test_the_cursor_is_the_runtimes(self) -> None:
        """And a call is the runtime's business too."""
        workflow, runtime = by_hand(), mock.Mock(is_in_body=False)
        workflow._runtime = runtime
        assert workflow.cursor is runtime.cursor
        assert workflow.rows(5) is runtime.call_step.return_value
        runtime.call_step.assert_called_once_with(Import.plan.find("rows"), workflow, (5,), {})

    def test_an_override_delegates_to_the_generator(self) -> None:
        """Called like a function, the base's body would run to its end without one checkpoint."""

        class Delegating(Import):
            @resumable_step
            def rows(self, upto: int = 3) -> Generator[int, None, str]:
                result: str = yield from super().rows.__wrapped__(upto)
                return result.upper()

            @resumable_step
            def plain(self) -> int:
                return super().plain() + 1

        class Calling(Import):
            @resumable_step
            def rows(self, upto: int = 3) -> str:
                return super().rows(upto)

        workflow = by_hand(Delegating)
        workflow._runtime = mock.Mock(is_in_body=False)
        assert list(Delegating.rows.function(workflow)) == [1, 2, 3]
        assert Delegating.plain.function(workflow) == 8
        workflow = by_hand(Calling)
        workflow._runtime = mock.Mock(is_in_body=False)
        with pytest.raises(RunError) as refused:
            Calling.rows.function(workflow)
        assert str(refused.value) == (
            "super().rows() of a generator step has no checkpoints. Delegate to it: "
            "yield from super().rows.__wrapped__()"
        )
        assert workflow.done == []
