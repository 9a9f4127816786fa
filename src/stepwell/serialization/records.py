"""Records of the user's database, stored as references: which class, which primary key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

__all__ = ["RecordAdapter", "RecordRef"]


@dataclass(frozen=True, slots=True)
class RecordRef:
    """A reference to a record: what is stored in its place, and what is read back.

    Storing the reference and not the record means that a step works on the record as it is when the step
    runs, not on a copy from the day the run was started.

    Attributes:
        adapter: The tag of the adapter that made it, such as ``"sa"``.
        type: The record's class as ``"module:QualName"``.
        key: The primary key, one item for each of its columns.
    """

    adapter: str
    type: str
    key: tuple[object, ...]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or name in RecordRef.__match_args__:
                raise AttributeError(name)
            raise AttributeError(
                f"this is a reference to a {self.type.rpartition(':')[2]}, which has no {name!r}: a step that is given "
                "it as an argument receives the record itself"
            )


class RecordAdapter(Protocol):
    """What an object-relational mapper must offer so that its records can be stored as references."""

    @property
    def tag(self) -> str:
        """A short name, stored in each reference: it must never change."""
        ...

    def handles(self, value: object) -> bool:
        """Whether the value is a record of this mapper. Asked for values of unknown type only."""
        ...

    def reference(self, record: object) -> RecordRef:
        """The reference to a record.

        Raises:
            Unstorable: The record has no primary key yet.
        """
        ...

    def load(self, ref: RecordRef, source: object) -> object:
        """Fetch the record through ``source``, such as a SQLAlchemy ``Session``.

        Raises:
            RecordGone: There is no such record any more.
        """
        ...
