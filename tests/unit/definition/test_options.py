"""The options of ``@step``: what becomes of them, and how wrong ones are answered."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell.definition.plan import StepSpec
from stepwell.definition.steps import cancel_if, step
from stepwell.definition.workflow import Workflow
from stepwell.policies import Cancel, Pause, Retry, Skip, handles
from tests.unit.definition.sample import refusal

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Greeting(Workflow):
    def toured(self) -> bool:
        return "toured" in self.context

    def at_noon(self) -> datetime:
        return NOON

    @property
    def tall(self) -> bool:
        return True

    async def later(self) -> bool:
        return True

    def needy(self, what: str) -> bool:
        return True

    @step
    def greet(self) -> None: ...


def spec(function: Any = None, base: type[Workflow[Any]] = Greeting, **options: Any) -> StepSpec:
    """The plan's view of a step with these options, in a subclass of Greeting."""

    class Tried(base):  # type: ignore[misc,valid-type]
        probe = step(**options)(function or (lambda self: None))

    found = Tried.plan.find(options.get("name", "probe"))
    assert isinstance(found, StepSpec)
    return found


class TestValues:
    def test_a_bare_step_has_no_options(self) -> None:
        """What is not said is None, empty or False."""
        bare = spec()
        assert bare == StepSpec(name="probe", function=bare.function)

    def test_options_arrive_in_the_plan(self) -> None:
        """Each option is a field of the step's spec."""
        full = spec(
            wait=timedelta(days=2),
            on_exception=[Retry(OSError), Cancel()],
            timeout=timedelta(seconds=5),
            queue="mail",
            priority=0,
            isolated=True,
        )
        assert (full.wait, full.timeout) == (timedelta(days=2), timedelta(seconds=5))
        assert full.on_exception == (Retry(OSError), Cancel())
        assert (full.queue, full.priority, full.isolated) == ("mail", 0, True)

    def test_none_means_not_said(self) -> None:
        """An option computed to None is as good as left out."""
        said = spec(wait=None, wait_until=None, queue=None, on_exception=None, skip_if=None)
        assert said == StepSpec(name="probe", function=said.function)

    def test_one_policy_is_a_list_of_one(self) -> None:
        """``on_exception=Pause()`` needs no brackets."""
        assert spec(on_exception=Pause()).on_exception == (Pause(),)

    @pytest.mark.parametrize("given", [None, False])
    def test_nothing_to_skip(self, given: bool | None) -> None:
        """``skip_if=False`` costs nothing at run time."""
        assert spec(skip_if=given).skip_if is None

    def test_skip_if_is_always_something_to_call(self) -> None:
        """True, a method's name and a function all end as a function of the workflow."""
        always, method, function = (
            spec(skip_if=True),
            spec(skip_if="toured"),
            spec(skip_if=lambda self: self.tall),
        )
        workflow = Greeting()
        assert always.skip_if
        assert method.skip_if
        assert function.skip_if
        assert (always.skip_if(workflow), method.skip_if(workflow), function.skip_if(workflow)) == (
            True,
            False,
            True,
        )

    def test_a_named_method_is_looked_up_when_asked(self) -> None:
        """A subclass that overrides the method changes the condition."""

        class Base(Greeting):
            @step(skip_if="toured")
            def tour(self) -> None: ...

        class Toured(Base):
            def toured(self) -> bool:
                return True

        found = Toured.plan.find("tour")
        assert found
        assert found.skip_if
        assert (found.skip_if(Base()), found.skip_if(Toured())) == (False, True)

    def test_wait_until_is_an_instant_or_computes_one(self) -> None:
        """An aware datetime stays; a method's name and a function are called with the workflow."""
        assert spec(wait_until=NOON).wait_until == NOON
        for given in ("at_noon", lambda self: self.at_noon()):
            wait_until = spec(wait_until=given).wait_until
            assert callable(wait_until)
            assert wait_until(Greeting()) == NOON

    @pytest.mark.parametrize("key_by", ["item", ("item", "size"), len])
    def test_key_by_names_parameters(self, key_by: Any) -> None:
        """A name, several, or a function of the arguments."""

        def ship(self: Any, item: str = "", size: int = 0) -> None: ...

        assert spec(ship, key_by=key_by).key_by == key_by

    def test_a_parameter_that_catches_all_has_every_name(self) -> None:
        """``**details`` may bring what ``key_by`` names."""

        def ship(self: Any, **details: str) -> None: ...

        assert spec(ship, key_by="item").key_by == "item"

    def test_async_steps_are_known_as_such(self) -> None:
        """Also behind a wrapper that keeps the function's identity, or a partial."""

        async def fetch(self: Any, url: str = "") -> None: ...

        @functools.wraps(fetch)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return fetch(*args, **kwargs)

        assert [spec(each).is_async for each in (fetch, wrapped, functools.partial(fetch, url="x"))] == [
            True
        ] * 3
        assert not spec().is_async


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"wait": 30}, "wait must be a timedelta, such as timedelta(days=2); got 30"),
    ({"wait": "2 days"}, "wait must be a timedelta, such as timedelta(days=2); got '2 days'"),
    ({"wait": timedelta(seconds=-1)}, "wait must not be negative; got -1 day, 23:59:59"),
    ({"timeout": timedelta()}, "timeout must be more than zero; got 0:00:00"),
    ({"timeout": 5}, "timeout must be a timedelta, such as timedelta(days=2); got 5"),
    ({"wait": timedelta(1), "wait_until": NOON}, "wait and wait_until exclude each other; give one of them"),
    (
        {"wait_until": datetime(2030, 1, 1)},
        "wait_until must be an aware datetime; datetime.datetime(2030, 1, 1, 0, 0) has no time zone. "
        "Attach one: tzinfo=UTC",
    ),
    (
        {"wait_until": timedelta(days=1)},
        "wait_until must be an aware datetime, a Poll, a method's name or a function of the workflow; "
        "got datetime.timedelta(days=1)",
    ),
    ({"wait_until": "noon"}, "wait_until='noon' names no method of the class"),
    ({"queue": ""}, "queue must not be empty, nor begin or end with a space; got ''"),
    ({"queue": " mail"}, "queue must not be empty, nor begin or end with a space; got ' mail'"),
    ({"queue": 5}, "queue must be a string; got 5"),
    ({"queue": "x" * 191}, "queue must have at most 190 characters; got 191"),
    ({"queue": "a\0b"}, "queue must have printable characters only; got 'a\\x00b'"),
    ({"priority": -1}, "priority must be 0 or more; got -1"),
    ({"priority": True}, "priority must be an int; got True"),
    ({"priority": 1.5}, "priority must be an int; got 1.5"),
    ({"isolated": 1}, "isolated must be True or False; got 1"),
    (
        {"skip_if": 5},
        "skip_if must be True, False, a method's name or a function of the workflow; got 5",
    ),
    ({"skip_if": "tourd"}, "skip_if='tourd' names no method of the class"),
    (
        {"skip_if": lambda: True},
        "skip_if takes no parameter, and is called with the workflow: write lambda self: ...",
    ),
    ({"skip_if": lambda self, other: True}, "skip_if must take only the workflow; it also wants other"),
    (
        {"skip_if": "later"},
        "skip_if='later' is async: the coroutine that it makes would always count as true. Use a plain "
        "function",
    ),
    ({"skip_if": "needy"}, "skip_if='needy' must take only the workflow; it also wants what"),
    (
        {"on_exception": ValueError},
        "on_exception must be a policy, such as Retry(), or a list of policies; got ",
    ),
    (
        {"on_exception": [Retry, Skip()]},
        "on_exception must hold policies: Retry, Skip, Pause, Cancel, Fail or a @handles function; got ",
    ),
    (
        {"on_exception": [Skip(), Pause()]},
        "on_exception has two policies for any error: one is never reached",
    ),
    (
        {"on_exception": [Skip(KeyError), Retry(KeyError)]},
        "on_exception has two policies for KeyError: one is never reached",
    ),
    ({"key_by": "item"}, "key_by names 'item', which is no parameter of this step"),
    (
        {"key_by": ()},
        "key_by must be an argument's name, a tuple of names or a function of the arguments; got ()",
    ),
    (
        {"key_by": 5},
        "key_by must be an argument's name, a tuple of names or a function of the arguments; got 5",
    ),
    (
        {"on_error": Skip()},
        "there is no option 'on_error'. The options are name, wait, wait_until, awaits, gate, skip_if, "
        "on_exception, key_by, digest, timeout, queue, priority, isolated, before, after",
    ),
    (
        {"wait_untill": NOON},
        "there is no option 'wait_untill' (did you mean wait_until?). The options are name, ",
    ),
    ({"retries": 3}, "there is no option 'retries'"),
]


@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_a_bad_option_is_refused_when_the_class_is_created(options: dict[str, Any], text: str) -> None:
    """The message names the class, the step, the option and what is wanted instead."""
    assert refusal(lambda: spec(**options)).startswith(f"Tried.probe: {text}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "send mail",
            "a step's name is an attribute of its class: letters, digits and _ only; got 'send mail'",
        ),
        (
            "__secret",
            "a step's name is an attribute of its class: letters, digits and _ only; got '__secret'",
        ),
        ("x" * 191, "a step's name must have at most 190 characters; got 191"),
        (5, "a step's name must be a string; got 5"),
    ],
)
def test_a_bad_name_is_refused(name: Any, text: str) -> None:
    """A name is stored, shown and called."""
    assert refusal(lambda: spec(name=name)).endswith(text)


def test_conditions_are_ordinary_methods() -> None:
    """A property is no method to call, and a step must not run as a side effect of a question."""
    assert "skip_if='tall' must name an ordinary method; got <property" in refusal(
        lambda: spec(skip_if="tall")
    )
    assert "skip_if='greet' must name an ordinary method; got <step" in refusal(lambda: spec(skip_if="greet"))


def test_two_policies_for_one_error_are_fine_behind_a_handler() -> None:
    """A handler may pass the error on."""

    @handles(KeyError)
    def look(workflow: Any, error: BaseException) -> None: ...

    assert len(spec(on_exception=[look, Skip(KeyError)]).on_exception) == 2


class TestFunctions:
    def test_a_step_without_run_takes_no_parameters(self) -> None:
        """Nobody would fill them; those with defaults are fine."""

        def ship(self: Any, item: str, *, size: int, note: str = "") -> None: ...

        assert refusal(lambda: spec(ship)) == (
            "Tried.probe: nobody gives this step item, size: steps that run by themselves take no parameters "
            "without defaults. Read self.args or self.context, or write run() and call the step there"
        )

    def test_a_step_takes_the_workflow(self) -> None:
        """A function without parameters cannot be a method."""

        def ship() -> None: ...

        assert refusal(lambda: spec(ship)) == (
            "Tried.probe: this step takes no parameter for the workflow: its first one is self"
        )

    def test_generators_are_no_steps(self) -> None:
        """Calling one runs nothing of its body."""

        def each(self: Any) -> Iterator[int]:
            yield 1

        async def each_later(self: Any) -> AsyncIterator[int]:
            yield 1

        for function in (each, each_later):
            assert refusal(lambda: spec(function)) == (  # noqa: B023 - called at once
                "Tried.probe: this step is a generator function: its body would not run when it is called. "
                "With @resumable_step each yield is a checkpoint"
            )

    @pytest.mark.parametrize("kind", [staticmethod, classmethod, property])
    def test_only_plain_methods_are_steps(self, kind: Any) -> None:
        """@step stands above functions that take self."""
        assert refusal(lambda: spec(kind(lambda self: None))) == (
            f"Tried.probe: this step is a {kind.__name__}; a plain method that takes self is needed"
        )

    def test_a_class_is_no_step(self) -> None:
        """It could be called, but not with a workflow."""
        assert refusal(lambda: spec(dict)) == "Tried.probe: this step is no function but <class 'dict'>"


class TestClassBodyNames:
    def test_a_loop_variable_must_be_bound(self) -> None:
        """A function cannot see the class body: the name would be missing when the step runs."""

        def build() -> None:
            class Settling(Workflow):
                for currency in ("usd", "eur"):

                    @step(name=f"settle_{currency}")
                    def settle(self) -> str:
                        return currency  # type: ignore[name-defined,no-any-return]  # noqa: F821, B023

        assert refusal(build) == (
            "Settling.settle_usd: this step reads the global 'currency', which exists in the class body "
            "only, where "
            "a function cannot see it. Bind it as a default: def settle_usd(self, currency=currency)"
        )

    def test_deeper_code_counts_too(self) -> None:
        """The name may be read in a nested function, behind a decorator, or in a condition."""

        def wrap(function: Any) -> Any:
            return functools.wraps(function)(lambda *args: function(*args))

        def nested() -> None:
            class Nested(Workflow):
                limit = 3

                @step
                @wrap
                def work(self) -> Any:
                    return [lambda: limit for _ in range(3)]  # type: ignore[name-defined]  # noqa: F821

        def asked() -> None:
            class Asked(Workflow):
                limit = 3

                @step(skip_if=lambda self: limit > 2)  # type: ignore[name-defined]  # noqa: F821
                def work(self) -> None: ...

        assert "this step reads the global 'limit'" in refusal(nested)
        assert "skip_if reads the global 'limit'" in refusal(asked)

    def test_a_deleted_variable_is_no_better(self) -> None:
        """``del currency`` after the loop does not bring it into sight."""

        def build() -> None:
            class Settling(Workflow):
                for currency in ("usd",):

                    @step
                    def settle(self) -> str:
                        return currency  # type: ignore[name-defined,no-any-return]  # noqa: F821, B023

                del currency

        assert "reads the global 'currency'" in refusal(build)

    def test_a_global_of_the_module_is_fine(self) -> None:
        """A class constant may share its name with a global or a built-in that the step means."""

        class Fine(Workflow):
            NOON = 5
            max = 7

            @step
            def work(self) -> Any:
                return max(NOON, NOON)

        assert Fine().work() == NOON


class TestCancelIf:
    def test_conditions_are_inherited_in_order(self) -> None:
        """Base classes' come first."""

        class Base(Greeting):
            @cancel_if
            def gone(self) -> bool:
                return False

        class Sub(Base):
            @cancel_if
            def late(self) -> bool:
                return False

        assert [condition.name for condition in Sub.plan.cancel_conditions] == ["gone", "late"]

    def test_a_method_of_the_same_name_is_asked_instead(self) -> None:
        """Overriding works as for any method, with the decorator or without it."""

        class Base(Greeting):
            @cancel_if
            def gone(self) -> bool:
                return False

        class Sub(Base):
            def gone(self) -> bool:
                return True

        (condition,) = Sub.plan.cancel_conditions
        assert condition.function(Sub()) is True
        assert Sub().gone() is True

    def test_a_condition_answers_at_once(self) -> None:
        """A coroutine would always count as true."""

        def build() -> None:
            class Late(Greeting):
                @cancel_if
                async def gone(self) -> bool:
                    return False

        assert refusal(build) == (
            "Late.gone: this @cancel_if is async: the coroutine that it makes would always count as true. "
            "Use a plain function"
        )

    def test_a_condition_takes_only_self(self) -> None:
        """Nobody would give it more."""

        def build() -> None:
            class Needy(Greeting):
                @cancel_if  # type: ignore[type-var]
                def gone(self, when: str) -> bool:
                    return False

        assert refusal(build) == "Needy.gone: this @cancel_if must take only the workflow; it also wants when"

    def test_it_decorates_methods(self) -> None:
        """A step cannot be a condition, nor a property."""
        assert refusal(lambda: cancel_if(Greeting.greet)).startswith(
            "@cancel_if: it decorates a method that takes only self; got <step 'greet'>"
        )

        def build() -> None:
            class Covered(Greeting):
                @property
                @cancel_if
                def gone(self) -> bool:
                    return False

        assert refusal(build) == "Covered.gone: @cancel_if must stand above all other decorators"
