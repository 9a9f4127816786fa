"""The record that a run is about, as two columns: its type and its primary key."""

from __future__ import annotations

from stepwell.errors import Undecodable, Unstorable
from stepwell.serialization import Codec, RecordRef
from stepwell.store.rows import RunRow

__all__ = ["hero_columns", "hero_reference"]

_LONGEST = 190


def hero_columns(hero: object, codec: Codec) -> tuple[str, str]:
    """What the columns hold for this record.

    Raises:
        Unstorable: It is no record, has no primary key yet, or one that is too long.
    """
    ref = codec.reference(hero)
    if ref is None:
        raise Unstorable(
            f"the hero must be a record of the database, such as a SQLAlchemy mapped instance; got a "
            f"{type(hero).__qualname__}. Pass other values as arguments.",
            path="hero",
        )
    key = ref.key[0] if len(ref.key) == 1 else list(ref.key)
    columns = (f"{ref.adapter}:{ref.type}", codec.dumps(key, what="hero's primary key"))
    if max(map(len, columns)) > _LONGEST:
        raise Unstorable(
            f"the hero's type or key is longer than {_LONGEST} characters: {columns}", path="hero"
        )
    return columns


def hero_reference(run: RunRow, codec: Codec) -> RecordRef | None:
    """The reference that the columns hold; None for a run without a hero.

    Raises:
        Undecodable: The columns were changed by hand.
    """
    if run.hero_type is None or run.hero_id is None:
        return None
    adapter, separator, type_name = run.hero_type.partition(":")
    if not separator:
        raise Undecodable(f"the hero of run {run.id} cannot be read back: its type is {run.hero_type!r}")
    key = codec.loads(run.hero_id, what="hero's primary key")
    return RecordRef(adapter, type_name, tuple(key) if isinstance(key, list) else (key,))
