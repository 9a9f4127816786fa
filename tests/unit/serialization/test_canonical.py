"""The canonical text: equal values have one, different values never share one, and every process agrees."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import Unstorable
from stepwell.serialization import Codec, RecordRef
from stepwell.serialization.canonical import _flat_text
from stepwell.serialization.plain import SORTED_ENCODER
from tests.unit.serialization.samples import Line, Pair, Permission, Point, Size, Status, is_same, values

codec = Codec()

DIFFERENT: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    1.0,
    0.0,
    "",
    "1",
    "1.0",
    "null",
    "true",
    "None",
    b"",
    b"1",
    Decimal(1),
    Size.SMALL,
    Status.OPEN,
    "open",
    Permission(0),
    [],
    (),
    {},
    set(),
    frozenset(),
    [1],
    (1,),
    {1},
    {1: 1},
    {"1": 1},
    {True: 1},
    {None: 1},
    {"None": 1},
    [[1], 2],
    [1, [2]],
    [1, 2],
    ["a:b", "c"],
    ["a", "b:c"],
    {"~": "tuple", "v": [1]},
    {"~": "decimal", "v": "1E0"},
    {"tuple": [1]},
    timedelta(1),
    86400,
    Pair(1, 0),
    Point(1, 0),
    Line(1, 0),
    (1, 0),
    {"x": 1, "y": 0},
    "\ud83d\ude00",
    "😀",
    RecordRef("sa", "m:A", (1,)),
    RecordRef("sa", "m:A", ("1",)),
    RecordRef("dj", "m:A", (1,)),
    ["sa", "m:A", 1],
]


def test_different_values_have_different_texts() -> None:
    """No two values that differ in type or content share a text, however alike they look."""
    texts = [codec.canonical(value) for value in DIFFERENT]
    clashes = [pair for pair in combinations(texts, 2) if pair[0] == pair[1]]
    assert clashes == []


def shuffled(value: Any) -> Any:
    """An equal value whose dicts and sets were filled in another order."""
    if type(value) is dict:
        return {shuffled(key): shuffled(item) for key, item in reversed(value.items())}
    if type(value) in (set, frozenset):
        return type(value)(reversed([shuffled(item) for item in value]))
    if type(value) in (list, tuple):
        return type(value)(map(shuffled, value))
    return value


@given(values)
def test_order_of_filling_makes_no_difference(value: Any) -> None:
    """Dicts and sets have one text, whatever order they were filled in, at any depth."""
    assert codec.canonical(shuffled(value)) == codec.canonical(value)


@given(values)
def test_what_is_read_back_has_the_same_text(value: Any) -> None:
    """A digest of stored arguments is the digest of the arguments that were given."""
    assert codec.canonical(codec.roundtrip(value)) == codec.canonical(value)


@given(values, values)
def test_one_text_means_one_value(one: Any, other: Any) -> None:
    """Two values share a text only if they are equal."""
    if codec.canonical(one) == codec.canonical(other):
        assert is_same(shuffled(one), shuffled(other)) or one == other
    else:
        assert not is_same(one, other)


@given(st.decimals(allow_nan=False), st.integers(0, 40))
def test_equal_decimals_have_one_text(number: Decimal, zeros: int) -> None:
    """Zeros that a database adds to a Decimal do not change its digest, nor does a context's precision."""
    with localcontext() as context:
        context.prec = 1
        text = codec.canonical(number)
    if number.is_finite():
        sign, digits, exponent = number.as_tuple()
        longer = Decimal((sign, digits + (0,) * zeros, int(exponent) - zeros))
        assert codec.canonical([longer]) == f"[{text}]"


@given(st.decimals(allow_nan=False), st.decimals(allow_nan=False))
def test_unequal_decimals_differ(one: Decimal, other: Decimal) -> None:
    """Shortening a Decimal never makes two different ones the same."""
    assert (codec.canonical(one) == codec.canonical(other)) == (one == other)


def test_one_instant_has_one_text() -> None:
    """The zone in which an instant was given makes no difference."""
    berlin = timezone(timedelta(hours=2))
    noon = datetime(2024, 6, 1, 12, tzinfo=UTC)
    assert codec.canonical({"at": noon}) == codec.canonical({"at": noon.astimezone(berlin)})


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (time(1), time(1, fold=1)), ([0.0], [-0.0])])
def test_equal_values_with_two_faces(one: Any, other: Any) -> None:
    """What Python takes for equal, and stores apart, has one text."""
    assert one == other
    assert codec.canonical(one) == codec.canonical(other)


FIXED: list[tuple[Any, str]] = [
    ({"b": 1, "a": [True, None, 1.5, "é"]}, r'{"a":[true,null,1.5,"\u00e9"],"b":1}'),
    ({2: "x", 10: "y", "1": "z"}, '{"v":[["1","z"],[10,"y"],[2,"x"]],"~":"dict"}'),
    ({"c", "a", "b"}, '{"v":["a","b","c"],"~":"set"}'),
    (Decimal("100.50"), '{"v":"1005E-1","~":"decimal"}'),
    (Decimal("-1.50"), '{"v":"-15E-1","~":"decimal"}'),
    (Decimal("-0.000"), '{"v":"0","~":"decimal"}'),
    (1e16, "1e+16"),
    (10**16, "10000000000000000"),
    (
        Point(1, (2,)),
        '{"v":["tests.unit.serialization.samples:Point",{"x":1,"y":{"v":[2],"~":"tuple"}}],"~":"dataclass"}',
    ),
    (RecordRef("sa", "m:A", (1, "x")), '{"v":["sa","m:A",1,"x"],"~":"record"}'),
]


@pytest.mark.parametrize(("value", "text"), FIXED, ids=[text[:40] for _, text in FIXED])
def test_canonical_text_is_fixed(value: Any, text: str) -> None:
    """Digests are compared with digests of years ago: the text never changes."""
    assert codec.canonical(value) == text


def test_processes_agree() -> None:
    """The text does not depend on the process's hash seed."""
    program = (
        "from stepwell.serialization import Codec\n"
        "value = [{'red', 'green', 'blue', 1, None, (1, 'x')}, {('a', 1): 1, 'b': {'y', 'z'}}]\n"
        "print(Codec().canonical(value))"
    )
    source = Path(sys.modules["stepwell"].__path__[0]).parent
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(source)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1


def test_canonical_refuses_with_a_path() -> None:
    """What cannot be stored cannot be a key either."""
    with pytest.raises(Unstorable, match=r"^value cannot be stored: value\['a'\]\[0\] is the float nan"):
        codec.canonical({"a": [float("nan")]})
    with pytest.raises(Unstorable, match=r"value\[0\] is an object that contains itself"):
        cycle: list[Any] = []
        cycle.append(cycle)
        codec.canonical(cycle)


@given(st.dictionaries(st.text(max_size=4), st.one_of(st.text(max_size=6), st.integers()), max_size=3))
def test_the_short_way_makes_the_same_text(value: dict[str, object]) -> None:
    """A dict of a few simple values has a way of its own, for the arguments of calls."""
    known = _flat_text(value)
    assert known is None or known == SORTED_ENCODER.encode(value)
