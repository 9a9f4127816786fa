"""Records of SQLAlchemy's mapper, stored as references: their class, and their primary key."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import inspect
from sqlalchemy.orm import InstanceState, Mapper, Session, scoped_session

from stepwell.errors import RecordGone, Undecodable, Unstorable
from stepwell.serialization import RecordRef, find_class, stable_name

__all__ = ["SQLAlchemyRecords"]

_NAIVE: Final = "naive"


class SQLAlchemyRecords:
    """Instances of mapped classes, as references that are loaded afresh through a session.

    A reference names the class under which SQLAlchemy itself identifies the record: with inheritance in one
    table, or in joined ones, that is the topmost mapped class. So it stays the same when a record changes its
    subclass, and loading it answers an instance of the right one.
    """

    tag = "sa"

    def handles(self, value: object) -> bool:
        return _mapper_of(type(value)) is not None

    def reference(self, record: object) -> RecordRef:
        """The reference to a record; the database is not asked, so it may be expired or detached.

        Raises:
            Unstorable: It has no primary key yet, or was deleted.
        """
        state: InstanceState[Any] = inspect(record)
        if state.deleted or state.was_deleted:
            raise Unstorable("it was deleted, so there will be nothing to load.")
        identity = state.key or state.mapper.identity_key_from_instance(record)
        cls, key = identity[0], identity[1]
        if None in key:
            raise Unstorable("it has no primary key yet. Flush it first: session.flush().")
        return RecordRef(self.tag, stable_name(cls), tuple(_stored(part) for part in key))

    def load(self, ref: RecordRef, source: object) -> object:
        """Fetch the record through a session, from its identity map if it is there and not expired.

        Args:
            ref: The reference.
            source: A ``Session`` (of an ``AsyncSession``, its ``sync_session``).

        Raises:
            RecordGone: There is no such record any more.
            Undecodable: Its class is gone, is not mapped, or has another kind of primary key now.
        """
        if not isinstance(source, Session | scoped_session):
            raise TypeError(
                f"records are loaded through a SQLAlchemy Session, not {type(source).__qualname__}"
            )
        cls = find_class(ref.type)
        mapper = _mapper_of(cls)
        if mapper is None:
            raise Undecodable(f"{ref.type} is no mapped class any more, so its records cannot be loaded.")
        if len(mapper.primary_key) != len(ref.key):
            names = ", ".join(column.name for column in mapper.primary_key)
            raise Undecodable(
                f"a reference to {ref.type} has {len(ref.key)} key value{'s' * (len(ref.key) != 1)}, "
                f"but its primary key is ({names}) now."
            )
        key = tuple(_given(part) for part in ref.key)
        record: object = source.get(cls, key)
        if record is None:
            shown = ", ".join(map(repr, key))
            raise RecordGone(f"there is no {cls.__qualname__} with the primary key {shown} any more.")
        return record


def _mapper_of(cls: type) -> Mapper[Any] | None:
    # Asked about a class, never about the value: inspect(engine) would connect to its database.
    mapper: object = inspect(cls, raiseerr=False)
    return mapper if isinstance(mapper, Mapper) else None


def _stored(part: object) -> object:
    """A part of a primary key as the codec takes it."""
    if isinstance(part, UUID):
        return UUID(int=part.int)  # drivers bring subclasses of their own
    if isinstance(part, datetime) and part.tzinfo is None:
        return (_NAIVE, part.isoformat())  # no instant, but as a key it is only compared
    return part


def _given(part: object) -> object:
    """A part of a primary key as the mapper takes it."""
    if isinstance(part, tuple) and part[0] == _NAIVE:
        return datetime.fromisoformat(part[1])
    return part
