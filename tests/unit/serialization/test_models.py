"""Pydantic models, which Stepwell knows by their methods and never imports."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

import pytest

from stepwell.errors import Undecodable, Unstorable
from stepwell.serialization import Codec

pydantic = pytest.importorskip("pydantic")

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, field_validator  # noqa: E402
from pydantic.dataclasses import dataclass as pydantic_dataclass  # noqa: E402

codec = Codec()
T = TypeVar("T")


class Item(BaseModel):
    sku: str
    qty: int = 1
    at: datetime | None = None


class Order(BaseModel):
    items: list[Item]
    extra: Any = None


class Aliased(BaseModel):
    model_config = ConfigDict(frozen=True)
    name: str = Field(alias="fullName")
    other: str = Field(default="o", validation_alias="in", serialization_alias="out")
    crossed: str = Field(default="c", alias="name2")
    name2: str = "n"
    hidden: int = Field(default=0, exclude=True)


class Splitting(BaseModel):
    """Its validator expects the raw form and would fail on what it made."""

    tags: list[str]

    @field_validator("tags", mode="before")
    @classmethod
    def split(cls, value: Any) -> Any:
        return value.split(",")


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0


class Names(RootModel[list[str]]):
    pass


class Counting(BaseModel):
    a: int
    _calls: int = PrivateAttr(default=0)


class Secret(BaseModel):
    password: SecretStr


class Page(BaseModel, Generic[T]):
    content: T


class IntPage(Page[int]):
    pass


@pydantic_dataclass
class Checked:
    a: int
    b: list[Item]


VALUES = [
    Item(sku="a"),
    Item(sku="a", qty=1, at=datetime(2024, 1, 1, tzinfo=UTC)),
    Order(items=[Item(sku="a"), Item(sku="b", qty=2)], extra=Item(sku="c")),
    Order(items=[], extra={"deep": (Item(sku="c"), {1: 2})}),
    Aliased(fullName="x", name2="y"),
    Splitting(tags="a,b"),
    Open(a=1, b=[Item(sku="a")], c=None),
    Names(["a", "b"]),
    Counting(a=1),
    IntPage(content=1),
    Checked(a=1, b=[Item(sku="a")]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_models_come_back_the_same(value: Any) -> None:
    """Models come back equal and of the same class, whatever their aliases and validators."""
    back: Any = codec.roundtrip({"x": [value]})
    assert back == {"x": [value]}
    assert type(back["x"][0]) is type(value)


def test_nested_models_keep_their_class() -> None:
    """A model in a field of type Any is a model again, and not a dict."""
    back: Any = codec.roundtrip(Order(items=[], extra=Item(sku="c")))
    assert type(back.extra) is Item


def test_unset_fields_stay_unset() -> None:
    """Which fields were given survives: a partial update does not become a full one."""
    back: Any = codec.roundtrip(Item(sku="a"))
    assert back.model_dump(exclude_unset=True) == {"sku": "a"}
    assert back.model_fields_set == {"sku"}


def test_unset_fields_make_no_other_digest() -> None:
    """Equal models have one canonical text, whether a default was given or not."""
    assert codec.canonical(Item(sku="a")) == codec.canonical(Item(sku="a", qty=1))


def test_excluded_fields_are_stored() -> None:
    """A field that the model's own JSON leaves out is still part of the value."""
    value = Aliased(fullName="x").model_copy(update={"hidden": 7})
    back: Any = codec.roundtrip(value)
    assert back.hidden == 7


def test_private_attributes_start_afresh() -> None:
    """Private attributes are no data: they are made anew."""
    value = Counting(a=1)
    value._calls = 5
    back: Any = codec.roundtrip(value)
    assert back._calls == 0


def test_unstorable_field_is_told_with_its_path() -> None:
    """A secret is not stored by accident."""
    with pytest.raises(Unstorable, match=r"result\[0\].password is a SecretStr. Store the data in it"):
        codec.dumps([Secret(password=SecretStr("x"))], what="result")


def test_generic_model_made_on_the_fly_is_refused() -> None:
    """A class that exists only where it was written down is not found by another process."""
    with pytest.raises(
        Unstorable, match=r"Page\[str\] is made on the fly .* class StrPage\(Page\[str\]\): \.\.\."
    ):
        codec.dumps(Page[str](content="x"), what="result")


def test_models_evolve_like_dataclasses(monkeypatch: pytest.MonkeyPatch) -> None:
    """New fields take their defaults; a missing or a removed one is told."""
    shop = ModuleType("shop_of_models")
    monkeypatch.setitem(sys.modules, shop.__name__, shop)

    def put(**fields: Any) -> Any:
        shop.Thing = pydantic.create_model("Thing", __module__=shop.__name__, **fields)  # type: ignore[attr-defined]
        return shop.Thing

    text = codec.dumps([put(a=(int, ...))(a=1)], what="result")
    later = put(a=(int, ...), b=(list[int], Field(default_factory=list)))
    assert codec.loads(text, what="result") == [later(a=1)]
    put(a=(int, ...), b=(int, ...))
    with pytest.raises(Undecodable, match=r"result\[0\] is a Thing that was stored without 'b'. Give fields"):
        codec.loads(text, what="result")
    put(b=(int, 1))
    with pytest.raises(Undecodable, match=r"result\[0\] is a Thing with 'a', which the class no longer has"):
        codec.loads(text, what="result")


def test_pydantic_is_never_imported() -> None:
    """Applications without pydantic do not pay for it, nor need it."""
    source = Path(sys.modules["stepwell"].__path__[0]).parent
    program = "import sys; from stepwell.serialization import Codec; print('pydantic' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
