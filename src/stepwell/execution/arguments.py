"""A run's arguments as its steps see them: records come as they are now, not as they were at the start."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from stepwell.serialization import RecordRef

__all__ = ["Arguments"]

_IMMUTABLE: Final = frozenset({type(None), bool, int, float, str, bytes})


class Arguments(Mapping[str, Any]):
    """A read-only mapping in which references to records answer with the records.

    A record is loaded when it is asked for, once in each attempt that asks: nothing is read for a step that
    does not look at it. Other values come as copies, so that what a step does to one reaches no other step.

    Args:
        values: The stored arguments.
        load: Fetches a record, or raises RecordGone.
    """

    def __init__(self, values: Mapping[str, Any], load: Callable[[RecordRef], Any]) -> None:
        self._values = values
        self._load = load

    def __getitem__(self, name: str) -> Any:
        return self.resolved(self._values[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Arguments({dict(self._values)!r})"

    def resolved(self, value: Any) -> Any:
        """A value in which references answer with the records."""
        if isinstance(value, RecordRef):
            return self._load(value)
        if type(value) in (list, tuple):
            return type(value)(self.resolved(item) for item in value)
        if type(value) is dict:
            return {key: self.resolved(item) for key, item in value.items()}
        return value if type(value) in _IMMUTABLE else copy.deepcopy(value)
