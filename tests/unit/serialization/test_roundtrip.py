"""What is stored comes back: the same value, of the same types, however it is nested."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given

from stepwell.serialization import Codec, RecordRef
from stepwell.serialization.encoding import Encoder
from stepwell.serialization.extensions import Extensions
from stepwell.serialization.plain import ENCODER, plain_text
from tests.unit.serialization.samples import (
    ZONES,
    Bits,
    Color,
    Line,
    Odd,
    Outer,
    Pair,
    Permission,
    Point,
    Shouting,
    Size,
    Status,
    Total,
    is_same,
    plain_values,
    values,
)

codec = Codec()

# The stored form, which old rows depend on: a change here needs a decoder for what was written before.
STORED: list[tuple[Any, str]] = [
    (None, "null"),
    (True, "true"),
    (1, "1"),
    (1.0, "1.0"),
    (-0.0, "-0.0"),
    ("é\x00\ud800😀", r'"\u00e9\u0000\ud800\ud83d\ude00"'),
    ("\ud83d\ude00", r'{"~":"str","v":["\ud83d","\ude00"]}'),
    (2**70, "1180591620717411303424"),
    (-(2**20000), '{"~":"int","v":"-0x1' + "0" * 5000 + '"}'),
    ([1, [], {}], "[1,[],{}]"),
    ({"a": {"b": None}}, '{"a":{"b":null}}'),
    ({"~": "x", "v": 1}, '{"~":"dict","v":[["~","x"],["v",1]]}'),
    ({"\ud83d\ude00": 1}, r'{"~":"dict","v":[[{"~":"str","v":["\ud83d","\ude00"]},1]]}'),
    ({1: "a", None: "b"}, '{"~":"dict","v":[[1,"a"],[null,"b"]]}'),
    ((), '{"~":"tuple","v":[]}'),
    ({3}, '{"~":"set","v":[3]}'),
    (frozenset({3}), '{"~":"frozenset","v":[3]}'),
    (datetime(2024, 2, 29, 12, 30, 0, 7, UTC), '{"~":"datetime","v":"2024-02-29T12:30:00.000007+00:00"}'),
    (date(2024, 2, 29), '{"~":"date","v":"2024-02-29"}'),
    (time(1, 30), '{"~":"time","v":"01:30:00"}'),
    (time(1, 30, fold=1), '{"~":"time","v":["01:30:00",1]}'),
    (timedelta(days=-1, microseconds=3), '{"~":"timedelta","v":-86399999997}'),
    (UUID(int=7), '{"~":"uuid","v":"00000000-0000-0000-0000-000000000007"}'),
    (Decimal("1.10"), '{"~":"decimal","v":"1.10"}'),
    (Decimal("-sNaN3"), '{"~":"decimal","v":"-sNaN3"}'),
    (b"\x00\xff", '{"~":"bytes","v":"AP8="}'),
    (Color.ROUGE, '{"~":"enum","v":["tests.unit.serialization.samples:Color","RED"]}'),
    (Status.OPEN, '{"~":"enum","v":["tests.unit.serialization.samples:Status","OPEN"]}'),
    (Permission.BOTH, '{"~":"enum","v":["tests.unit.serialization.samples:Permission",["READ","WRITE"]]}'),
    (Bits(65), '{"~":"enum","v":["tests.unit.serialization.samples:Bits",["ONE",64]]}'),
    (
        Pair(1, 2),
        '{"~":"namedtuple","v":["tests.unit.serialization.samples:Pair",{"left":1,"right":2}]}',
    ),
    (Point(1, 2), '{"~":"dataclass","v":["tests.unit.serialization.samples:Point",{"x":1,"y":2}]}'),
    (Outer.Inner(1), '{"~":"dataclass","v":["tests.unit.serialization.samples:Outer.Inner",{"value":1}]}'),
    (RecordRef("sa", "m:User", (1, "x")), '{"~":"record","v":["sa","m:User",1,"x"]}'),
]


@given(values)
@example(["~"])
@example({"~": {"~": {"v": "~"}}})
@example({(1, 2): {frozenset({Point(1)}): Size.LARGE}})
def test_every_storable_value_comes_back_the_same(value: Any) -> None:
    """loads(dumps(x)) is x again, with the same types, for every listed type at any depth."""
    text = codec.dumps(value, what="result")
    assert is_same(value, codec.loads(text, what="result")), text


@given(values)
def test_stored_text_is_ascii_json(value: Any) -> None:
    """Any database, driver and character set can keep the text, and any tool can parse it."""
    text = codec.dumps(value, what="result")
    assert text.isascii()
    assert "\x00" not in text
    json.loads(text, parse_constant=pytest.fail)


@given(plain_values)
def test_hot_path_writes_what_the_careful_encoder_writes(value: Any) -> None:
    """The short cut for plain trees is a short cut: it never changes what is stored."""
    fast = plain_text(value)
    if fast is not None:
        assert fast == ENCODER.encode(Encoder(Extensions([])).encode(value))


@pytest.mark.parametrize(("value", "text"), STORED, ids=[text[:40] for _, text in STORED])
def test_stored_form_is_fixed(value: Any, text: str) -> None:
    """Rows live longer than versions: what one version writes, every later one writes and reads alike."""
    assert codec.dumps(value, what="result") == text
    assert is_same(value, codec.loads(text, what="result"))


def test_zones_become_utc_and_instants_stay() -> None:
    """A datetime keeps its instant, the second pass through a repeated hour included, and not its zone."""
    first = datetime(2023, 10, 29, 2, 30, tzinfo=ZONES[1])
    second = first.replace(fold=1)
    back = codec.roundtrip([first, second])
    assert back == [datetime(2023, 10, 29, 0, 30, tzinfo=UTC), datetime(2023, 10, 29, 1, 30, tzinfo=UTC)]


def test_dict_order_is_kept() -> None:
    """A dict comes back in the order in which it was filled, with any keys."""
    plain = {"b": 1, "a": 2}
    mixed = {"b": 1, 2: 2, "a": 3}
    assert list(codec.roundtrip(plain)) == ["b", "a"]
    assert list(codec.roundtrip(mixed)) == ["b", 2, "a"]


def test_shared_objects_are_no_cycle() -> None:
    """The same object in two places is stored twice; only an object inside itself is refused."""
    line = Line("a")
    assert codec.roundtrip([line, line, (line,)]) == [line, line, (line,)]


def test_post_init_does_not_change_what_was_stored() -> None:
    """A dataclass is rebuilt as it was, though its __post_init__ runs again for what is no field."""
    value = Shouting("hey")
    back = codec.roundtrip(value)
    assert (back.text, back.length) == ("hey!", 5)  # what is no field is made anew


def test_fields_outside_init_come_back() -> None:
    """Fields with init=False are stored too; one that was never set stays unset."""
    value = Total(net=1)
    value.gross = "corrected"
    back = codec.roundtrip(value)
    assert back.gross == "corrected"
    assert not hasattr(back, "note")
    value.note = ["late"]
    assert codec.roundtrip(value).note == ["late"]


def test_own_init_gets_only_what_it_takes() -> None:
    """A dataclass with an __init__ of its own is called with the fields that it takes, and then completed."""
    value = Odd(b=2)
    value.a = "changed"
    back = codec.roundtrip(value)
    assert (back.a, back.b) == ("changed", 2)


@pytest.mark.parametrize("value", [None, True, 17, "text", 2**70])
def test_roundtrip_leaves_immutable_scalars_alone(value: Any) -> None:
    """What cannot change needs no copy."""
    assert codec.roundtrip(value) is value


def test_roundtrip_gives_an_independent_copy() -> None:
    """What a step answers is what a replay will read: later changes to the original do not reach it."""
    original: dict[str, Any] = {"lines": [1]}
    copy: Any = codec.roundtrip(original)
    original["lines"].append(2)
    assert copy == {"lines": [1]}
