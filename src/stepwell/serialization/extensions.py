"""What the application adds to the types that a codec knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.serialization.records import RecordAdapter, RecordRef

__all__ = ["Custom", "Extensions"]


@dataclass(frozen=True, slots=True)
class Custom:
    """A registered class: to something storable, and back."""

    type: type
    tag: str
    encode: Callable[[Any], object]
    decode: Callable[[Any], object]


class Extensions:
    """Registered classes and record adapters, by what they are looked up with."""

    def __init__(self, records: Sequence[RecordAdapter]) -> None:
        self.by_class: dict[type, Custom] = {}
        self.by_tag: dict[str, Custom] = {}
        self.adapters: dict[str, RecordAdapter] = {}
        for adapter in records:
            if adapter.tag in self.adapters:
                raise ValueError(f"two record adapters have the tag {adapter.tag!r}; give each its own")
            self.adapters[adapter.tag] = adapter

    def add(self, custom: Custom) -> None:
        """Register a class.

        Raises:
            ValueError: The class or the tag is taken.
        """
        if known := self.by_class.get(custom.type):
            raise ValueError(f"{custom.type.__qualname__} is registered already, with the tag {known.tag!r}")
        if known := self.by_tag.get(custom.tag):
            raise ValueError(
                f"the tag {custom.tag!r} is taken by {known.type.__qualname__}; "
                f"choose another one for {custom.type.__qualname__}"
            )
        self.by_tag[custom.tag] = custom
        self.by_class[custom.type] = custom

    def reference(self, value: object) -> RecordRef | None:
        """The reference to a record, by the first adapter that handles it; None if none does."""
        for adapter in self.adapters.values():
            if adapter.handles(value):
                return adapter.reference(value)
        return None
