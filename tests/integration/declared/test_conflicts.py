"""Conflicts: what the database undoes for reasons of its own is done again, and no policy hears of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, text, update
from sqlalchemy.exc import OperationalError

from stepwell import Fail, Retry, Stepwell, Workflow, step
from stepwell.states import RunState
from tests.integration.declared.shop import Account, Entry, Shop, story
from tests.support.driving import Driver

DO: dict[str, Callable[[Any], Any]] = {}


class Transfer(Workflow[None]):
    """Does what the test says; its policies must not be asked."""

    workflow_name = "conflicts.Transfer"

    @step(on_exception=[Fail("sqlalchemy.exc.DBAPIError"), Retry(attempts=99, wait=timedelta())])
    def book(self) -> Any:
        return DO["book"](self)


class Deadlock(Exception):
    """What the drivers say, as far as the dialects look at it."""

    sqlstate = "40P01"

    def __init__(self) -> None:
        super().__init__(1213, "deadlock found; database is locked")


@contextmanager
def deadlocks(well: Stepwell, when: str, times: int) -> Iterator[list[str]]:
    """Lets the database undo the transaction of a statement, or of a COMMIT, as often as said."""
    engine, raised = well.database.engine, []

    def hit(what: str) -> None:
        if len(raised) < times:
            raised.append(what)
            raise OperationalError(what, {}, Deadlock())

    def execute(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if when in statement.upper() and "SHOP_" in statement.upper():
            hit(statement)

    def commit(connection: Connection) -> None:
        if when == "COMMIT" and "step" in connection.info.get("marks", ()):
            hit("COMMIT")

    event.listen(engine, "before_cursor_execute", execute)
    event.listen(engine, "commit", commit)
    try:
        yield raised
    finally:
        event.remove(engine, "before_cursor_execute", execute)
        event.remove(engine, "commit", commit)


@pytest.mark.parametrize("when", ["INSERT", "COMMIT"])
def test_a_deadlock_at_flush_or_commit_runs_the_step_again(
    driver: Driver, shop: Shop, well: Stepwell, when: str
) -> None:
    """No row, no attempt, no policy: the step simply runs again, and what it wrote is there once."""
    bodies: list[int] = []

    def book(self: Any) -> None:
        bodies.append(1)
        self.session.add(Entry(text="booked"))
        if when == "COMMIT":
            self.session.connection().info["marks"] = {"step"}

    DO["book"] = book
    with deadlocks(well, when, times=3):
        run = Transfer.start()
        driver.drain()

    assert len(bodies) == 4
    assert story(run) == ["book success"]
    assert [row.attempt for row in run.steps] == [1]
    assert shop.ledger == ["booked"]


def test_a_deadlock_at_the_guard_runs_the_step_again(
    driver: Driver, shop: Shop, well: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal entry itself may be what the database gives up: the writes before it go with it."""
    bodies: list[int] = []
    apply, left = well.database.dialect.apply, [1]

    def stumbling(connection: Connection, entries: Any) -> Any:
        if left and entries[0].executions:
            left.pop()
            raise OperationalError("UPDATE", {}, Deadlock())
        return apply(connection, entries)

    def book(self: Any) -> None:
        bodies.append(1)
        self.session.add(Entry(text="booked"))

    DO["book"] = book
    monkeypatch.setattr(well.database.dialect, "apply", stumbling)
    run = Transfer.start()
    driver.drain()

    assert len(bodies) == 2
    assert story(run) == ["book success"]
    assert shop.ledger == ["booked"]


def test_conflicts_without_end_fail_the_step(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """Ten repetitions, then the step has failed with what the database said, and its locks are gone."""
    bodies: list[int] = []

    def book(self: Any) -> None:
        bodies.append(1)
        self.session.add(Entry(text="booked"))

    DO["book"] = book
    with deadlocks(well, "INSERT", times=99):
        run = Transfer.start()
        driver.drain()

    assert len(bodies) == 11
    assert run.state is RunState.FAILED
    assert "OperationalError" in str(run.info().error_class)
    assert story(run) == ["book failed"]
    assert shop.ledger == []


def test_a_deadlock_in_the_body_is_the_bodys_own(driver: Driver, well: Stepwell) -> None:
    """A statement that the author sends in the body is the author's: its errors go to the policies."""

    def book(self: Any) -> None:
        self.session.add(Entry(text="booked"))
        self.session.flush()

    DO["book"] = book
    with deadlocks(well, "INSERT", times=1):
        run = Transfer.start()
        driver.drain()

    assert story(run) == ["book failed"]


def test_a_real_deadlock_between_two_steps(shop: Shop, well: Stepwell, shop_url: str) -> None:
    """Two transactions wait for each other's rows: the one that is given up is done again, both succeed."""
    if well.database.dialect.has_one_writer:
        return  # one write transaction at a time: nobody waits crosswise
    first, second = shop.add(Account(balance=0)), shop.add(Account(balance=0))
    accounts = [first.id, second.id]
    crossing: dict[str, Any] = {"bodies": 0, "other": None}

    def book(self: Any) -> None:
        crossing["bodies"] += 1
        if shop.engine.dialect.name == "postgresql":
            # Who looks first is given up: here it is always the step.
            self.session.execute(text("SET LOCAL deadlock_timeout = '10ms'"))
        # Dirty records are sent at the end of the step; a raw update goes before.
        self.session.execute(
            update(Account).where(Account.id == accounts[1]).values(balance=Account.balance + 1)
        )
        if crossing["other"] is None:
            crossing["other"] = Crossing(shop, accounts)
        self.session.get(Account, accounts[0]).balance += 1

    DO["book"] = book
    with Driver(well) as driver:
        run = Transfer.start()
        driver.drain()
    crossing["other"].join()

    assert run.state is RunState.COMPLETED
    assert story(run) == ["book success"]
    assert [shop.look(account).balance for account in (first, second)] == [11, 11]
    assert crossing["bodies"] in ((2,) if shop.engine.dialect.name == "postgresql" else (1, 2))


class Crossing:
    """Somebody else's transaction: it takes the rows in the other order, and is repeated if given up."""

    def __init__(self, shop: Shop, accounts: list[int]) -> None:
        self._shop, self._accounts = shop, accounts
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        assert self._has_begun.wait(10)

    def _work(self) -> None:
        for _ in range(5):
            try:
                with self._shop.engine.begin() as connection:
                    self._add(connection, self._accounts[0])
                    self._has_begun.set()
                    self._add(connection, self._accounts[1])
                return
            except OperationalError:
                continue

    @staticmethod
    def _add(connection: Connection, account: int) -> None:
        connection.execute(
            text("UPDATE shop_accounts SET balance = balance + 10 WHERE id = :id"), {"id": account}
        )

    def join(self) -> None:
        self._thread.join(timeout=20)
