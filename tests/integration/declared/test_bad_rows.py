"""Rows that cannot be read back: that run fails and says so, and its neighbours go on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from stepwell import Run, Skip, Stepwell, Workflow, step
from stepwell.states import Reason, RunState
from stepwell.store.schema import executions
from tests.integration.declared.shop import Customer, Entry, Shop
from tests.support.driving import Driver


class Serve(Workflow[Customer]):
    """Looks at everything that a run has."""

    workflow_name = "bad_rows.Serve"

    @step
    def serve(self) -> None:
        self.session.add(Entry(text=f"{self.hero.name} {self.args['dish']} {self.context.get('table')}"))


def set_raw(well: Stepwell, run: Run, column: str, value: str) -> None:
    """Put a text into a column of a run's row, whatever the column's type would say to it."""
    with well.database.begin() as connection:
        quoted = connection.dialect.identifier_preparer.quote(column)
        mark = "?" if connection.dialect.name == "sqlite" else "%s"
        run_id: Any = str(run.id) if connection.dialect.name == "postgresql" else run.id.hex
        connection.exec_driver_sql(
            f"UPDATE stepwell_runs SET {quoted} = {mark} WHERE id = {mark}", (value, run_id)
        )


DAMAGES: dict[str, tuple[str, str]] = {
    "args that are no JSON": ("args", "{broken"),
    "args that are no mapping": ("args", "[1, 2]"),
    "args of an unknown class": ("args", '{"dish": {"~": "enum", "v": ["nowhere:Dish", "SOUP"]}}'),
    "context that is no JSON": ("context", "{broken"),
    "context that is no mapping": ("context", "3"),
    "options that are no JSON": ("options", "{broken"),
    "hero of no adapter": ("hero_type", "tests.integration.declared.shop:Customer"),
    "hero of an unknown adapter": ("hero_type", "xx:tests.integration.declared.shop:Customer"),
    "hero of a class that is gone": ("hero_type", "sa:tests.integration.declared.shop:Gone"),
    "hero of a module that is gone": ("hero_type", "sa:tests.nowhere:Customer"),
    "hero's key that is no JSON": ("hero_id", "broken"),
    "hero's key of another shape": ("hero_id", "[1, 2]"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_run_that_cannot_be_read_fails_alone(driver: Driver, shop: Shop, well: Stepwell, kind: str) -> None:
    """It stands as ``undecodable`` with what was wrong; the runs that were claimed with it complete."""
    names = ["before", "broken", "after"]
    before, broken, after = (Serve.start(shop.customer(name), dish="soup") for name in names)
    set_raw(well, broken, *DAMAGES[kind])
    driver.drain()

    row = broken.info()
    assert (row.state, row.reason) == (RunState.FAILED, Reason.UNDECODABLE)
    assert row.error_message
    assert row.current_step == "serve"
    assert before.state is after.state is RunState.COMPLETED
    assert shop.ledger == ["before soup None", "after soup None"]


def test_what_was_mended_can_be_resumed(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """Nothing of the run is lost: with the right text it goes on where it stopped."""
    run = Serve.start(shop.customer("Ada"), dish="soup")
    set_raw(well, run, "args", "{broken")
    driver.drain()
    set_raw(well, run, "args", '{"dish": "salad"}')
    run.resume()
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert shop.ledger == ["Ada salad None"]


def test_no_policy_is_asked_about_a_row_that_cannot_be_read(
    driver: Driver, shop: Shop, well: Stepwell
) -> None:
    """Trying again would read the same."""

    class Careless(Workflow[Customer]):
        policies = [Skip()]

        @step
        def serve(self) -> None:
            self.hero.name

    run = Careless.start(shop.customer("Ada"))
    set_raw(well, run, "hero_type", "sa:tests.nowhere:Customer")
    driver.drain()

    assert (run.state, run.reason) == (RunState.FAILED, Reason.UNDECODABLE)


def test_a_request_that_cannot_be_read_fails_its_run_alone(
    driver: Driver, shop: Shop, well: Stepwell
) -> None:
    """What somebody asked for is a text in the row like others."""
    broken, other = (Serve.start(shop.customer(name), dish="soup") for name in ("broken", "other"))
    set_raw(well, broken, "stop_request", "{broken")
    driver.drain()

    assert (broken.state, broken.reason) == (RunState.FAILED, Reason.UNDECODABLE)
    assert other.state is RunState.COMPLETED

    broken.resume()
    driver.drain()
    assert broken.state is RunState.COMPLETED, "a person goes on without it"


def test_details_that_cannot_be_read_stop_nobody(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """Details are for people: a run whose details are broken runs, also when it has to be deferred."""
    run = Serve.start(shop.customer("Ada"), dish="soup")
    unknown = Serve.start(shop.customer("Bob"), dish="soup")
    set_raw(well, run, "details", "{broken")
    set_raw(well, unknown, "details", "{broken")
    set_raw(well, unknown, "workflow", "NobodyKnows")
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert (unknown.state, unknown.reason) == (RunState.WAITING, Reason.UNKNOWN_WORKFLOW)


@pytest.mark.parametrize("column", ["details", "state", "outcome", "kind"])
def test_a_journal_row_of_unknown_making_stops_nobody(
    driver: Driver, shop: Shop, well: Stepwell, column: str
) -> None:
    """A newer version may write words that this one does not know: the run goes on."""
    acts: list[Callable[[], None]] = [lambda: None]

    class Two(Workflow[None]):
        @step
        def first(self) -> None:
            self.pause(done=True)

        @step
        def second(self) -> None:
            acts.pop()()

    run = Two.start()
    driver.drain()
    with well.database.begin() as connection:
        change = update(executions).where(executions.c.run_id == run.id, executions.c.position == 1)
        connection.execute(change.values({column: "unheard"} if column != "details" else {column: "{broken"}))
    run.resume()
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert acts == []


@pytest.mark.parametrize(
    "text", ["{broken", "[]", "{}", '{"set": 3, "gone": []}', '{"set": {}, "gone": [1]}']
)
@pytest.mark.parametrize("rows", [{1}, {2}, {1, 2}])
def test_a_change_of_the_context_that_cannot_be_read_fails_its_run_alone(
    driver: Driver, shop: Shop, well: Stepwell, text: str, rows: set[int]
) -> None:
    """What ``run()`` would decide without it is not known, so ``run()`` cannot catch that; mended, it goes on."""
    tables: list[tuple[object, object]] = []

    class Seats(Workflow[None]):
        def run(self) -> None:
            try:
                self.seat("one")
                self.seat("two")
            except Exception:
                self.finish("as if nothing had been")
            self.pause()
            tables.append((self.context.get("one"), self.context.get("two")))

        @step(key_by="name")
        def seat(self, name: str) -> None:
            self.context[name] = True

    broken, other = Seats.start(), Seats.start()
    driver.drain()
    known = {
        position: f'{{"set": {{"{name}": true}}, "gone": []}}' for position, name in ((1, "one"), (2, "two"))
    }
    set_changes(well, broken, dict.fromkeys(rows, text))
    for run in (broken, other):
        run.resume()
    driver.drain()

    row = broken.info()
    assert (row.state, row.reason) == (RunState.FAILED, Reason.UNDECODABLE)
    assert (row.error_message or "").startswith("context cannot be read back")
    assert other.state is RunState.COMPLETED

    set_changes(well, broken, known)
    broken.resume()
    driver.drain()
    assert broken.state is RunState.COMPLETED
    assert tables == [(True, True)] * 2


def set_changes(well: Stepwell, run: Run, texts: dict[int, str]) -> None:
    with well.database.begin() as connection:
        for position, text in texts.items():
            place = (executions.c.run_id == run.id, executions.c.position == position)
            connection.execute(update(executions).where(*place).values(context_delta=text))


@pytest.mark.parametrize("column", ["due_at", "created_at", "scheduled_for"])
@pytest.mark.parametrize("micros", [2**62, -(2**62)])
def test_an_instant_that_no_datetime_can_hold_stops_no_claim(
    driver: Driver, shop: Shop, well: Stepwell, column: str, micros: int
) -> None:
    """A worker claims it together with others, and would claim none of them ever after."""
    acts: list[str] = []

    class Twice(Workflow[None]):
        @step
        def first(self) -> None:
            self.pause(done=True)

        @step
        def second(self) -> None:
            acts.append(self.args["name"])

    broken, other = (Twice.start(name=name) for name in ("broken", "other"))
    driver.drain()
    for run in (broken, other):
        run.resume()
    table, key = ("step_executions", "run_id") if column == "scheduled_for" else ("runs", "id")
    with well.database.begin() as connection:
        known: Any = str(broken.id) if connection.dialect.name == "postgresql" else broken.id.hex
        connection.exec_driver_sql(f"UPDATE stepwell_{table} SET {column} = {micros} WHERE {key} = '{known}'")
    driver.drain()

    assert other.state is RunState.COMPLETED
    assert broken.state is RunState.COMPLETED
    assert sorted(acts) == ["broken", "other"]
    assert broken.explain()
    assert broken.steps


def test_a_cursor_in_a_row_of_run_that_has_none_keeps_no_worker_busy(
    driver: Driver, shop: Shop, well: Stepwell
) -> None:
    """A wait is no resumable step: what it waits for is not behind it."""
    answers = [True, False]

    class Looks(Workflow[None]):
        def run(self) -> None:
            self.wait_until(lambda: answers.pop(), every=timedelta(seconds=1), name="look")

    run = Looks.start()
    driver.drain()
    with well.database.begin() as connection:
        connection.execute(update(executions).where(executions.c.run_id == run.id).values(cursor="7"))
    driver.finish(run)

    assert run.state is RunState.COMPLETED
    assert answers == []


@pytest.mark.parametrize(
    "details", ["{broken", "[]", '{"deadline": "soon"}', '{"deadline": 4611686018427387904}']
)
def test_a_deadline_that_cannot_be_read_fails_its_run_alone(
    driver: Driver, shop: Shop, well: Stepwell, details: str
) -> None:
    """When the wait ends is told nowhere else."""

    class Looks(Workflow[None]):
        def run(self) -> None:
            self.wait_until(bool, timeout=timedelta(hours=1), every=timedelta(minutes=1), default=None)

    broken, other = Looks.start(), Looks.start()
    driver.drain()
    with well.database.begin() as connection:
        place = update(executions).where(executions.c.run_id == broken.id)
        connection.execute(place.values(details=details))
    driver.finish(other)
    driver.finish(broken)

    assert (broken.state, broken.reason) == (RunState.FAILED, Reason.UNDECODABLE)
    assert other.state is RunState.COMPLETED


def test_a_row_of_an_unknown_kind_that_is_open_is_ended_with_its_run(
    driver: Driver, shop: Shop, well: Stepwell
) -> None:
    """And what follows from the end happens: here, that somebody hears of it."""
    heard: list[object] = []

    class Sleeps(Workflow[None]):
        def run(self) -> None:
            self.sleep(timedelta(hours=1))

        def on_finish(self, result: object) -> None:
            heard.append(result)

    run = Sleeps.start()
    driver.drain()
    with well.database.begin() as connection:
        connection.execute(update(executions).where(executions.c.run_id == run.id).values(kind="unheard"))
    driver.finish(run)

    assert run.state is RunState.COMPLETED
    assert heard == [None]


def test_a_state_that_nobody_knows_is_told(driver: Driver, shop: Shop, well: Stepwell) -> None:
    """Of a run that a newer version has left so, no more can be said."""
    run = Serve.start(shop.customer("Ada"), dish="soup")
    set_raw(well, run, "state", "unheard")

    assert "is in state 'unheard', which this version of Stepwell does not know" in run.explain()
