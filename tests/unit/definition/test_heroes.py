"""Which record a workflow is about."""

from __future__ import annotations

import types
from typing import Any, Generic, Optional, TypeVar

import pytest

from stepwell.definition.steps import step
from stepwell.definition.workflow import Workflow
from stepwell.errors import DefinitionError
from tests.unit.definition.sample import Admin, Company, User

H = TypeVar("H")
K = TypeVar("K")


class Onboarding(Workflow[User]):
    @step
    def greet(self) -> None: ...


class Early(Workflow["Late"]): ...


class Optionally(Workflow["Late | None"]): ...


class Late: ...


class Lost(Workflow["Nobody"]):  # type: ignore[name-defined]
    ...


class Base(Workflow[H], Generic[H]): ...


class Pair(Base[K], Generic[H, K]): ...


def test_the_type_is_read_off_the_class() -> None:
    """``Workflow[User]`` is about a user, and so are its subclasses."""

    class Sub(Onboarding): ...

    assert Onboarding.hero_type is User
    assert Sub.hero_type is User
    assert (Onboarding.has_hero, Workflow.has_hero) == (True, False)


def test_a_class_without_brackets_has_no_hero() -> None:
    """Nor has one whose type variable nobody filled in, or ``Workflow[None]``."""

    class Plain(Workflow): ...

    class Nothing(Workflow[None]): ...

    assert [cls.hero_type for cls in (Plain, Nothing, Base)] == [None, None, None]


def test_type_variables_are_followed() -> None:
    """Through any number of generic bases, in whatever order they name their variables."""

    class Users(Base[User]): ...

    class Companies(Pair[int, Company]): ...

    assert (Users.hero_type, Companies.hero_type) == (User, Company)


def test_the_hero_may_come_from_the_second_base() -> None:
    """A base that says nothing does not hide one that does."""

    class Plain(Workflow): ...

    class Both(Plain, Onboarding): ...

    assert Both.hero_type is User


def test_a_name_in_quotes_is_looked_up_when_it_is_needed() -> None:
    """The record's class may be defined after the workflow."""
    assert Early.hero_type is Late
    assert (Optionally.hero_type, Optionally.is_hero_optional) == (Late, True)


def test_a_name_that_does_not_exist_is_told() -> None:
    """Only when the type is needed: the class itself is sound."""
    assert Lost.has_hero
    with pytest.raises(DefinitionError) as refused:
        Lost.hero_type
    assert str(refused.value) == (
        f"Lost: the hero's type 'Nobody' cannot be found in {__name__} (name 'Nobody' is not defined). "
        f"A type in "
        "quotes must be a global of the module in which the workflow stands"
    )


def test_there_may_be_several_kinds_of_heroes() -> None:
    """A union of classes is good for isinstance."""

    class Billing(Workflow[User | Company]): ...

    hero_type = Billing.hero_type
    assert isinstance(hero_type, types.UnionType)
    assert isinstance(Admin(), hero_type)
    assert not isinstance(5, hero_type)
    assert not Billing.is_hero_optional


def test_none_in_the_union_makes_the_hero_optional() -> None:
    """So does the setting."""

    class ByType(Workflow[Optional[User]]): ...  # noqa: UP045

    class BySetting(Workflow[User]):
        hero_optional = True

    assert (ByType.hero_type, ByType.is_hero_optional) == (User, True)
    assert (BySetting.hero_type, BySetting.is_hero_optional) == (User, True)
    assert not Onboarding.is_hero_optional


def test_anything_may_be_a_hero() -> None:
    """``Any`` accepts all, a parametrised type stands for its class."""

    class Free(Workflow[Any]): ...

    class Listed(Workflow[list[int]]): ...

    assert (Free.hero_type, Listed.hero_type) == (object, list)


def test_a_hero_is_of_a_class() -> None:
    """A value in the brackets is refused when it is first needed."""
    with pytest.raises(DefinitionError) as refused:
        odd: Any = types.new_class("Odd", (Workflow[5],))  # type: ignore[valid-type]
        odd.hero_type
    assert str(refused.value) == "Odd: the hero's type must be a class; got 5"
