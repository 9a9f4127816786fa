"""The demo's own tables, in the same database file as the runs."""

from __future__ import annotations

from datetime import date

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

__all__ = ["Base", "Customer", "LedgerEntry"]


class Base(DeclarativeBase):
    """Holds the demo's tables."""


class Customer(Base):
    """Somebody who has signed up: the hero of an onboarding."""

    __tablename__ = "customers"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    email: Mapped[str] = mapped_column(unique=True)
    city: Mapped[str]
    plan: Mapped[str]
    signed_up: Mapped[date]
    is_active: Mapped[bool] = mapped_column(default=False)
    credit: Mapped[int] = mapped_column(default=0)


class LedgerEntry(Base):
    """One step that was done for one customer.

    No constraint keeps it from being entered twice: if a step happens twice, both rows are here to see.
    """

    __tablename__ = "ledger"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(index=True)
    step: Mapped[str]
