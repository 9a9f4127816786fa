"""One text for each value, the same in every process and version: what digests and keys are made of.

Equal values of one type have one text, whatever order their dicts and sets were filled in, whatever zone
their instants were given in, however many zeros a Decimal ends with. Values of different types never have the
same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import time
from decimal import Decimal
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, ClassVar, Final

from stepwell.serialization.encoding import Encoder, Form, dict_pairs
from stepwell.serialization.extensions import Extensions
from stepwell.serialization.plain import SORTED_ENCODER, TAG, plain_text, tagged

__all__ = ["canonical_text"]


_FEW: Final = 3
_LARGE: Final = 2**63
_KEYS: Final = frozenset({str})


class _CanonicalEncoder(Encoder):
    forms: ClassVar[Mapping[type, Form]]
    keeps_unset = False


def canonical_text(value: object, extensions: Extensions) -> str:
    """The text of a value that is the same wherever and whenever it is made.

    Raises:
        Misfit: Something in it cannot be stored.
    """
    text = _simple_text(value) or _flat_text(value) or plain_text(value, SORTED_ENCODER)
    if text is None or "-0.0" in text:
        text = _text(_CanonicalEncoder(extensions).encode(value))
    return text


def _simple_text(value: object) -> str | None:
    """The text of a string or a whole number, made in a fraction of the time: a long replay needs thousands."""
    if type(value) is int:
        return str(value) if -_LARGE < value < _LARGE else None
    if type(value) is not str:
        return None
    text = _quoted(value)
    # What may be a surrogate is looked at with care.
    return None if "\\ud" in text else text


def _flat_text(value: object) -> str | None:
    """The text of a dict of a few simple values, made in half the time."""
    if type(value) is not dict or len(value) > _FEW or TAG in value or not _KEYS.issuperset(map(type, value)):
        return None
    parts = []
    for name in sorted(value) if len(value) > 1 else value:
        item, quoted = _simple_text(value[name]), _simple_text(name)
        if item is None or quoted is None:
            return None
        parts.append(f"{quoted}:{item}")
    return f"{{{','.join(parts)}}}"


def _text(tree: object) -> str:
    return SORTED_ENCODER.encode(tree)


def _float(encoder: Encoder, value: float) -> object:
    return Encoder.forms[float](encoder, value + 0.0)  # -0.0 + 0.0 is 0.0


def _decimal(encoder: Encoder, value: Decimal) -> object:
    if not value.is_finite():
        return tagged("decimal", str(value))
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    short = text.rstrip("0")  # Decimal.normalize would round to the current context's precision
    if not short:
        return tagged("decimal", "0")
    return tagged("decimal", f"{'-' if sign else ''}{short}E{int(exponent) + len(text) - len(short)}")


def _time(encoder: Encoder, value: time) -> object:
    return Encoder.forms[time](encoder, value.replace(fold=0))


def _set(encoder: Encoder, value: Any) -> object:
    form: Any = Encoder.forms[set](encoder, value)
    return {**form, "v": sorted(form["v"], key=_text)}


def _dict(encoder: Encoder, value: dict[object, object]) -> object:
    form: Any = Encoder.forms[dict](encoder, value)
    if TAG not in form:
        return form
    return tagged("dict", sorted(dict_pairs(encoder, value), key=_text))


_CanonicalEncoder.forms = {
    **Encoder.forms,
    float: _float,
    Decimal: _decimal,
    time: _time,
    set: _set,
    frozenset: _set,
    dict: _dict,
}
