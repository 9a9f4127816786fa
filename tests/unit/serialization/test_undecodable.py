"""Text that cannot be read back: one clear error, whatever is in it, and a way out."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import Undecodable
from stepwell.serialization import Codec, find_class
from tests.unit.serialization.samples import values

codec = Codec()

OLD = "shop_as_it_was"
SHIP = "result of step 'ship' cannot be read back: "
BY_HAND = "The row was changed by hand or cut off: restore it, or cancel the run."


def unreadable(text: Any) -> str:
    with pytest.raises(Undecodable) as caught:
        codec.loads(text, what="result of step 'ship'")
    message = str(caught.value)
    assert message.startswith(SHIP)
    return message.removeprefix(SHIP)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module whose classes can change between writing and reading."""
    module = types.ModuleType(OLD)
    monkeypatch.setitem(sys.modules, OLD, module)
    return module


def put(module: types.ModuleType, cls: type, name: str) -> Any:
    cls.__module__, cls.__qualname__, cls.__name__ = module.__name__, name, name
    setattr(module, name, cls)
    return cls


@pytest.mark.parametrize("text", ["", "{", "nul", "[1,]", "NaN", "-Infinity", '"\x00"', "1 2", b"1", None, 7])
def test_damaged_json_is_undecodable(text: Any) -> None:
    """A row that was cut off or is no text at all raises the same error as any other unreadable one."""
    assert unreadable(text).startswith("its text is not JSON (")
    assert unreadable(text).endswith(BY_HAND)


def test_bottomless_nesting_is_undecodable() -> None:
    """Text that would exhaust the stack is an unreadable row, and no crash."""
    assert "RecursionError" in unreadable("[" * 200_000)
    assert "RecursionError" in unreadable('{"~":"tuple","v":[' * 300 + "]}" * 300)


DAMAGED = [
    '{"~":"datetime","v":"yesterday"}',
    '{"~":"datetime"}',
    '{"~":"datetime","v":7}',
    '{"~":"decimal","v":"1,5"}',
    '{"~":"uuid","v":"x"}',
    '{"~":"bytes","v":"é"}',
    '{"~":"bytes","v":"a"}',
    '{"~":"bytes","v":"AP!8="}',
    '{"~":"timedelta","v":1e300}',
    '{"~":"int","v":"z"}',
    '{"~":"set","v":[[1]]}',
    '{"~":"dict","v":[[1]]}',
    '{"~":"dict","v":[[{},1]]}',
    '{"~":"dataclass","v":1}',
    '{"~":"dataclass","v":[1,{}]}',
    '{"~":"dataclass","v":["m:C",[]]}',
    '{"~":"enum","v":["x"]}',
    '{"~":"record","v":[]}',
    '{"~":"custom","v":"m"}',
]


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_forms_are_undecodable(text: str) -> None:
    """Whatever a tagged form holds, the error is the same, and says where."""
    message = unreadable('{"a":[' + text + "]}")
    assert message.startswith("result['a'][0] is a ")


@given(values, st.data())
def test_no_text_breaks_the_reader(value: Any, data: st.DataObject) -> None:
    """Cut anywhere, or with any character replaced, a text gives a value or Undecodable, and nothing else."""
    text = codec.dumps(value, what="result")
    place = data.draw(st.integers(0, len(text)))
    broken = data.draw(
        st.sampled_from(
            [text[:place], text[:place] + text[place + 1 :], text[:place] + "7" + text[place + 1 :]]
        )
    )
    try:
        codec.loads(broken, what="result")
    except Undecodable:
        pass


def test_damage_is_told_with_its_cause() -> None:
    """The message names the form, the cause and the remedy; the original error is chained."""
    with pytest.raises(Undecodable) as caught:
        codec.loads('[{"~":"decimal","v":"1,5"}]', what="result of step 'ship'")
    assert str(caught.value).startswith(SHIP + "result[0] is a damaged decimal (InvalidOperation: ")
    assert str(caught.value).endswith(BY_HAND)
    assert isinstance(caught.value.__cause__, ArithmeticError)


@pytest.mark.parametrize("text", ['{"~":"quaternion","v":1}', '{"~":7}', '{"~":null}', '{"~":["a"],"v":1}'])
def test_unknown_tag_asks_for_an_upgrade(text: str) -> None:
    """A tag that this version does not know was written by a newer one."""
    assert "result is written with the tag " in unreadable(text)
    assert unreadable(text).endswith(
        "which this version of Stepwell does not know. Upgrade Stepwell where this process runs."
    )


def test_unregistered_tag_says_what_to_register() -> None:
    """A worker that lacks a registration names it."""
    assert unreadable('{"a":{"~":"custom","v":["money",1]}}') == (
        "result['a'] is written by an encoder with the tag 'money', which is not registered in this process. "
        "Call codec.register(cls, 'money', encode, decode) here as well."
    )


def test_missing_module_and_class() -> None:
    """A class that moved is asked for under its old name, in words that say how to provide it."""
    assert unreadable('[{"~":"dataclass","v":["no_such_module:Line",{}]}]') == (
        "result[0] is a no_such_module:Line: module 'no_such_module' cannot be imported "
        "(ModuleNotFoundError: No module named 'no_such_module'). Install it where this process runs, or, "
        "if it has moved, leave a module of the old name behind that imports Line from the new place."
    )
    assert unreadable('{"~":"enum","v":["decimal:Color.Deep","RED"]}') == (
        "result is a decimal:Color.Deep: module 'decimal' has no class Color.Deep. "
        "If it was renamed or moved, leave the old name behind as an alias of the new class."
    )


def test_class_of_another_main_program() -> None:
    """A class of a script is read by runs of that script; others are told to move it."""
    assert unreadable('{"~":"dataclass","v":["__main__:Order",{}]}') == (
        "result is a __main__:Order: Order was defined in the script that ran as the main program, "
        "and this process runs another one. Move Order into a module that both import."
    )


def test_module_that_exits_or_breaks_on_import(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that raises, or even exits, while it is imported makes a row unreadable and ends no worker."""
    (tmp_path / "exits_on_import.py").write_text("raise SystemExit(3)")
    (tmp_path / "breaks_on_import.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    for module, error in [("exits_on_import", "SystemExit"), ("breaks_on_import", "ZeroDivisionError")]:
        assert f"cannot be imported ({error}: " in unreadable(f'{{"~":"enum","v":["{module}:A","B"]}}')


@pytest.mark.parametrize(
    "name", ["os:path", "os:sep", "os:path.join", "", ":", "os", "os:", ".x:A", "os:..", "1:1"]
)
def test_names_that_name_no_class(name: str) -> None:
    """Only classes are ever taken from a module, whatever the text asks for."""
    with pytest.raises(Undecodable):
        find_class(name)


@pytest.mark.parametrize("tag", ["dataclass", "namedtuple", "model", "enum"])
def test_class_of_another_kind_is_never_called(tag: str) -> None:
    """Text cannot have an arbitrary class called: it must be of the kind that was written."""
    message = unreadable(f'{{"~":"{tag}","v":["subprocess:Popen",{{"args":["false"]}}]}}')
    kind = "Enum" if tag == "enum" else tag
    assert f"which is no {kind} any more. Make it a" in message


def test_new_field_with_default_is_filled(shop: types.ModuleType) -> None:
    """A field that was added since takes its default: runs in flight survive the deploy."""

    @dataclass
    class Before:
        a: int

    text = codec.dumps(put(shop, Before, "Line")(1), what="result")

    @dataclass
    class After:
        a: int
        b: list[int] = field(default_factory=list)

    put(shop, After, "Line")
    assert codec.loads(text, what="result") == After(1, [])


def test_new_field_without_default_is_told(shop: types.ModuleType) -> None:
    """A field that was added without a default cannot be made up."""

    @dataclass
    class Before:
        a: int

    text = codec.dumps([put(shop, Before, "Line")(1)], what="result")

    @dataclass
    class After:
        a: int
        b: int

    put(shop, After, "Line")
    message = unreadable(text)
    assert message.startswith("result[0] is a Line, which cannot be made from the fields 'a' (TypeError: ")
    assert message.endswith("Give fields that were added later a default.")


def test_removed_field_is_told(shop: types.ModuleType) -> None:
    """A stored field that the class has no longer is never dropped silently."""

    @dataclass
    class Before:
        a: int
        b: int

    text = codec.dumps(put(shop, Before, "Line")(1, 2), what="result")

    @dataclass
    class After:
        a: int

    put(shop, After, "Line")
    assert unreadable(text) == (
        "result is a Line with 'b', which the class no longer has. "
        "Keep the field, with a default, until the runs that stored it are over."
    )


def test_named_tuple_evolves_like_a_dataclass(shop: types.ModuleType) -> None:
    """New fields take their defaults, by name; missing and removed ones are told."""

    class Before(NamedTuple):
        a: int

    class Reordered(NamedTuple):
        z: int = 7
        a: int = 0

    class Without(NamedTuple):
        a: int
        b: int

    class Renamed(NamedTuple):
        b: int = 0

    text = codec.dumps(put(shop, Before, "Pair")(1), what="result")
    put(shop, Reordered, "Pair")
    assert codec.loads(text, what="result") == Reordered(z=7, a=1)
    put(shop, Without, "Pair")
    assert unreadable(text) == (
        "result is a Pair that was stored without 'b'. Give fields that were added later a default."
    )
    put(shop, Renamed, "Pair")
    assert "with 'a', which the class no longer has" in unreadable(text)


def test_enum_members_go_by_name(shop: types.ModuleType) -> None:
    """A changed value reads back; a renamed member needs an alias, and the message says so."""

    class Before(Enum):
        OPEN = 1

    class Revalued(Enum):
        OPEN = "open"

    class Aliased(Enum):
        ACTIVE = 1
        OPEN = 1

    class Renamed(Enum):
        ACTIVE = 1

    text = codec.dumps({"s": put(shop, Before, "Status").OPEN}, what="result")
    put(shop, Revalued, "Status")
    assert codec.loads(text, what="result") == {"s": Revalued.OPEN}
    put(shop, Aliased, "Status")
    assert codec.loads(text, what="result") == {"s": Aliased.ACTIVE}
    put(shop, Renamed, "Status")
    assert unreadable(text) == (
        "result['s'] is the member 'OPEN' of Status, which has none of that name any more. "
        "Keep the old name in the class as an alias of the new member."
    )


def test_moved_class_is_found_through_an_alias(shop: types.ModuleType) -> None:
    """What the message advises works: an alias under the old name."""

    @dataclass
    class Line:
        a: int

    text = codec.dumps(put(shop, Line, "Line")(1), what="result")
    del shop.Line
    assert "has no class Line" in unreadable(text)
    shop.Line = put(shop, Line, "NewLine")
    assert codec.loads(text, what="result") == Line(1)


def test_error_of_the_class_itself_is_told(shop: types.ModuleType) -> None:
    """What a __post_init__ raises is shown, with the path of the value."""

    @dataclass
    class Strict:
        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("a must not be negative")

    value = put(shop, Strict, "Strict")(1)
    value.a = -1
    text = codec.dumps({"x": value}, what="result")
    assert unreadable(text).startswith(
        "result['x'] is a Strict, which cannot be made from the fields 'a' "
        "(ValueError: a must not be negative)."
    )
