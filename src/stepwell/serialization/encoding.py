"""The careful encoder: any storable value to a tree of plain JSON, or an error that says where and why."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Final

from stepwell.errors import Unstorable
from stepwell.serialization.classes import stable_name
from stepwell.serialization.enums import member_form
from stepwell.serialization.extensions import Custom, Extensions
from stepwell.serialization.objects import kind_of
from stepwell.serialization.paths import (
    Misfit,
    at_field,
    at_index,
    at_key,
    at_record_key,
    in_keys,
    in_set,
    same_place,
    with_article,
)
from stepwell.serialization.plain import MAX_DEPTH, TAG, tagged
from stepwell.serialization.records import RecordRef
from stepwell.serialization.refusals import refusal
from stepwell.serialization.scalars import SCALARS, Scalar

__all__ = ["PLAIN_FORMS", "Encoder", "Form", "dict_pairs"]

Form = Callable[["Encoder", Any], object]

_ALWAYS_CONVERTED_BITS: Final = 2048
"""Python refuses to convert ints with very many digits, but never ones below 640 digits."""

_BETWEEN_SURROGATES: Final = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")


class Encoder:
    """Encodes one value; made anew for each.

    Attributes:
        forms: How each exact type is written.
        keeps_unset: Whether to write which fields of a pydantic model have only their defaults.
    """

    forms: ClassVar[Mapping[type, Form]]
    keeps_unset: ClassVar[bool] = True

    def __init__(self, extensions: Extensions) -> None:
        self._extensions = extensions
        self._open: set[int] = set()

    def encode(self, value: object) -> object:
        """The plain JSON tree for a value.

        Raises:
            Misfit: Something in it cannot be stored.
        """
        form = self.forms.get(type(value))
        return self.encode_object(value) if form is None else form(self, value)

    def walk(
        self, parent: object, children: Iterable[tuple[object, object]], step: Callable[[object], str]
    ) -> list[object]:
        """Encode what a value holds, each child with the key that ``step`` shows in a path."""
        if id(parent) in self._open:
            raise Misfit(
                "an object that contains itself", "Store ids in place of the objects that point back."
            )
        if len(self._open) >= MAX_DEPTH:
            raise Misfit(
                f"nested more than {MAX_DEPTH} levels deep",
                "Store a flat list of nodes that refer to each other by id.",
            )
        self._open.add(id(parent))
        encoded = []
        for key, child in children:
            try:
                encoded.append(self.encode(child))
            except Misfit as misfit:
                misfit.within(step(key))
                raise
        self._open.discard(id(parent))
        return encoded

    def encode_object(self, value: object) -> object:
        """A value whose type is in no table: registered, an Enum, a record, or an object with fields."""
        cls = type(value)
        custom = self._extensions.by_class.get(cls)
        if custom is not None:
            return self._custom(custom, value)
        try:
            if isinstance(value, Enum):
                return tagged("enum", [stable_name(cls), member_form(value)])
            reference = self._extensions.reference(value)
            if reference is not None:
                return self.encode(reference)
            kind = kind_of(cls)
            if kind is None or (kind.tag != "namedtuple" and not self.forms.keys().isdisjoint(cls.__mro__)):
                raise refusal(value, self.forms)
            name = stable_name(cls)
        except Unstorable as error:
            raise Misfit(f"{with_article(cls.__qualname__)}: {error}") from error
        fields, unset = kind.take(value)
        written = dict(zip(fields, self.walk(value, fields.items(), at_field), strict=True))
        return tagged(kind.tag, [name, written, unset] if unset and self.keeps_unset else [name, written])

    def _custom(self, custom: Custom, value: object) -> object:
        cls = custom.type
        try:
            made = custom.encode(value)
        except Exception as error:
            raise Misfit(
                f"{with_article(cls.__qualname__)}, and its encoder raised {type(error).__name__}: {error}",
                f"Correct the encoder that was registered with the tag {custom.tag!r}.",
            ) from error
        return tagged("custom", [custom.tag, *self.walk(value, [(None, made)], same_place)])


def _scalar(scalar: Scalar) -> Form:
    return lambda encoder, value: tagged(scalar.tag, scalar.encode(value))


def _itself(encoder: Encoder, value: object) -> object:
    return value


def _int(encoder: Encoder, value: int) -> object:
    if value.bit_length() > _ALWAYS_CONVERTED_BITS:
        try:
            str(value)
        except ValueError:  # more digits than this process converts
            return tagged("int", hex(value))
    return value


def _float(encoder: Encoder, value: float) -> object:
    if not math.isfinite(value):
        raise Misfit(
            f"the float {value!r}, which JSON has no number for", "Use None, a string or a Decimal instead."
        )
    return value


def _has_pair(text: str) -> bool:
    return not text.isascii() and _BETWEEN_SURROGATES.search(text) is not None


def _str(encoder: Encoder, value: str) -> object:
    return tagged("str", _BETWEEN_SURROGATES.split(value)) if _has_pair(value) else value


def _list(encoder: Encoder, value: list[object]) -> object:
    return encoder.walk(value, enumerate(value), at_index)


def _dict(encoder: Encoder, value: dict[object, object]) -> object:
    if TAG not in value and all(type(key) is str and not _has_pair(key) for key in value):
        return dict(zip(value, encoder.walk(value, value.items(), at_key), strict=True))
    return tagged("dict", dict_pairs(encoder, value))


def dict_pairs(encoder: Encoder, value: dict[object, object]) -> list[list[object]]:
    """A dict whose keys JSON cannot hold, as pairs."""
    keys = encoder.walk(value, enumerate(value), in_keys)
    values = encoder.walk(value, value.items(), at_key)
    return [[key, item] for key, item in zip(keys, values, strict=True)]


def _tuple(encoder: Encoder, value: tuple[object, ...]) -> object:
    return tagged("tuple", encoder.walk(value, enumerate(value), at_index))


def _set(encoder: Encoder, value: set[object] | frozenset[object]) -> object:
    return tagged(type(value).__name__, encoder.walk(value, enumerate(value), in_set))


def _record(encoder: Encoder, value: RecordRef) -> object:
    key = encoder.walk(value, enumerate(value.key), at_record_key)
    return tagged("record", [value.adapter, value.type, *key])


PLAIN_FORMS: Final[Mapping[type, Form]] = {
    type(None): _itself,
    bool: _itself,
    int: _int,
    float: _float,
    str: _str,
    list: _list,
    dict: _dict,
}

Encoder.forms = {
    **PLAIN_FORMS,
    **{scalar.type: _scalar(scalar) for scalar in SCALARS},
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    RecordRef: _record,
}
