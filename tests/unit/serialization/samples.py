"""Classes to store, and strategies that make any storable value of them."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum, auto
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from hypothesis import strategies as st

from stepwell.serialization import RecordRef

T = TypeVar("T")


class Color(Enum):
    RED = object()  # a value that could not be stored: members go by name
    GREEN = (1, 2)
    ROUGE = RED


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Status(StrEnum):
    OPEN = "open"
    DONE = "done"


class Permission(Flag):
    READ = auto()
    WRITE = auto()
    BOTH = READ | WRITE


class Bits(IntFlag):
    ONE = 1
    FOUR = 4


class Masks(Flag):
    LOW = 0b11  # none of its bits has a member of its own
    HIGH = 0b1100


class Pair(NamedTuple):
    left: Any
    right: Any = "default"


Plain = namedtuple("Plain", ["a", "def"], rename=True)


@dataclass
class Line:
    sku: Any
    price: Any = None
    tags: list[Any] = field(default_factory=list)
    count: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = 0


@dataclass(kw_only=True)
class Total:
    net: Any
    gross: Any = field(init=False)
    note: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.gross = ("computed", self.net)


@dataclass
class Shouting:
    """Not the same when it is made a second time from its own fields."""

    text: str

    def __post_init__(self) -> None:
        self.text += "!"
        self.length = len(self.text)


@dataclass
class Box(Generic[T]):
    content: T


@dataclass(init=False)
class Odd:
    """Its own __init__ takes some of its fields only."""

    a: Any
    b: Any

    def __init__(self, b: Any) -> None:
        self.a = "made"
        self.b = b


class Outer:
    @dataclass
    class Inner:
        value: Any

    class Mood(Enum):
        GOOD = 1


class ToyZone(tzinfo):
    """+2 h in summer, +1 h in winter, a repeated hour on 29 October; needs no zone data of the system."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        if moment is None:
            return None
        wall = moment.replace(tzinfo=None, fold=0)
        start = datetime(wall.year, 3, 26, 2)
        end = datetime(wall.year, 10, 29, 3)
        is_repeated = end - timedelta(hours=1) <= wall < end
        is_summer = start <= wall < end and not (is_repeated and moment.fold)
        return timedelta(hours=2 if is_summer else 1)

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "TOY"


ZONES = [
    UTC,
    ToyZone(),
    timezone(timedelta(hours=-11, minutes=-30)),
    timezone(timedelta(hours=5, minutes=53, seconds=28, microseconds=7), "ODD"),
]


def is_same(one: Any, other: Any) -> bool:
    """Equality as it is promised: the same types throughout; -0.0, NaN and the scale of a Decimal kept."""
    if isinstance(one, datetime):
        return type(other) is datetime and one.astimezone(UTC) == other and other.tzinfo is UTC
    if type(one) is not type(other):
        return False
    if isinstance(one, (float, Decimal, time)):
        return repr(one) == repr(other)
    if isinstance(one, (set, frozenset)):
        return len(one) == len(other) and all(any(is_same(a, b) for b in other) for a in one)
    if isinstance(one, Mapping):
        return is_same(list(one.items()), list(other.items()))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if dataclasses.is_dataclass(one):
        names = [f.name for f in dataclasses.fields(one)]
        return all(is_same(getattr(one, n, "unset"), getattr(other, n, "unset")) for n in names)
    return bool(one == other)


texts = st.text(st.characters(exclude_categories=())) | st.text(
    st.sampled_from('\x00\ud83d\ude00😀~"\\aé\u2028\x7f'), max_size=6
)

plain_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**70, -(2**70), 2**2048, 2**14000, 0, -0.0, 0.0, 5e-324, 1e308])
    | st.integers(4400, 5000).map(lambda digits: -(10**digits))
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)

datetimes = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold),
    st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31))
    | st.datetimes(datetime(2023, 10, 29, 1), datetime(2023, 10, 29, 4)),
    st.sampled_from(ZONES),
    st.integers(0, 1),
)
times = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold),
    st.times(),
    st.sampled_from([None, UTC, ZONES[2]]),
    st.integers(0, 1),
)
decimals = (
    st.decimals()
    | st.sampled_from(["sNaN", "-sNaN12", "NaN7", "-0.00", "1E+999999", "-Infinity", "1.10"]).map(Decimal)
).filter(lambda number: isinstance(number, Decimal))
enums = st.sampled_from([*Color, *Size, *Status, *Permission, *Outer.Mood, *Masks, Masks(3)]) | (
    st.sampled_from(
        [Permission(0), Permission.BOTH, Bits.ONE, Bits(0), Bits(5), Bits(64), Bits(67), ~Bits.ONE]
    )
)

#: Decimals that say nothing when hashed: a signalling NaN raises, a quiet one equals nothing.
hashable_decimals = decimals.filter(lambda number: not number.is_nan())

hashable_scalars = (
    plain_scalars
    | datetimes
    | times
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | hashable_decimals
    | st.binary()
    | enums
)


HASHABLE_SHAPES: list[Callable[[list[Any]], Any]] = [
    tuple,
    frozenset,
    lambda items: Pair(tuple(items)),
    lambda items: Point(len(items), y=tuple(items)),
]

hashables = st.recursive(
    hashable_scalars,
    lambda children: st.builds(
        lambda shape, items: shape(items), st.sampled_from(HASHABLE_SHAPES), st.lists(children, max_size=3)
    ),
    max_leaves=5,
)

records = st.builds(
    RecordRef, st.just("sa"), st.just("shop.models:User"), st.tuples(st.integers(), st.uuids())
)
names = st.sampled_from(["a", "b", "~", "v", ""]) | texts

SHAPES: list[Callable[[list[Any], list[Any]], Any]] = [
    lambda keys, items: items,
    lambda keys, items: dict(zip(keys, items, strict=False)),
    lambda keys, items: dict(zip("abc", items, strict=False)),
    lambda keys, items: dict(zip(["~", "v", "a"], items, strict=False)),
    lambda keys, items: tuple(items),
    lambda keys, items: Pair(items, keys),
    lambda keys, items: Plain(*[*items, None, None][:2]),
    lambda keys, items: Line(items, keys, list(keys)),
    lambda keys, items: Total(net=items),
    lambda keys, items: Box(items),
    lambda keys, items: Odd(items),
    lambda keys, items: Outer.Inner({"keys": keys, "items": items}),
    lambda keys, items: Shouting(repr(len(items))),
]

values = st.recursive(
    hashables | decimals | records | st.sets(hashables, max_size=3),
    lambda children: st.builds(
        lambda shape, keys, items: shape(keys, items),
        st.sampled_from(SHAPES),
        st.lists(hashables, max_size=3),
        st.lists(children, max_size=3),
    ),
    max_leaves=12,
)

plain_values = st.recursive(
    plain_scalars,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(names, children, max_size=4),
    max_leaves=15,
)
