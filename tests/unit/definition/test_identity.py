"""Which runs are the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell.definition.identity import RunKey, key_of, run_key
from stepwell.definition.starting import StartOptions
from stepwell.definition.steps import step
from stepwell.definition.workflow import Workflow
from stepwell.errors import WrongArguments
from stepwell.serialization import Codec

CODEC = Codec()


@dataclass(frozen=True)
class Customer:
    """A hero that a codec can write down by itself."""

    number: int


class Onboarding(Workflow[Customer]):
    hero_optional = True

    @step
    def greet(self) -> None: ...


class Free(Onboarding):
    unique_by = None


class ByName(Onboarding):
    unique_by = "order_id"


class ByNames(Onboarding):
    unique_by = ("hero", "order_id")


class ByFunction(Onboarding):
    unique_by = lambda order_id, hero, month="May": [order_id.lower(), hero, month]  # noqa: E731


class Procedural(Workflow):
    unique_by = ("order_id", "part")

    def run(self, order_id: str, part: int = 1) -> None: ...


def key(workflow: Any, *args: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> RunKey | None:
    return run_key(workflow.with_args(*args, **kwargs), StartOptions(**(options or {})), CODEC)


def test_a_hero_has_one_run_of_a_class() -> None:
    """By default the hero is the identity; arguments do not matter."""
    assert key(Onboarding, Customer(1), plan="pro") == key_of(Customer(1), CODEC)
    assert key(Onboarding, Customer(1)) != key(Onboarding, Customer(2))


def test_without_a_hero_runs_are_never_the_same() -> None:
    """Nor where the class says so."""
    assert key(Onboarding) is None
    assert key(Free, Customer(1)) is None


def test_unique_by_names_arguments() -> None:
    """One name stands for its value, several for all of theirs."""
    assert key(ByName, order_id=7) == key_of(7, CODEC)
    assert key(ByNames, Customer(1), order_id=7) == key_of((Customer(1), 7), CODEC)


def test_unique_by_may_be_a_function() -> None:
    """It gets what it names, and a list that it returns is several parts."""
    wanted = key_of(("ab", Customer(1), "May"), CODEC)
    assert key(ByFunction, Customer(1), order_id="AB", other=5) == wanted
    assert key(ByFunction, Customer(1), order_id="AB", month="June") != wanted


def test_a_function_may_take_everything() -> None:
    """``**arguments`` holds all of them, the hero too."""

    class All(Onboarding):
        unique_by = lambda **arguments: sorted(arguments)  # noqa: E731

    assert key(All, order_id=1, month=2) == key_of(("hero", "month", "order_id"), CODEC)


def test_defaults_of_run_count() -> None:
    """A start that leaves an argument to its default is the same as one that gives it."""
    assert key(Procedural, order_id="7") == key(Procedural, order_id="7", part=1) == key_of(("7", 1), CODEC)


def test_a_key_by_hand_comes_before_all() -> None:
    """Also where runs are otherwise never the same."""
    for workflow in (Onboarding, Free, ByFunction):
        assert key(workflow, Customer(1), options={"key": "mine"}) == key_of("mine", CODEC)


def test_keys_differ_where_values_differ() -> None:
    """In type as much as in content, and in where one part ends."""
    values: list[Any] = [1, "1", None, "", True, 1.0, "a:b", ("a:b", "c"), ("a", "b:c"), (1,), ("1",), b"1"]
    keys = [key_of(value, CODEC) for value in values]
    assert len({each.digest for each in keys}) == len({each.text for each in keys}) == len(values)


def test_a_short_key_can_be_read() -> None:
    """It is shown to people, and its digest is what must be unique."""
    short = key_of("order-7", CODEC)
    assert "order-7" in short.text
    assert short.digest == hashlib.sha256(short.text.encode()).hexdigest()


def test_a_long_key_fits() -> None:
    """Its end gives way to the digest of the whole, so long keys that begin alike differ."""
    long, longer = key_of("x" * 300, CODEC), key_of("x" * 301, CODEC)
    assert len(long.text) <= 255
    assert long.text.endswith(f"...#{long.digest}")
    assert long.text != longer.text


@pytest.mark.parametrize(
    ("workflow", "text"),
    [
        (ByName, "ByName is unique by 'order_id', and start() did not get it. Pass order_id=..."),
        (ByNames, "ByNames is unique by 'order_id', and start() did not get it. Pass order_id=..."),
        (ByFunction, "ByFunction is unique by 'order_id', and start() did not get it. Pass order_id=..."),
    ],
)
def test_a_missing_argument_is_told(workflow: Any, text: str) -> None:
    """A run must not start without its identity."""
    with pytest.raises(WrongArguments) as refused:
        key(workflow)
    assert str(refused.value) == text


def test_a_function_must_answer() -> None:
    """A forgotten return would make all runs the same."""

    class Silent(Onboarding):
        @staticmethod
        def unique_by(order_id: str) -> None: ...

    with pytest.raises(WrongArguments) as refused:
        key(Silent, order_id="7")
    assert str(refused.value) == (
        "unique_by of Silent answered None, which identifies nothing. It must return a value."
    )
