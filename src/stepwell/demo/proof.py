"""What the demo's ledger proves, or does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from stepwell.demo.onboarding import BONUS
from stepwell.demo.records import Customer, LedgerEntry

__all__ = ["Proof", "StepCount", "read_proof"]


@dataclass(frozen=True, slots=True)
class StepCount:
    """What the ledger says about one step.

    Attributes:
        step: Its name.
        rows: The rows it has.
        customers: For how many customers it has any.
        missing: For how many customers it has none.
        doubled: For how many customers it has more than one.
    """

    step: str
    rows: int
    customers: int
    missing: int
    doubled: int


@dataclass(frozen=True, slots=True)
class Proof:
    """What was counted.

    Attributes:
        customers: How many there are.
        counts: The steps, in their order.
        strangers: Rows of steps or customers that do not exist.
        wrong_credits: Customers whose bonus was not credited exactly once.
    """

    customers: int
    counts: tuple[StepCount, ...]
    strangers: int
    wrong_credits: int

    @property
    def rows(self) -> int:
        """All rows of the ledger."""
        return sum(count.rows for count in self.counts) + self.strangers

    @property
    def holds(self) -> bool:
        """Every step of every customer has exactly one row, and nothing else has any."""
        each_once = all(
            (count.rows, count.missing, count.doubled) == (self.customers, 0, 0) for count in self.counts
        )
        return self.customers > 0 and each_once and not self.strangers and not self.wrong_credits


def read_proof(connection: Connection, steps: Iterable[str]) -> Proof:
    """Count the ledger's rows for each customer and step.

    Args:
        connection: An open connection.
        steps: The steps that every customer must have.
    """
    customers = set(connection.execute(select(Customer.id)).scalars())
    entries = select(LedgerEntry.step, LedgerEntry.customer_id)
    rows = Counter((step, customer) for step, customer in connection.execute(entries))
    counts = tuple(_count(step, customers, rows) for step in steps)
    known = sum(count.rows for count in counts)
    wrong = select(func.count()).select_from(Customer).where(Customer.credit != BONUS)
    return Proof(
        customers=len(customers),
        counts=counts,
        strangers=rows.total() - known,
        wrong_credits=connection.execute(wrong).scalar_one(),
    )


def _count(step: str, customers: set[int], rows: Counter[tuple[str, int]]) -> StepCount:
    times = [rows[step, customer] for customer in customers]
    return StepCount(
        step=step,
        rows=sum(times),
        customers=sum(number > 0 for number in times),
        missing=sum(number == 0 for number in times),
        doubled=sum(number > 1 for number in times),
    )
