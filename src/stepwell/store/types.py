"""Column types that mean the same on every database, and under Django's connections.

Instants are BIGINT microseconds and JSON is text: the declared types DATETIME, TIMESTAMP and JSONB are
converted by some drivers and frameworks on the way, these are not.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import BigInteger, Dialect, Integer, String, Text, TypeDecorator, Uuid
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeEngine

from stepwell.clock import from_micros, to_micros

__all__ = ["DIGEST", "ROW_ID", "UID", "JSONText", "Micros", "name_of"]

_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


class Micros(TypeDecorator[datetime]):
    """An aware datetime, stored as BIGINT microseconds since 1970-01-01 UTC."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_micros(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        try:
            return from_micros(value)
        except OverflowError:
            # One such row must not break the answer that it stands in: the nearest instant that there is.
            return _LAST if value > 0 else _FIRST


class JSONText(TypeDecorator[str]):
    """Text that holds JSON made by ``serialization``; opaque to the store."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
            return mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
        return Text()


def name_of(length: int = 190) -> TypeEngine[str]:
    """A short text, compared by its bytes everywhere (MariaDB's default collation ignores case)."""
    binary = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(binary, "mysql", "mariadb")


def _ascii(length: int) -> TypeEngine[str]:
    binary = mysql.CHAR(length, charset="ascii", collation="ascii_bin")
    return String(length).with_variant(binary, "mysql", "mariadb")


UID: Final[TypeEngine[UUID]] = Uuid(native_uuid=False).with_variant(postgresql.UUID(), "postgresql")
DIGEST: Final = _ascii(64)
ROW_ID: Final = BigInteger().with_variant(Integer, "sqlite")
