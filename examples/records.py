"""The application's own tables, on which some of the examples work."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, String, TypeDecorator
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Instant(TypeDecorator[datetime]):
    """An aware instant, also where the database keeps no time zone."""

    impl = DateTime().with_variant(DATETIME(fsp=6), "mysql", "mariadb")
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    type_annotation_map = {datetime: Instant, str: String(200)}


class License(Base):
    __tablename__ = "licenses"

    id: Mapped[int] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime]
    state: Mapped[str] = mapped_column(default="valid")


class Appointment(Base):
    __tablename__ = "appointments"

    id: Mapped[int] = mapped_column(primary_key=True)
    starts_at: Mapped[datetime]
    is_called_off: Mapped[bool] = mapped_column(default=False)


class Account(Base):
    __tablename__ = "accounts"

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="open")
    used_bytes: Mapped[int] = mapped_column(default=0)
    quota_bytes: Mapped[int] = mapped_column(default=100)


class Line(Base):
    """A line of an import."""

    __tablename__ = "lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int]
    text: Mapped[str]


class Payout(Base):
    __tablename__ = "payouts"

    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]
    state: Mapped[str] = mapped_column(default="requested")


class TimeOff(Base):
    __tablename__ = "time_off"

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="requested")


class Chat(Base):
    __tablename__ = "chats"

    id: Mapped[int] = mapped_column(primary_key=True)
    is_old: Mapped[bool] = mapped_column(default=False)
