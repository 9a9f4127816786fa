"""The decoder: a tree of plain JSON back to the value that it was made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from stepwell.errors import Undecodable
from stepwell.serialization.classes import find_class
from stepwell.serialization.enums import member_from
from stepwell.serialization.extensions import Extensions
from stepwell.serialization.objects import KINDS, Kind
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
from stepwell.serialization.plain import TAG
from stepwell.serialization.records import RecordRef
from stepwell.serialization.scalars import SCALARS, Scalar

__all__ = ["Decoder"]

_Form = Callable[["Decoder", Any], object]


class Decoder:
    """Decodes one tree; made anew for each."""

    def __init__(self, extensions: Extensions) -> None:
        self.extensions = extensions

    def decode(self, node: Any) -> object:
        """The value that a tree stands for.

        Raises:
            Misfit: The tree is damaged, was written by a newer version, or names a class that has changed.
        """
        kind = type(node)
        if kind is list:
            return self.walk(enumerate(node), at_index)
        if kind is not dict:
            return node
        if TAG in node:
            return self._tagged(node)
        return dict(zip(node, self.walk(node.items(), at_key), strict=True))

    def walk(self, children: Iterable[tuple[Any, Any]], step: Callable[[object], str]) -> list[Any]:
        """Decode each child, with the key that ``step`` shows in a path."""
        decoded = []
        for key, child in children:
            try:
                decoded.append(self.decode(child))
            except Misfit as misfit:
                misfit.within(step(key))
                raise
        return decoded

    def _tagged(self, node: dict[str, Any]) -> object:
        tag = node[TAG]
        form = _FORMS.get(tag) if isinstance(tag, str) else None
        if form is None:
            raise Misfit(
                f"written with the tag {tag!r}, which this version of Stepwell does not know",
                "Upgrade Stepwell where this process runs.",
            )
        try:
            return form(self, node["v"])
        except Misfit:
            raise
        except Exception as error:  # whatever damaged text leads to
            raise Misfit(
                f"a damaged {tag} ({type(error).__name__}: {error})",
                "The row was changed by hand or cut off: restore it, or cancel the run.",
            ) from error


def _scalar(scalar: Scalar) -> _Form:
    return lambda decoder, payload: scalar.decode(payload)


def _class_of(name: str) -> type:
    try:
        return find_class(name)
    except Undecodable as error:
        raise Misfit(f"{with_article(name)}: {error}") from error.__cause__


def _object(kind: Kind) -> _Form:
    def decode(decoder: Decoder, payload: Any) -> object:
        name, fields, *unset = payload
        cls = _class_of(name)
        if not kind.matches(cls):
            raise Misfit(
                f"{with_article(name)}, which is no {kind.tag} any more", f"Make it a {kind.tag} again."
            )
        values = decoder.walk(fields.items(), at_field)
        return kind.make(cls, dict(zip(fields, values, strict=True)), unset[0] if unset else [])

    return decode


def _enum(decoder: Decoder, payload: Any) -> object:
    name, member = payload
    return member_from(_class_of(name), member)


def _custom(decoder: Decoder, payload: Any) -> object:
    tag, form = payload
    custom = decoder.extensions.by_tag.get(tag)
    if custom is None:
        raise Misfit(
            f"written by an encoder with the tag {tag!r}, which is not registered in this process",
            f"Call codec.register(cls, {tag!r}, encode, decode) here as well.",
        )
    (value,) = decoder.walk([(None, form)], same_place)
    try:
        return custom.decode(value)
    except Exception as error:
        raise Misfit(
            f"{with_article(custom.type.__qualname__)}, and its decoder raised "
            f"{type(error).__name__}: {error}",
            f"Correct the decoder that was registered with the tag {tag!r}.",
        ) from error


def _dict(decoder: Decoder, payload: Any) -> object:
    written_keys, written_values = zip(*payload, strict=True) if payload else ((), ())
    keys = decoder.walk(enumerate(written_keys), in_keys)
    values = decoder.walk(zip(keys, written_values, strict=True), at_key)
    return dict(zip(keys, values, strict=True))


def _record(decoder: Decoder, payload: Any) -> object:
    adapter, name, *key = payload
    return RecordRef(adapter, name, tuple(decoder.walk(enumerate(key), at_record_key)))


_FORMS: Final[Mapping[str, _Form]] = {
    **{scalar.tag: _scalar(scalar) for scalar in SCALARS},
    **{tag: _object(kind) for tag, kind in KINDS.items()},
    "int": lambda decoder, payload: int(payload, 16),
    "str": lambda decoder, payload: "".join(payload),
    "tuple": lambda decoder, payload: tuple(decoder.walk(enumerate(payload), at_index)),
    "set": lambda decoder, payload: set(decoder.walk(enumerate(payload), in_set)),
    "frozenset": lambda decoder, payload: frozenset(decoder.walk(enumerate(payload), in_set)),
    "dict": _dict,
    "enum": _enum,
    "custom": _custom,
    "record": _record,
}
