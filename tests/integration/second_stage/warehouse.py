"""A warehouse: what resumable steps go through, and the lines that they write."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Double, Engine, Enum, Float, String, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

__all__ = ["Base", "Box", "Crate", "Item", "Line", "Warehouse"]


class Base(DeclarativeBase):
    """The application's tables."""


class Item(Base):
    """Something in stock, with keys of several kinds to go by."""

    __tablename__ = "house_items"

    id: Mapped[int] = mapped_column(primary_key=True)
    shelf: Mapped[str] = mapped_column(String(20), default="a")
    rank: Mapped[int | None] = mapped_column(default=None)
    came_at: Mapped[datetime | None] = mapped_column(default=None)
    is_done: Mapped[bool] = mapped_column(default=False)


class Box(Base):
    """Known by two columns."""

    __tablename__ = "house_boxes"

    row: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    place: Mapped[str] = mapped_column(String(20), primary_key=True)


class Crate(Base):
    """With columns of kinds that databases compare in ways of their own."""

    __tablename__ = "house_crates"

    id: Mapped[int] = mapped_column(primary_key=True)
    weight: Mapped[float] = mapped_column(Float)
    exact_weight: Mapped[float] = mapped_column(Double)
    color: Mapped[str] = mapped_column(Enum("red", "amber", "green", name="house_color"))
    is_open: Mapped[bool]


class Line(Base):
    """What a step has written about an item."""

    __tablename__ = "house_lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(String(80), unique=True)


class Warehouse:
    """What the application itself sees, through an engine of its own.

    Args:
        url: The database.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine: Engine = create_engine(url)

    def session(self) -> Session:
        return Session(self.engine, expire_on_commit=False)

    def add(self, *records: Any) -> None:
        with self.session() as session:
            session.add_all(records)
            session.commit()

    def stock(self, count: int, **columns: Any) -> None:
        """Put items 1 to ``count`` there; a column's value may be a function of the item's number."""
        numbers = range(1, count + 1)
        self.add(
            *(
                Item(
                    id=n, **{name: value(n) if callable(value) else value for name, value in columns.items()}
                )
                for n in numbers
            )
        )

    def lines(self) -> list[str]:
        """What was written, in the order of writing."""
        with self.session() as session:
            return list(session.scalars(select(Line.text).order_by(Line.id)))

    def count(self) -> int:
        with self.session() as session:
            return session.scalar(select(func.count()).select_from(Line)) or 0
