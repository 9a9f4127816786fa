"""Recorded changes of a context: one made of two, one that holds others, one that comes from outside."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from stepwell.errors import Undecodable
from stepwell.requests import ContextChange

__all__ = ["change_in", "held_through", "holding", "merged", "parsed", "taken_out"]

_THROUGH: Final = "through"
_DAMAGED: Final = "context cannot be read back: a recorded change of it is none"


def change_in(mail: str | None) -> ContextChange:
    """The change from outside that a mailbox's text says.

    Raises:
        Undecodable: It says none.
    """
    change = ContextChange.parse(mail)
    if change is None:
        raise Undecodable(
            f"a change of the context from outside cannot be read: {(mail or '')[:200]!r}. The row was changed by hand "
            "or cut off: restore or delete it, then run.resume()."
        )
    return change


def taken_out(names: Iterable[str]) -> str:
    """The change that takes names out, be they there or not.

    Raises:
        TypeError: One is no text.
    """
    gone = list(names)
    for name in gone:
        if not isinstance(name, str):
            raise TypeError(f"a context's names are texts; got {name!r}")
    return json.dumps({"set": {}, "gone": gone})


def merged(first: str | None, second: str | None) -> str | None:
    """Two recorded changes, the one after the other, as one.

    Raises:
        Undecodable: One of the texts is no change.
    """
    if first is None or second is None:
        return second or first
    one, other = _read(first), _read(second)
    kept = {name: value for name, value in one["set"].items() if name not in other["gone"]}
    gone = [name for name in one["gone"] if name not in other["set"]]
    return json.dumps(
        {"set": {**kept, **other["set"]}, "gone": [*gone, *(n for n in other["gone"] if n not in gone)]}
    )


def holding(delta: str, through: int) -> str:
    """The change of a row that holds those from outside, too, up to a position."""
    return json.dumps({**_read(delta), _THROUGH: through})


def held_through(delta: str | None) -> int:
    """Up to which position a row's change holds those from outside; 0 for one that holds none."""
    if delta is None or f'"{_THROUGH}"' not in delta:
        return 0
    through = _read(delta).get(_THROUGH)
    return through if isinstance(through, int) else 0


def _read(delta: str) -> dict[str, Any]:
    try:
        return parsed(json.loads(delta))
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"{_DAMAGED} ({error})") from error


def parsed(value: Any) -> dict[str, Any]:
    """A recorded change: what is ``set``, by name, and which names are ``gone``.

    Raises:
        Undecodable: It is no change.
    """
    match value:
        case {"set": dict(), "gone": [*names]} if all(isinstance(name, str) for name in names):
            return dict(value)
    raise Undecodable(f"{_DAMAGED}. The row was changed by hand or cut off: restore it, or cancel the run.")
