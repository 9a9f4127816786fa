"""The loop of (f): a row is read, a row is written, and every hundredth time both the place and the rows are durable.

Here without an engine, as somebody would write it in plain SQLAlchemy; what it goes through is the same for Stepwell.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

from sqlalchemy import Engine, create_engine, event, func, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from bench.systems.base import Unfinished

__all__ = ["EVERY", "Item", "Loop", "PlainLoop", "note_on", "open_engine", "stock", "verify_notes"]

EVERY = 100
"""Rows to a commit."""
_PAGE = 500


class Base(DeclarativeBase):
    """The tables of an application."""


class Item(Base):
    """What the loop goes through."""

    __tablename__ = "bench_items"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    amount: Mapped[int]


class Note(Base):
    """What it writes for each item."""

    __tablename__ = "bench_notes"

    id: Mapped[int] = mapped_column(primary_key=True)
    item_id: Mapped[int]
    text: Mapped[str]


class Loop(Protocol):
    """Something that goes through all items."""

    engine: Engine
    """The application's own, on the database that is measured."""

    def create(self) -> None:
        """Make its tables in the fresh database, if it has any of its own."""

    def go(self) -> float:
        """From the first item until all is durable, in seconds."""


def note_on(item: Item) -> Note:
    """The work on an item."""
    return Note(item_id=item.id, text=f"{item.name} has {item.amount}")


def open_engine(url: str) -> Engine:
    """As an application would have it; on SQLite with the settings that all systems have."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def keep_what_is_committed(connection: Any, _record: Any) -> None:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")

    return engine


def stock(engine: Engine, items: int) -> None:
    """Fill the first table, and empty the second."""
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    rows = [{"id": number, "name": f"item {number}", "amount": number % 97} for number in range(1, items + 1)]
    with engine.begin() as connection:
        connection.execute(insert(Item), rows)


def verify_notes(engine: Engine, items: int) -> None:
    """One note on each item, or the figure is worth nothing."""
    with engine.connect() as connection:
        question = select(func.count(), func.count(Note.item_id.distinct()), func.max(Note.item_id))
        found = tuple(connection.execute(question).one())
    if found != (items, items, items):
        raise Unfinished(f"of {items} items the table has (notes, noted items, last one) {found}")


class PlainLoop:
    """The loop by SQLAlchemy alone; it remembers no place, so a crash begins it anew."""

    def __init__(self, url: str) -> None:
        self.engine = open_engine(url)

    def create(self) -> None:
        """It has none."""

    def go(self) -> float:
        began_at = time.perf_counter()
        with Session(self.engine, expire_on_commit=False) as session:
            for number, item in enumerate(_items(session), start=1):
                session.add(note_on(item))
                if number % EVERY == 0:
                    session.commit()
            session.commit()
        return time.perf_counter() - began_at

    def close(self) -> None:
        self.engine.dispose()


def _items(session: Session) -> Iterator[Item]:
    """In pages by key: a result that is streamed would not outlive the commits."""
    last = 0
    question = select(Item).order_by(Item.id).limit(_PAGE)
    while page := session.scalars(question.where(Item.id > last)).all():
        yield from page
        last = page[-1].id
