"""``run.steps`` answers what the steps returned, and not what is stored of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from decimal import Decimal

import pytest
from sqlalchemy import update

from stepwell import RecordRef, StepExecution, Stepwell, Undecodable, Workflow, resumable_step, step
from stepwell.states import ExecutionState, Kind, Outcome
from stepwell.store.schema import executions
from tests.integration.declared.shop import Customer, Shop
from tests.support.driving import Driver


@dataclass
class Bill:
    total: Decimal


class Checkout(Workflow[Customer]):
    workflow_name = "reading.Checkout"

    @step
    def bill(self) -> Bill:
        return Bill(Decimal("9.90"))

    @step
    def customer(self) -> Customer:
        return self.hero

    @resumable_step
    def pack(self) -> int:
        for number in self.cursor.iterate([1, 2]):
            self.context["packed"] = number
        return 2

    @step
    def ship(self) -> None:
        raise ConnectionError("no van")


def test_values_are_decoded(driver: Driver, shop: Shop) -> None:
    """Each attempt tells what it returned, as the value that it was; records are references, as in ``run.args``."""
    run = Checkout.start(shop.customer("Ada"))
    driver.drain()
    bill, customer, pack, ship = run.steps

    assert (bill.name, bill.kind, bill.state, bill.outcome) == (
        "bill",
        Kind.STEP,
        ExecutionState.COMPLETED,
        Outcome.SUCCESS,
    )
    assert bill.result == Bill(Decimal("9.90"))
    assert (bill.position, bill.attempt, bill.key, bill.cursor, bill.details) == (1, 1, None, None, {})
    assert bill.started_at is not None
    assert bill.finished_at == driver.clock.now()
    assert bill.worker == "by hand"
    assert isinstance(customer.result, RecordRef)
    assert (pack.result, pack.cursor) == (2, 2)
    assert (ship.result, ship.error_class, ship.error_message) == (None, "ConnectionError", "no van")
    assert "no van" in str(ship.traceback)
    assert run.steps == run.steps


def test_an_entry_is_a_value(driver: Driver, shop: Shop) -> None:
    """Nobody changes the journal by changing what was read of it."""
    run = Checkout.start(shop.customer("Ada"))
    driver.drain()
    entry: StepExecution = run.steps[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.result = None  # type: ignore[misc]  # that is the test


@pytest.mark.parametrize("column", ["result", "cursor"])
@pytest.mark.parametrize("text", ['{"~":"dataclass","v":["no_such_module:Bill",{}]}', "{not json"])
def test_what_cannot_be_decoded_stands_for_itself(
    driver: Driver, shop: Shop, well: Stepwell, column: str, text: str
) -> None:
    """One value of a class that is gone does not hide the journal: in its place is the error that says why."""
    run = Checkout.start(shop.customer("Ada"))
    driver.drain()
    with well.database.begin() as connection:
        connection.execute(
            update(executions).where(executions.c.position == 3).values({column: text, "details": text})
        )
    entries = run.steps

    assert [entry.name for entry in entries] == ["bill", "customer", "pack", "ship"]
    assert isinstance(getattr(entries[2], column), Undecodable)
    assert f"{column} of step 'pack'" in str(getattr(entries[2], column))
    assert entries[0].result == Bill(Decimal("9.90"))


def test_details_that_are_no_object_are_left_out(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """They are the library's own: what is none of its says nothing."""
    run = Checkout.start(shop.customer("Ada"))
    driver.drain()
    for text in ("{not json", "[1]"):
        with well.database.begin() as connection:
            connection.execute(update(executions).values(details=text))
        assert [entry.details for entry in run.steps] == [{}] * 4
