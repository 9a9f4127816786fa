"""A run's context as its workflow's methods see it: a mapping, with words of its own for what is often wanted."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

__all__ = ["ContextMapping", "LooseContext"]


class ContextMapping(MutableMapping[str, Any]):
    """``self.context``: a mapping of names to plain JSON values, the run's small durable memory.

    What a step changes in it is recorded with the step, also deep inside a value:
    ``self.context["items"].append(...)``.
    """

    __slots__ = ()

    def fetch(self, name: str, default: Any = None) -> Any:
        """The value of this name; ``default``, which is not kept, if there is none. A value that is None is one."""
        return self.get(name, default)

    def set_once(self, name: str, value: Any) -> bool:
        """Set the value unless there is one already, were it None; answer whether it was set.

        Raises:
            Unstorable: It is to be set, and is not plain JSON or too large.
        """
        if name in self:
            return False
        self[name] = value
        return True

    def merge(self, values: Mapping[str, Any]) -> None:
        """Set all these values; one that cannot be stored leaves those before it set, in this step.

        Raises:
            Unstorable: One of them is not plain JSON, or too large.
        """
        for name, value in values.items():
            self[name] = value

    def delete(self, name: str) -> Any:
        """Take the value of this name away and answer it; None if there is none."""
        return self.pop(name, None)


class LooseContext(dict[str, Any], ContextMapping):
    """The context of an instance that was made by hand, for a unit test: a dict with the same words."""
