"""A small shop: customers that workflows are about, and a ledger that their steps write to."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, ForeignKey, String, TypeDecorator, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

__all__ = ["Account", "Base", "Customer", "Entry", "Shop", "story"]


class Words(TypeDecorator[str]):
    """Takes nothing but texts, on every database."""

    impl = String(80)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is no text")
        return value


class Base(DeclarativeBase):
    """The application's tables."""


class Account(Base):
    """Where a customer's money is."""

    __tablename__ = "shop_accounts"

    id: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[int] = mapped_column(default=0)
    customers: Mapped[list[Customer]] = relationship(back_populates="account")


class Customer(Base):
    """Somebody who buys."""

    __tablename__ = "shop_customers"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40))
    email: Mapped[str | None] = mapped_column(String(40), unique=True)
    visits: Mapped[int] = mapped_column(default=0)
    account_id: Mapped[int | None] = mapped_column(ForeignKey("shop_accounts.id"))
    account: Mapped[Account | None] = relationship(back_populates="customers")


class Entry(Base):
    """A line of the ledger; no two say the same."""

    __tablename__ = "shop_entries"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(Words, unique=True)


class Shop:
    """What the application itself sees, through an engine of its own.

    Args:
        url: The database.
    """

    def __init__(self, url: str) -> None:
        self.engine: Engine = create_engine(url)

    def session(self) -> Session:
        return Session(self.engine, expire_on_commit=False)

    def add(self, *records: Any) -> Any:
        """Put records into the database and answer the first one, without a session."""
        with self.session() as session:
            session.add_all(records)
            session.commit()
        return records[0]

    def customer(self, name: str = "Ada", **more: Any) -> Customer:
        customer: Customer = self.add(Customer(name=name, **more))
        return customer

    def look(self, record: Any) -> Any:
        """The record as it is in the database now."""
        with self.session() as session:
            return session.get(type(record), record.id)

    def remove(self, record: Any) -> None:
        with self.session() as session:
            session.delete(session.get(type(record), record.id))
            session.commit()

    @property
    def ledger(self) -> list[str]:
        """What was committed, in the order of its making."""
        with self.session() as session:
            return list(session.scalars(select(Entry.text).order_by(Entry.id)))

    def count(self, table: type[Any]) -> int:
        with self.session() as session:
            return int(session.scalar(select(func.count()).select_from(table)) or 0)


def story(run: Any) -> list[str]:
    """What became of each attempt: ``"pack retried"``."""
    return [f"{row.name} {row.outcome or row.state}" for row in run.steps if row.kind == "step"]
