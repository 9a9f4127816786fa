"""Going through the rows of a select, on the databases: by any key, each row once, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from stepwell import Run, Stepwell, Workflow, resumable_step
from stepwell.states import RunState
from tests.integration.second_stage.warehouse import Box, Crate, Item, Line, Warehouse
from tests.support.driving import Driver

DO: dict[str, Callable[[Any, Any], None]] = {}
WHAT: dict[str, Any] = {}
NOON = datetime(2030, 6, 1, 12)


class Walk(Workflow):
    """Goes through what a test wants, a few items in each execution."""

    workflow_name = "iterating.Walk"

    @resumable_step(max_iterations=3, checkpoint_every=2)
    def walk(self) -> None:
        for item in self.cursor.iterate(WHAT["query"](), key=WHAT.get("key"), page=WHAT.get("page", 4)):
            self.session.add(Line(text=WHAT.get("name", lambda item: str(item.id))(item)))
            DO.get("item", lambda self, item: None)(self, item)


class Batches(Workflow):
    """The same by several at a time."""

    workflow_name = "iterating.Batches"

    @resumable_step(max_iterations=2)
    def walk(self) -> None:
        for batch in self.cursor.batches(WHAT["query"](), key=WHAT.get("key"), size=3):
            self.session.add_all(Line(text=str(item.id)) for item in batch)
            self.session.add(Line(text=f"batch of {len(batch)} up to {batch[-1].id}"))
            DO.get("batch", lambda self, batch: None)(self, batch)


@pytest.fixture(autouse=True)
def _nothing_to_do() -> None:
    DO.clear()
    WHAT.clear()


def walk(driver: Driver, query: Any, **options: Any) -> Run:
    WHAT.update(query=query, **options)
    run = Walk.start()
    driver.drain()
    assert run.state is RunState.COMPLETED, run.explain()
    return run


# -- keys ----------------------------------------------------------------------------------------------------------


def test_by_the_primary_key(driver: Driver, house: Warehouse) -> None:
    """In its order, whatever order the select has; the executions read like a chain."""
    house.stock(10)
    run = walk(driver, lambda: select(Item).order_by(Item.id.desc()))

    assert house.lines() == [str(n) for n in range(1, 11)]
    assert [(row.outcome, row.cursor) for row in run.steps] == [
        ("continued", 3),
        ("continued", 6),
        ("continued", 9),
        ("success", 10),
    ]


def test_only_what_the_select_finds(driver: Driver, house: Warehouse) -> None:
    """Its conditions hold on every page."""
    house.stock(20, shelf=lambda n: "ab"[n % 2])
    walk(driver, lambda: select(Item).where((Item.shelf == "a") | (Item.id == 7)))

    assert house.lines() == ["2", "4", "6", "7", "8", "10", "12", "14", "16", "18", "20"]


def test_nothing_to_go_through(driver: Driver, house: Warehouse) -> None:
    """An empty table is done at once."""
    assert [row.outcome for row in walk(driver, lambda: select(Item)).steps] == ["success"]


@pytest.mark.parametrize("key", [Item.shelf, "shelf"])
def test_by_a_key_with_ties(driver: Driver, house: Warehouse, key: Any) -> None:
    """The primary key settles them, in a page, at its edge, and where an execution stops."""
    house.stock(20, shelf=lambda n: "abc"[n % 3])
    run = walk(driver, lambda: select(Item), key=key)

    assert house.lines() == [str(n) for start in (3, 1, 2) for n in range(start, 21, 3)]
    assert run.steps[0].cursor == ["a", 9]


def test_by_a_key_without_values(driver: Driver, house: Warehouse) -> None:
    """Rows without one come last, on every database, and none is passed over."""
    house.stock(14, rank=lambda n: None if n % 2 else 100 - n)
    walk(driver, lambda: select(Item), key=Item.rank)

    assert house.lines() == ["14", "12", "10", "8", "6", "4", "2", "1", "3", "5", "7", "9", "11", "13"]


@pytest.mark.parametrize("has_value", [True, False])
def test_by_a_nullable_key_with_values_only_or_none(
    driver: Driver, house: Warehouse, has_value: bool
) -> None:
    """Either kind may be missing."""
    house.stock(5, rank=(lambda n: n) if has_value else None)
    walk(driver, lambda: select(Item), key=Item.rank)

    assert house.lines() == ["1", "2", "3", "4", "5"]


def test_by_an_instant_without_a_zone(driver: Driver, house: Warehouse) -> None:
    """The column that most tables are gone through by."""
    house.stock(9, came_at=lambda n: NOON - timedelta(minutes=n // 2))
    run = walk(driver, lambda: select(Item), key=Item.came_at)

    assert house.lines() == ["8", "9", "6", "7", "4", "5", "2", "3", "1"]
    assert run.steps[0].cursor == ["2030-06-01T11:57:00", 6]


def test_by_a_double(driver: Driver, house: Warehouse) -> None:
    """What was read of it is what is stored, to the last bit."""
    crates = [(number, number * 0.1 / 3) for number in range(1, 11)]
    house.add(
        *(
            Crate(id=number, weight=weight, exact_weight=weight, color="red", is_open=False)
            for number, weight in crates
        )
    )
    walk(driver, lambda: select(Crate), key=Crate.exact_weight)

    assert house.lines() == [str(number) for number, _ in crates]


def test_by_a_primary_key_of_two_columns(driver: Driver, house: Warehouse) -> None:
    """Both are needed to know where one stands."""
    house.add(*(Box(row=row, place=place) for row in (2, 1, 3) for place in "cab"))
    walk(driver, lambda: select(Box), name=lambda box: f"{box.row}{box.place}")

    assert house.lines() == [f"{row}{place}" for row in (1, 2, 3) for place in "abc"]


def test_by_one_column_of_such_a_key(driver: Driver, house: Warehouse) -> None:
    """The other one settles ties."""
    house.add(*(Box(row=row, place=place) for row in (2, 1, 3) for place in "cab"))
    walk(driver, lambda: select(Box), key=Box.place, name=lambda box: f"{box.row}{box.place}")

    assert house.lines() == [f"{row}{place}" for place in "abc" for row in (1, 2, 3)]


def test_by_batches(driver: Driver, house: Warehouse) -> None:
    """Each batch is one move, and commits as one."""
    house.stock(7, shelf="a")
    WHAT.update(query=lambda: select(Item), key=Item.shelf)
    run = Batches.start()
    driver.drain()

    assert house.lines() == [
        *["1", "2", "3", "batch of 3 up to 3"],
        *["4", "5", "6", "batch of 3 up to 6"],
        *["7", "batch of 1 up to 7"],
    ]
    assert [row.cursor for row in run.steps] == [["a", 6], ["a", 7]]


# -- what changes meanwhile ----------------------------------------------------------------------------------------


def test_rows_that_leave_the_select_while_they_are_done(driver: Driver, house: Warehouse) -> None:
    """The usual way of a job: find what is not done, and mark it as done. No row is passed over."""
    house.stock(11)

    def mark(self: Any, item: Item) -> None:
        item.is_done = True

    DO["item"] = mark
    walk(driver, lambda: select(Item).where(Item.is_done.is_(False)))

    assert house.lines() == [str(n) for n in range(1, 12)]
    with house.session() as session:
        assert session.query(Item).filter_by(is_done=True).count() == 11


def test_rows_whose_key_changes_while_they_are_done(driver: Driver, house: Warehouse) -> None:
    """Where one stands is known before the body changes it."""
    house.stock(6, rank=lambda n: n)

    def push(self: Any, item: Item) -> None:
        item.rank = 0

    DO["item"] = push
    walk(driver, lambda: select(Item), key=Item.rank)

    assert house.lines() == ["1", "2", "3", "4", "5", "6"]


def test_rows_that_come_and_go(driver: Driver, house: Warehouse) -> None:
    """What is gone before its page is read is not seen, what comes ahead is; nothing else moves."""
    house.stock(8)

    def change(self: Any, item: Item) -> None:
        if item.id == 2:
            with house.session() as session:
                session.execute(delete(Item).where(Item.id.in_([1, 7])))
                session.add_all([Item(id=20), Item(id=21)])
                session.commit()

    DO["item"] = lambda self, item: None
    WHAT["page"] = 2
    DO["item"] = lambda self, item: self.cursor.checkpoint() or change(self, item)
    walk(driver, lambda: select(Item))

    assert house.lines() == ["1", "2", "3", "4", "5", "6", "8", "20", "21"]


def test_rows_are_read_as_they_are(driver: Driver, house: Warehouse) -> None:
    """A later page shows what the body has written to it before."""
    house.stock(6, rank=0)

    def raise_all(self: Any, item: Item) -> None:
        if item.id == 1:
            self.session.execute(update(Item).where(Item.id > 4).values(rank=9))

    DO["item"] = raise_all
    walk(driver, lambda: select(Item), name=lambda item: f"{item.id}: {item.rank}")

    assert house.lines() == ["1: 0", "2: 0", "3: 0", "4: 0", "5: 9", "6: 9"]


def test_records_stay_usable_after_a_checkpoint(driver: Driver, house: Warehouse) -> None:
    """What was loaded before it can be read and changed after it, without being loaded again."""
    house.stock(3, shelf="old")
    kept: list[Item] = []

    def keep(self: Any, item: Item) -> None:
        for earlier in kept:
            assert earlier in self.session
            earlier.shelf += f" {item.id}"
        kept.append(item)
        self.cursor.checkpoint()

    DO["item"] = keep
    WHAT["query"] = lambda: select(Item)

    class Whole(Workflow):
        workflow_name = "iterating.Whole"

        @resumable_step
        def walk(self) -> None:
            for item in self.cursor.iterate(WHAT["query"]()):
                DO["item"](self, item)

    run = Whole.start()
    driver.drain()

    assert run.state is RunState.COMPLETED, run.explain()
    with house.session() as session:
        assert list(session.scalars(select(Item.shelf).order_by(Item.id))) == ["old 2 3", "old 3", "old"]


# -- what cannot be gone through -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "key", "message"),
    [
        (lambda: select(Item.id), None, "takes a select of one mapped class"),
        (lambda: select(Item, Box), None, "takes a select of one mapped class"),
        (lambda: select(Item).limit(3), None, "a limit or an offset of the select would be lost"),
        (lambda: select(Item).offset(3), None, "a limit or an offset of the select would be lost"),
        (lambda: select(Item), "colour", "Item has no column 'colour' to go by"),
        (lambda: select(Crate), "weight", "Crate.weight cannot be gone by: Float columns are not compared"),
        (lambda: select(Crate), "color", "Crate.color cannot be gone by: Enum columns are not compared"),
        (
            lambda: select(Crate),
            "is_open",
            "Crate.is_open cannot be gone by: Boolean columns are not compared",
        ),
    ],
    ids=["a column", "two classes", "a limit", "an offset", "no column", "a float", "an enum", "a flag"],
)
def test_what_is_no_table_is_refused(
    driver: Driver, house: Warehouse, query: Any, key: Any, message: str
) -> None:
    """With what to write instead; nothing is gone through by half."""
    WHAT.update(query=query, key=key)
    run = Walk.start()
    driver.drain()

    assert run.state is RunState.FAILED
    assert message in (run.info().error_message or "")


def test_a_cursor_of_another_key_is_refused(driver: Driver, house: Warehouse, well: Stepwell) -> None:
    """A deploy that changes the key does not make a run begin somewhere by chance."""
    house.stock(9)
    WHAT.update(query=lambda: select(Item))
    DO["item"] = lambda self, item: self.pause() if item.id == 4 else None
    run = Walk.start()
    driver.drain()
    assert run.state is RunState.PAUSED
    WHAT.update(key=Item.shelf)
    run.resume()
    driver.drain()

    assert "does not fit the key" in (run.info().error_message or "")
