"""A run's small durable memory: JSON values, committed with the step that changed them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from stepwell.definition.context import ContextMapping
from stepwell.errors import Undecodable
from stepwell.execution.changes import parsed
from stepwell.serialization import Codec
from stepwell.serialization.plain import TAG

__all__ = ["CONTEXT_VALUE_LIMIT", "Context", "handed_over"]

CONTEXT_VALUE_LIMIT: Final = 16 * 1024


class Context(ContextMapping):
    """A mapping whose changes are found by comparing what is to be stored with what was.

    So a change deep inside a value (``self.context["items"].append(…)``) is never lost silently. A value that
    nobody has looked at stays text.

    Args:
        text: The stored context; None when the run has none.
        codec: Refuses values that are not plain JSON, with their path.
    """

    def __init__(self, text: str | None, codec: Codec) -> None:
        self._codec = codec
        self._unread = text
        # By name, as text: what is durable, and what run() had made of that when it last called something. One and the
        # same dict as long as there is no difference.
        self._stored: dict[str, str] = {}
        self._kept = self._stored
        # What was looked at or set since, and what was taken away.
        self._values: dict[str, Any] = {}
        self._gone: set[str] = set()

    def _texts(self) -> dict[str, str]:
        """What is kept; read when somebody first asks."""
        if self._unread:
            text, self._unread = self._unread, None
            self._stored = self._kept = {
                name: self._text(name, value) for name, value in self._loaded(text).items()
            }
        return self._kept

    def _loaded(self, text: str) -> Any:
        return self._codec.loads(text, what="context")

    def _text(self, name: str, value: object) -> str:
        return self._codec.dumps_json(value, what=f"context[{name!r}]", limit=CONTEXT_VALUE_LIMIT)

    # -- a mapping ----------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            if name in self._gone:
                raise KeyError(name)
            self._values[name] = self._loaded(self._texts()[name])
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a context's names are texts; got {name!r}")
        self._texts()
        # Kept as it will be read back: a later change of the caller's own object does not reach in.
        self._values[name] = self._loaded(self._text(name, value))
        self._gone.discard(name)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._values.pop(name, None)
        if name in self._kept:
            self._gone.add(name)

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        # What is kept, not what was given: a change of it counts.
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values or (name in self._texts() and name not in self._gone)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        return f"Context({dict(self)!r})"

    def _names(self) -> list[str]:
        kept = self._texts()
        return [
            *(name for name in kept if name not in self._gone),
            *(name for name in self._values if name not in kept),
        ]

    # -- what is to be stored -----------------------------------------------------------------------------------

    def changes(self) -> tuple[str, str] | None:
        """(the whole context, what changed) as texts to be stored; None when nothing did.

        Raises:
            Unstorable: A value that is not plain JSON was put deep inside.
        """
        stored, kept = self._stored, self._kept
        if stored is kept and not self._values and not self._gone:
            return None
        texts = self._current()
        if texts == stored == kept:
            return None
        # A replay comes here with what run() has written, and must find that undone, too, if the step undid it.
        changed = {
            name: text for name, text in texts.items() if stored.get(name) != text or kept.get(name) != text
        }
        gone = [name for name in {**stored, **kept} if name not in texts]
        delta = f'{{"set":{self._joined(changed)},"gone":{self._codec.dumps_json(gone, what="context")}}}'
        return self._joined(texts), delta

    def _current(self) -> dict[str, str]:
        """The texts of all values as they are now."""
        texts = {name: text for name, text in self._texts().items() if name not in self._gone}
        texts.update({name: self._text(name, value) for name, value in self._values.items()})
        return texts

    def _joined(self, texts: Mapping[str, str]) -> str:
        """The JSON of a mapping of which the values' JSON is known."""
        if TAG in texts:
            # A name that must not be taken for what it means elsewhere.
            whole = {name: self._loaded(text) for name, text in texts.items()}
            return self._codec.dumps_json(whole, what="context")
        return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in texts.items())}}}"

    def text(self) -> str | None:
        """The whole as it would be stored; None for an empty one."""
        texts = self._current()
        return self._joined(texts) if texts else None

    def is_stored_as(self, text: str | None) -> bool:
        """That is what the text says which is stored as the whole; one that cannot be read says something else."""
        if text is None:
            return not self._stored
        try:
            return Context(text, self._codec)._texts() == self._stored
        except Undecodable:
            return False

    def stored_text(self) -> str:
        """The whole that is durable."""
        return self._joined(self._stored)

    def stored_with(self, delta: str) -> str:
        """The whole that is durable once this change, which is not ``run()``'s, is made to what is.

        Raises:
            Undecodable: Its text is no change.
        """
        self._texts()
        texts = dict(self._stored)
        self._change(delta, texts)
        return self._joined(texts)

    def committed(self) -> None:
        """All of it is durable now."""
        self._stored = self._kept = self._current()
        self._gone = set()

    def roll_back(self) -> None:
        """Forget what is not durable, or was not there at the last :meth:`keep`."""
        self._values, self._gone = {}, set()

    def forget(self) -> None:
        """Forget whatever is not durable, what ``run()`` has changed included."""
        self._texts()
        self._kept = self._stored
        self.roll_back()

    # -- run() --------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Begin with nothing: what is recorded is applied again."""
        self._unread = None
        self._stored = self._kept = {}
        self.roll_back()

    def apply(self, delta: str) -> None:
        """Make a recorded change again.

        Raises:
            Undecodable: Its text is no change.
        """
        self.keep()
        self._texts()
        self._change(delta, *((self._stored,) if self._kept is self._stored else (self._stored, self._kept)))

    def _change(self, delta: str, *known: dict[str, str]) -> None:
        change = parsed(self._loaded(delta))
        texts = {name: self._text(name, value) for name, value in change["set"].items()}
        for each in known:
            each.update(texts)
            for name in change["gone"]:
                each.pop(name, None)

    def is_changed(self) -> bool:
        """Something is otherwise than it was at the last :meth:`keep`, or than what is durable if that came later."""
        return bool(self._values or self._gone) and self._current() != self._kept

    def keep(self) -> None:
        """``run()`` calls something: what it has changed itself is not lost when that fails.

        What it has taken out is its own from now on: whatever the call does to the context does not reach it, and
        neither does a replay, which calls nothing.

        Raises:
            Unstorable: A value that is not plain JSON was put deep inside.
        """
        if self._values or self._gone:
            current = self._current()
            if current != self._kept:
                self._kept = current
            self.roll_back()


def handed_over(values: Mapping[str, Any], codec: Codec) -> tuple[str, str] | None:
    """A context that another run begins with, whole and as a change; None for an empty one.

    Raises:
        Unstorable: A value is not plain JSON.
    """
    context = Context(None, codec)
    context.update(values)
    return context.changes()
