"""The hot path: trees that are plain JSON already, which is what nearly every step returns.

The C encoder of the standard library is fast and too kind: it takes tuples for lists, turns the key ``1``
into ``"1"``, and forgets the class of a ``StrEnum``. So the types are looked at first, in bulk and at C
speed, and only a tree that holds nothing else is given to it.
"""

from __future__ import annotations

from json import JSONDecoder, JSONEncoder
from types import NoneType
from typing import Any, Final

__all__ = ["DECODER", "ENCODER", "MAX_DEPTH", "SORTED_ENCODER", "TAG", "is_plain", "plain_text", "tagged"]

TAG: Final = "~"
"""The key that marks a JSON object as something else than a dict."""

MAX_DEPTH: Final = 100
"""How deep a value may be nested; deeper ones are mistakes, and would meet Python's own limit."""

_SCALARS: Final = frozenset({NoneType, bool, int, float, str})
_CONTAINERS: Final = frozenset({dict, list})
_PLAIN: Final = _SCALARS | _CONTAINERS
_KEYS: Final = frozenset({str})


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Cycles cannot reach the encoders: what is handed to them was walked to its end before.
ENCODER: Final = JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":"))
SORTED_ENCODER: Final = JSONEncoder(
    allow_nan=False, check_circular=False, separators=(",", ":"), sort_keys=True
)
DECODER: Final = JSONDecoder(parse_constant=_refuse_constant)


def tagged(tag: str, payload: object) -> dict[str, object]:
    """The written form of what JSON has no word for."""
    return {TAG: tag, "v": payload}


def is_plain(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether the tree is made of JSON's own types, exactly, and needs no escape for the tag's key.

    A cycle runs into the depth and is therefore not plain; the careful encoder then tells what is wrong.
    """
    kind = type(value)
    if kind is dict:
        if TAG in value or not _KEYS.issuperset(map(type, value)):
            return False
        children = value.values()
    elif kind is list:
        children = value
    else:
        return kind in _SCALARS
    if depth == 0:
        return False
    kinds = set(map(type, children))
    if kinds <= _SCALARS:
        return True
    if not kinds <= _PLAIN:
        return False
    for child in children:  # noqa: SIM110 (all() over a generator takes half as long again)
        if type(child) in _CONTAINERS and not is_plain(child, depth - 1):
            return False
    return True


def plain_text(value: object, encoder: JSONEncoder = ENCODER) -> str | None:
    """The JSON of a plain tree, or None if the value needs the careful encoder."""
    if not is_plain(value):
        return None
    try:
        text = encoder.encode(value)
    except ValueError:  # nan, inf, or an int with more digits than Python converts
        return None
    # Two lone surrogates side by side look in JSON like one character beyond the BMP, and would come back so.
    if "\\ud" in text and DECODER.decode(text) != value:
        return None
    return text
