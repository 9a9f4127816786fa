"""What cannot be stored is refused where it is given: what it is, where it is, and what to do."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from enum import Enum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import TooLarge, Unstorable
from stepwell.serialization import Codec, stable_name
from stepwell.serialization.plain import MAX_DEPTH
from tests.unit.serialization.samples import Box, Color, Line, Pair, Point, Size, ToyZone

codec = Codec()


class Text(str):
    __slots__ = ()


class Moment(datetime):
    pass


class Thing:
    def __repr__(self) -> str:
        raise RuntimeError("no text for this")


@dataclass
class Asking:
    a: int
    secret: InitVar[str]


@dataclass
class Keyed(dict[str, int]):
    a: int = 0


class Loose(NamedTuple("Loose", [("a", int)])):
    pass


class Replaced(Enum):
    ONE = 1


Gone = Replaced


class Replaced(Enum):  # type: ignore[no-redef]  # as a notebook does when a cell runs again
    ONE = 1


Anonymous = make_dataclass("Nameless", ["a"])
Generic = type("Generic[int]", (), {"__dataclass_fields__": {}})


def local_class() -> Any:
    @dataclass
    class Local:
        a: int = 1

    return Local()


def generator() -> Any:
    yield 1


async def coroutine() -> None:
    return None


def refused(value: Any, what: str = "result of step 'ship'") -> str:
    with pytest.raises(Unstorable) as caught:
        codec.dumps(value, what=what)
    return str(caught.value)


SHIP = "result of step 'ship' cannot be stored: "

MESSAGES: list[tuple[Any, str]] = [
    (
        {"lines": [0, 0, 0, Line("a", float("nan"))]},
        "result['lines'][3].price is the float nan, which JSON has no number for. "
        "Use None, a string or a Decimal instead.",
    ),
    (
        [float("-inf")],
        "result[0] is the float -inf, which JSON has no number for. Use None, a string or a Decimal instead.",
    ),
    (
        {"at": datetime(2024, 1, 1)},
        "result['at'] is a datetime without a time zone, which is a different instant on each machine. "
        "Say which zone is meant: datetime.now(UTC), or value.replace(tzinfo=UTC).",
    ),
    (
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        "result is an instant that lies outside the years 1 to 9999 in UTC. "
        "Use None for 'never' and 'always'.",
    ),
    (
        time(1, tzinfo=ToyZone()),
        "result is a time of day in a zone whose offset depends on the date. "
        "Store the time without its zone, and the zone's name beside it.",
    ),
    (
        (Text("a"),),
        "result[0] is a Text, a subclass of str that would come back as a plain str. "
        "Convert it to a plain str, or teach the codec: codec.register(Text, 'a-tag', encode, decode).",
    ),
    (
        {"n": Counter("ab")},
        "result['n'] is a Counter, a subclass of dict that would come back as a plain dict. "
        "Convert it to a plain dict, or teach the codec: codec.register(Counter, 'a-tag', encode, decode).",
    ),
    (
        [OrderedDict()],
        "result[0] is an OrderedDict, a subclass of dict that would come back as a plain dict. "
        "Convert it to a plain dict, or teach the codec: "
        "codec.register(OrderedDict, 'a-tag', encode, decode).",
    ),
    (
        Moment(2024, 1, 1, tzinfo=UTC),
        "result is a Moment, a subclass of datetime that would come back as a plain datetime. "
        "Convert it to a plain datetime, "
        "or teach the codec: codec.register(Moment, 'a-tag', encode, decode).",
    ),
    (
        Keyed(),
        "result is a Keyed, a subclass of dict that would come back as a plain dict. "
        "Convert it to a plain dict, or teach the codec: codec.register(Keyed, 'a-tag', encode, decode).",
    ),
    (
        {"x": Thing()},
        "result['x'] is a Thing. Store the data in it, make it a dataclass, "
        "or teach the codec: codec.register(Thing, 'a-tag', encode, decode).",
    ),
    (generator(), "result is a generator. It has not run yet: collect its items in a list first."),
    ([lambda: 1], "result[0] is a function. Store data that tells which one is meant."),
    ([Color], "result[0] is an EnumType. Store data that tells which one is meant."),
    (
        {"error": ValueError("x")},
        "result['error'] is a ValueError. Use str(error), or the data that it carries.",
    ),
    (bytearray(b"x"), "result is a bytearray. Use bytes(value)."),
    ({"r": range(3)}, "result['r'] is a range. Use list(value)."),
    (map(str, []), "result is a map. Use list(value)."),
    (
        {(1, object()): "x"},
        "result.keys()[0][1] is an object. Store the data in it, make it a dataclass, "
        "or teach the codec: codec.register(object, 'a-tag', encode, decode).",
    ),
    (
        {(1, "k"): {2: [object()]}},
        "result[(1, 'k')][2][0] is an object. Store the data in it, make it a dataclass, "
        "or teach the codec: codec.register(object, 'a-tag', encode, decode).",
    ),
    ([{"s": {Text("a")}}], "result[0]['s']{...} is a Text, a subclass of str"),
    (Pair(1, Box([object()])), "result.right.content[0] is an object."),
    (
        Asking(1, "s"),
        "result is an Asking, whose __init__ takes what no field keeps: 'secret'. "
        "Teach the codec: codec.register(Asking, 'a-tag', encode, decode).",
    ),
    (
        {"p": local_class()},
        "result['p'] is a local_class.<locals>.Local: its class is defined inside a function "
        "(local_class.<locals>.Local), where no other process can find it. "
        "Move Local to the top level of a module, "
        "or teach the codec: codec.register(Local, 'a-tag', encode, decode).",
    ),
    (
        Gone.ONE,
        f"result is a Replaced: its class cannot be found again as {__name__}:Replaced, "
        "because another object has that name now. Move Replaced to the top level of a module, "
        "or teach the codec: codec.register(Replaced, 'a-tag', encode, decode).",
    ),
]


@pytest.mark.parametrize(("value", "message"), MESSAGES, ids=[message[:50] for _, message in MESSAGES])
def test_refusal_says_what_where_and_what_next(value: Any, message: str) -> None:
    """A refusal names the value's kind, its path, and a way out."""
    assert refused(value).startswith(SHIP + message)


def test_coroutine_is_refused() -> None:
    """A step that forgot to await is told so, and the coroutine is not stored as something else."""
    forgotten = coroutine()
    try:
        assert refused([forgotten]).endswith(
            "result[0] is a coroutine. It has not run yet: await it, and store what it gives."
        )
    finally:
        forgotten.close()


def test_made_up_classes_are_refused() -> None:
    """A class that stands nowhere under its own name is refused when it is written, not when it is read."""
    assert "because there is nothing of that name" in refused(Anonymous(1))
    with pytest.raises(
        Unstorable, match=r"is made on the fly from a generic one.*class IntGeneric\(Generic\[int\]\)"
    ):
        stable_name(Generic)


def test_named_tuple_with_more_than_its_fields_is_refused() -> None:
    """Attributes beside the fields would be lost."""
    loose = Loose(1)
    assert codec.roundtrip(loose) == loose
    loose.extra = 2
    assert (
        "result is a named tuple with attributes beside its fields (extra). Make it a dataclass"
        in refused(loose)
    )


def test_dataclass_without_a_needed_field_is_refused() -> None:
    """An instance that could not be made again is refused when it is written."""
    broken = Line("a")
    del broken.sku
    assert "result is a Line without its 'sku'. Set it before it is stored." in refused(broken)


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {"a": x}, lambda x: (x,), lambda x: Point(x)])
def test_depth_is_limited(wrap: Any) -> None:
    """A hundred levels may be nested, in any containers, and not one more."""
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = wrap(value)
    assert codec.roundtrip(value) == value
    message = refused(wrap(value))
    assert "...88 more..." in message
    assert message.endswith(
        "is nested more than 100 levels deep. Store a flat list of nodes that refer to each other by id."
    )


def test_empty_container_counts_as_a_level() -> None:
    """The short cut for plain trees and the careful encoder agree on the depth."""
    value: Any = []
    for _ in range(MAX_DEPTH):
        value = [value]
    assert "more than 100 levels" in refused(value)


def test_cycles_are_refused() -> None:
    """An object that contains itself is found at its place, through lists, dicts and objects."""
    plain: list[Any] = [1]
    plain.append({"back": plain})
    assert refused(plain).startswith(SHIP + "result[1]['back'] is an object that contains itself. Store ids")
    box: Box[Any] = Box(None)
    box.content = (box,)
    assert "result.content[0] is an object that contains itself" in refused(box)
    wide: list[Any] = []
    wide += [wide, wide]
    assert "result[0] is an object that contains itself" in refused(wide)


def test_path_is_an_attribute() -> None:
    """Programs read the path without parsing the message."""
    with pytest.raises(Unstorable) as caught:
        codec.dumps({"a": [object()]}, what="arguments of Onboarding")
    assert caught.value.path == "arguments['a'][0]"
    assert str(caught.value).startswith(
        "arguments of Onboarding cannot be stored: arguments['a'][0] is an object."
    )


def test_long_and_strange_keys_are_shown_short() -> None:
    """A key of any length or class fits into a message, and its own repr cannot hide the error."""
    assert "result['kkkkkkkkkkkk...kkkkkkkkkkkkk'] is an object" in refused({"k" * 5000: object()})

    assert "result[<int>] is an object" in refused({10**5000: object()})

    class Loud:
        __hash__ = object.__hash__

        def __repr__(self) -> str:
            raise RuntimeError

    registered = Codec()
    registered.register(Loud, "loud", lambda value: 1, lambda value: Loud())
    with pytest.raises(Unstorable, match=r"result\[.*Loud.*\] is an object"):
        registered.dumps({Loud(): object()}, what="result")


@given(st.data())
def test_path_leads_to_the_trouble(data: st.DataObject) -> None:
    """Evaluated as Python, the path of a refusal gives the very object that was refused."""
    culprit = threading.Lock()
    value: Any = culprit
    wrappers = [
        lambda x: [1, x],
        lambda x: {"a": 1, "b": x},
        lambda x: {7: x},
        lambda x: {"~": x},
        lambda x: (x, 2),
        lambda x: Point(0, x),
        lambda x: Pair(x),
    ]
    for index in data.draw(st.lists(st.integers(0, len(wrappers) - 1), max_size=6)):
        value = wrappers[index](value)
    with pytest.raises(Unstorable) as caught:
        codec.dumps(value, what="result")
    assert eval(caught.value.path, {"result": value}) is culprit


def test_limit_counts_bytes_of_the_text() -> None:
    """In UTF-8, whatever the script: that what is stored is escaped is nobody's concern."""
    assert codec.dumps("é", what="result", limit=4) == r'"\u00e9"'
    assert codec.dumps("\ud800", what="result", limit=5) == r'"\ud800"'
    with pytest.raises(TooLarge) as caught:
        codec.dumps("é", what="result of step 'ship'", limit=3)
    assert (caught.value.size, caught.value.limit, caught.value.path) == (4, 3, "result")
    assert str(caught.value) == (
        "result of step 'ship' is too large: 4 bytes of JSON where 3 are allowed. "
        "Keep the data in a table or a file, and store what identifies it."
    )


def test_too_large_value_says_where_most_of_it_is() -> None:
    """The largest part is named, so that nobody has to search for it."""
    value = {"id": 1, "pages": [{"text": "x" * 5000, "n": 1}, {"text": "y"}]}
    with pytest.raises(
        TooLarge, match=r"5,0\d\d bytes of JSON where 1,000 are allowed, most of it in"
    ) as caught:
        codec.dumps(value, what="result", limit=1000)
    assert caught.value.path == "result['pages'][0]['text']"
    with pytest.raises(TooLarge) as caught:
        codec.dumps_json(value, what="context", limit=1000)
    assert caught.value.path == "context['pages'][0]['text']"


CONTEXT: list[tuple[Any, str]] = [
    ({"a": (1,)}, "context['a'] is of type tuple, and the context holds plain JSON only. Use list(value)."),
    ([datetime(2024, 1, 1, tzinfo=UTC)], "context[0] is of type datetime, .* Use value.isoformat()."),
    (timedelta(1), "context is of type timedelta, .* Use value.total_seconds()."),
    (Size.SMALL, "context is of type Size, .* Use value.name or value.value."),
    ({"a": Text("x")}, "context['a'] is of type Text, .* Use str(value)."),
    ([Counter()], "context[0] is of type Counter, .* Use dict(value)."),
    ({1: "a"}, "context.keys()[0] is of type int, and JSON's keys are strings. Use str(key)."),
    ({"a": {Size.SMALL: 1}}, "context['a'].keys()[0] is of type Size, and JSON's keys are strings."),
    ({Text("a"): 1}, "context.keys()[0] is of type Text, and JSON's keys are strings."),
    ([float("nan")], "context[0] is the float nan, which JSON has no number for."),
    (b"x", "context is of type bytes, .* Use value.hex() or base64."),
    (
        Line("a"),
        "context is of type Line, .* Keep its id or its data; arguments and results of steps may hold",
    ),
]


@pytest.mark.parametrize(("value", "message"), CONTEXT, ids=[message[:40] for _, message in CONTEXT])
def test_context_takes_plain_json_only(value: Any, message: str) -> None:
    """Context values are refused and never converted: what is read is what was put in."""
    with pytest.raises(Unstorable) as caught:
        codec.dumps_json(value, what="context")
    start, _, end = message.partition(" .* ")
    assert str(caught.value).startswith(f"context cannot be stored: {start}")
    assert end in str(caught.value)


def test_context_keeps_every_plain_tree() -> None:
    """Strings that JSON or the codec would take for something else are context values like any others."""
    value = {"~": ["\ud83d\ude00", "\x00", None, True, 10**5000, -0.0], "": {}}
    assert codec.loads(codec.dumps_json(value, what="context"), what="context") == value


@dataclass
class Outcome:
    details: dict[str, Any] = field(default_factory=dict)


def test_refused_value_changes_nothing() -> None:
    """After a refusal the codec works on, and the value is untouched."""
    value = Outcome({"a": [1, object()]})
    refused(value)
    value.details["a"].pop()
    assert codec.roundtrip(value) == Outcome({"a": [1]})
