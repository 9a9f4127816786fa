"""A run's small durable memory: JSON values, committed with the step that changed them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

from stepwell.errors import Undecodable
from stepwell.serialization import Codec

__all__ = ["CONTEXT_VALUE_LIMIT", "Context", "handed_over", "merged"]

CONTEXT_VALUE_LIMIT: Final = 16 * 1024
_DAMAGED: Final = "context cannot be read back: a recorded change of it is none"


class Context(MutableMapping[str, Any]):
    """A mapping whose changes are found by comparing what is to be stored with what was.

    So a change deep inside a value (``self.context["items"].append(…)``) is never lost silently. Nothing is
    compared as long as nobody has looked.

    Args:
        text: The stored context; None when the run has none.
        codec: Refuses values that are not plain JSON, with their path.
    """

    def __init__(self, text: str | None, codec: Codec) -> None:
        self._codec = codec
        # What the values are read from when they are next looked at: durable, or what run() has made of it since. None
        # after the start means: what is durable.
        self._kept = text
        # The texts of what run() had made of it when it last called something; None: nothing but what is durable.
        self._called_with: dict[str, str] | None = None
        self._stored: dict[str, str] | None = None
        self._values: dict[str, Any] | None = None

    def _open(self) -> dict[str, Any]:
        if self._values is None:
            if self._kept is None and self._stored is not None:
                self._values = {name: self._loaded(text) for name, text in self._stored.items()}
            else:
                self._values = self._loaded(self._kept) if self._kept else {}
            self._durable()
        return self._values

    def _durable(self) -> dict[str, str]:
        """The texts of what is durable; at first, of what was loaded."""
        if self._stored is None:
            self._stored = self._texts(self._values or {})
        return self._stored

    def _texts(self, values: dict[str, Any]) -> dict[str, str]:
        return {name: self._text(name, value) for name, value in values.items()}

    def _loaded(self, text: str) -> Any:
        return self._codec.loads(text, what="context")

    def _text(self, name: str, value: object) -> str:
        return self._codec.dumps_json(value, what=f"context[{name!r}]", limit=CONTEXT_VALUE_LIMIT)

    def __getitem__(self, name: str) -> Any:
        return self._open()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a context's names are texts; got {name!r}")
        # Kept as it will be read back: a later change of the caller's own object does not reach in.
        self._open()[name] = self._loaded(self._text(name, value))

    def __delitem__(self, name: str) -> None:
        del self._open()[name]

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        # What is kept, not what was given: a change of it counts.
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._open())

    def __len__(self) -> int:
        return len(self._open())

    def __repr__(self) -> str:
        return f"Context({self._open()!r})"

    def changes(self) -> tuple[str, str] | None:
        """(the whole context, what changed) as texts to be stored; None when nothing did.

        Raises:
            Unstorable: A value that is not plain JSON was put deep inside.
        """
        if self._values is None or self._stored is None:
            return None
        texts, stored = self._texts(self._values), self._stored
        called_with = stored if self._called_with is None else self._called_with
        if texts == stored == called_with:
            return None
        # A replay comes here with what run() has written, and must find that undone, too, if the step undid it.
        delta = {
            "set": {
                name: self._values[name]
                for name, text in texts.items()
                if stored.get(name) != text or called_with.get(name) != text
            },
            "gone": [name for name in {**stored, **called_with} if name not in texts],
        }
        return self._whole(self._values), self._whole(delta)

    def _whole(self, value: object) -> str:
        return self._codec.dumps_json(value, what="context")

    def committed(self, whole: str) -> None:
        """``whole`` is durable now."""
        self._kept = whole
        self._stored = self._texts(self._open())
        self._called_with = None

    def roll_back(self) -> None:
        """Forget what is not durable, or was not there at the last :meth:`keep`."""
        self._values = None

    # -- replay -------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Begin with nothing: what is recorded is applied again."""
        self._kept, self._stored, self._values, self._called_with = None, {}, None, None

    def apply(self, delta: str) -> None:
        """Make a recorded change again.

        Raises:
            Undecodable: Its text is no change.
        """
        values, stored, change = self._open(), self._durable(), _change(self._loaded(delta))
        for name, value in change["set"].items():
            values[name] = value
            stored[name] = self._text(name, value)
        for name in change["gone"]:
            values.pop(name, None)
            stored.pop(name, None)
        self._kept = None

    def is_changed(self) -> bool:
        """Something is otherwise than it was at the last :meth:`keep`, or than what is durable if that came later."""
        if self._values is None:
            return False
        before = self._durable() if self._kept is None else self._texts(self._loaded(self._kept))
        return self._texts(self._values) != before

    def keep(self) -> None:
        """``run()`` calls something: what it has changed itself is not lost when that fails.

        Raises:
            Unstorable: A value that is not plain JSON was put deep inside.
        """
        if self._values is not None:
            self._called_with = self._texts(self._values)
            self._kept = self._whole(self._values)


def handed_over(values: Mapping[str, Any], codec: Codec) -> tuple[str, str] | None:
    """A context that another run begins with, whole and as a change; None for an empty one.

    Raises:
        Unstorable: A value is not plain JSON.
    """
    context = Context(None, codec)
    context.update(values)
    return context.changes()


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


def _read(delta: str) -> dict[str, Any]:
    try:
        return _change(json.loads(delta))
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"{_DAMAGED} ({error})") from error


def _change(value: Any) -> dict[str, Any]:
    match value:
        case {"set": dict(), "gone": [*names]} if all(isinstance(name, str) for name in names):
            return dict(value)
    raise Undecodable(f"{_DAMAGED}. The row was changed by hand or cut off: restore it, or cancel the run.")
