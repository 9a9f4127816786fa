"""A run's small durable memory: JSON values, committed with the step that changed them."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final

from stepwell.serialization import Codec

__all__ = ["CONTEXT_VALUE_LIMIT", "Context"]

CONTEXT_VALUE_LIMIT: Final = 16 * 1024


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
        self._stored: dict[str, str] = {}
        self._stored_text = text
        self._values: dict[str, Any] | None = None

    def _open(self) -> dict[str, Any]:
        if self._values is None:
            self._values = self._loaded(self._stored_text) if self._stored_text else {}
            self._stored = {name: self._text(name, value) for name, value in self._values.items()}
        return self._values

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
        if self._values is None:
            return None
        texts = {name: self._text(name, value) for name, value in self._values.items()}
        if texts == self._stored:
            return None
        delta = {
            "set": {
                name: self._values[name] for name, text in texts.items() if self._stored.get(name) != text
            },
            "gone": [name for name in self._stored if name not in texts],
        }
        return self._whole(self._values), self._whole(delta)

    def _whole(self, value: object) -> str:
        return self._codec.dumps_json(value, what="context")

    def committed(self, whole: str) -> None:
        """``whole`` is durable now."""
        self._stored_text = whole
        self._stored = {name: self._text(name, value) for name, value in self._open().items()}

    def roll_back(self) -> None:
        """Forget what is not durable."""
        self._values = None
