"""What an application adds to a codec: registered classes and record adapters."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import pytest

from stepwell.errors import RecordGone, Undecodable, Unstorable
from stepwell.serialization import Codec, RecordAdapter, RecordRef
from tests.unit.serialization.samples import Line


class Money:
    def __init__(self, amount: Decimal, currency: str) -> None:
        self.amount = amount
        self.currency = currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # mutable


class Price(Money):
    pass


@dataclass
class User:
    """A record that is a dataclass as well, as mapped classes may be."""

    id: int | None
    name: str = ""


class Users:
    """An adapter over a dict."""

    tag = "toy"

    def __init__(self, tag: str = "toy") -> None:
        self.tag = tag
        self.asked: list[object] = []

    def handles(self, value: object) -> bool:
        self.asked.append(value)
        return isinstance(value, User)

    def reference(self, record: object) -> RecordRef:
        assert isinstance(record, User)
        if record.id is None:
            raise Unstorable("it has no primary key yet. Flush it first.")
        return RecordRef(self.tag, "shop:User", (record.id,))

    def load(self, ref: RecordRef, source: object) -> object:
        assert isinstance(source, dict)
        try:
            return source[ref.key]
        except KeyError:
            raise RecordGone(f"{ref.type} {ref.key} is gone") from None


def money_codec() -> Codec:
    codec = Codec()
    codec.register(Money, "money", lambda m: (m.amount, m.currency), lambda parts: Money(*parts))
    return codec


def test_registered_class_is_stored_anywhere() -> None:
    """A registered class comes back, also inside other values, and its parts may be of any storable type."""
    codec = money_codec()
    value = {"a": [Money(Decimal("1.50"), "EUR")], "line": Line("x", Money(Decimal(2), "USD"))}
    text = codec.dumps(value, what="result")
    assert codec.loads(text, what="result") == value
    assert '{"~":"custom","v":["money",{"~":"tuple","v":[{"~":"decimal","v":"1.50"},"EUR"]}]}' in text
    assert codec.canonical(Money(Decimal("1.5"), "EUR")) == codec.canonical(Money(Decimal("1.50"), "EUR"))


def test_registration_is_for_one_class() -> None:
    """A subclass would come back as its base, so it is refused."""
    with pytest.raises(Unstorable, match=r"result is a Price. Store the data in it"):
        money_codec().dumps(Price(Decimal(1), "EUR"), what="result")


def test_registration_goes_before_the_class_s_own_form() -> None:
    """A dataclass or Enum can be given a form that survives its move to another module."""

    class Local(Enum):
        A = 1

    codec = Codec()
    codec.register(Line, "line", lambda line: line.sku, lambda sku: Line(sku))
    codec.register(Local, "local", lambda member: member.name, lambda name: Local[name])
    assert codec.dumps(Line("x", 9), what="result") == '{"~":"custom","v":["line","x"]}'
    assert codec.roundtrip((Line("x"), Local.A)) == (Line("x"), Local.A)


def test_conflicting_registrations_are_told() -> None:
    """A tag or a class registered twice would make old rows ambiguous."""
    codec = money_codec()
    with pytest.raises(ValueError, match=r"^Money is registered already, with the tag 'money'$"):
        codec.register(Money, "cash", str, lambda text: Money(text, ""))
    with pytest.raises(
        ValueError, match=r"^the tag 'money' is taken by Money; choose another one for PurePosixPath$"
    ):
        codec.register(PurePosixPath, "money", str, PurePosixPath)
    codec.register(PurePosixPath, "path", str, PurePosixPath)
    assert codec.roundtrip([PurePosixPath("a/b")]) == [PurePosixPath("a/b")]


@pytest.mark.parametrize(
    ("cls", "tag", "message"),
    [
        ("Money", "m", "^register\\(\\) takes a class, not 'Money'$"),
        (dict, "m", "^dict has a fixed form and cannot be registered; wrap it in a dataclass$"),
        (Decimal, "m", "^Decimal has a fixed form"),
        (Money, "", "^the tag of Money must be a non-empty str, not ''$"),
        (Money, 7, "^the tag of Money must be a non-empty str, not 7$"),
    ],
)
def test_senseless_registrations_are_told(cls: Any, tag: Any, message: str) -> None:
    """A wrong argument is an error where the class is registered, not where a run is read."""
    with pytest.raises(TypeError, match=message):
        Codec().register(cls, tag, str, str)


def test_errors_of_registered_functions_are_told() -> None:
    """What an encoder or decoder raises is chained, with the path of the value."""
    codec = Codec()
    codec.register(Money, "money", lambda m: m.missing, lambda parts: 1 / 0)
    with pytest.raises(Unstorable) as refused:
        codec.dumps([Money(Decimal(1), "EUR")], what="result")
    assert str(refused.value) == (
        "result cannot be stored: result[0] is a Money, and its encoder raised AttributeError: "
        "'Money' object has no attribute 'missing'. "
        "Correct the encoder that was registered with the tag 'money'."
    )
    assert isinstance(refused.value.__cause__, AttributeError)
    with pytest.raises(
        Undecodable, match=r"its decoder raised ZeroDivisionError: division by zero. Correct the dec"
    ):
        codec.loads('{"~":"custom","v":["money",1]}', what="result")


def test_encoder_must_give_something_storable() -> None:
    """An encoder that gives the value itself, or another unknown one, is told at the value's path."""
    codec = Codec()
    codec.register(Money, "money", lambda m: m, lambda m: m)
    with pytest.raises(Unstorable, match=r"result\['a'\] is an object that contains itself"):
        codec.dumps({"a": Money(Decimal(1), "EUR")}, what="result")


def test_records_are_stored_as_references() -> None:
    """A record inside any value is stored by type and key, and read back as a reference."""
    codec = Codec(records=[Users()])
    ref = RecordRef("toy", "shop:User", (7,))
    text = codec.dumps({"user": User(7, "Ada"), "all": (User(7), Line("a", User(7)))}, what="result")
    assert '{"~":"record","v":["toy","shop:User",7]}' in text
    assert "Ada" not in text
    assert codec.loads(text, what="result") == {"user": ref, "all": (ref, Line("a", ref))}
    assert codec.canonical([User(7, "Ada")]) == codec.canonical([User(7, "Bob")]) == codec.canonical([ref])


def test_reference_of_one_value() -> None:
    """A hero is turned into its reference; what is no record gives None."""
    codec = Codec(records=[Users()])
    ref = RecordRef("toy", "shop:User", (7,))
    assert codec.reference(User(7)) == ref
    assert codec.reference(ref) is ref
    assert codec.reference(7) is None
    assert codec.reference(Line("a")) is None


def test_record_without_key_is_refused_with_its_path() -> None:
    """The adapter's own words reach the author, at the place of the record."""
    codec = Codec(records=[Users()])
    with pytest.raises(Unstorable) as caught:
        codec.dumps({"user": User(None)}, what="arguments")
    assert str(caught.value) == (
        "arguments cannot be stored: arguments['user'] is a User: it has no primary key yet. Flush it first."
    )
    with pytest.raises(Unstorable, match=r"^it has no primary key yet"):
        codec.reference(User(None))


def test_load_record_asks_the_adapter() -> None:
    """A reference is loaded through the adapter that made it; a record that is gone says so."""
    codec = Codec(records=[Users()])
    ada = User(7, "Ada")
    assert codec.load_record(RecordRef("toy", "shop:User", (7,)), {(7,): ada}) is ada
    with pytest.raises(RecordGone):
        codec.load_record(RecordRef("toy", "shop:User", (8,)), {(7,): ada})
    with pytest.raises(Undecodable) as caught:
        codec.load_record(RecordRef("dj", "shop:User", (8,)), {})
    assert str(caught.value) == (
        "the reference to shop:User (8,) was made by the record adapter 'dj', "
        "which this engine does not have. Give it the adapter that the run was started with."
    )


def test_first_adapter_that_handles_a_record_stores_it() -> None:
    """Adapters are asked in their order; two of one tag are an error."""
    assert Codec(records=[Users("a"), Users("b")]).reference(User(1)) == RecordRef("a", "shop:User", (1,))
    with pytest.raises(ValueError, match=r"^two record adapters have the tag 'a'; give each its own$"):
        Codec(records=[Users("a"), Users("a")])


def test_adapters_are_asked_for_unknown_types_only() -> None:
    """Ordinary values never pay for adapters."""
    users: Any = Users()
    adapter: RecordAdapter = users
    codec = Codec(records=[adapter])
    codec.dumps({"a": [1, (2,), {Decimal(1)}], 2: {"b": None}}, what="result")
    assert users.asked == []


def test_codec_is_shared_by_threads() -> None:
    """Any number of threads may read and write through one codec at the same time."""
    codec = money_codec()
    wrong: list[object] = []

    def work(number: int) -> None:
        value = {"n": number, "m": [Money(Decimal(number), "EUR"), Line(number, (number,))]}
        for _ in range(200):
            back = codec.loads(codec.dumps(value, what="result"), what="result")
            if back != value:
                wrong.append(back)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
