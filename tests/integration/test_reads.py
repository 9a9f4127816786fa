"""Questions about runs give the same answers on every database, whatever is in the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Table, create_engine, event, insert

from stepwell.ids import new_run_id
from stepwell.states import ATTENTION, LIVE, TERMINAL, RunState
from stepwell.store import reads
from stepwell.store.reads import Order, RunFilter
from stepwell.store.rows import ExecutionRow, Orphans, QueueDepth, RunRow, SignalRow
from stepwell.store.schema import executions, metadata, runs, signals

NOON = datetime(2030, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    engine = create_engine(database_url)
    metadata.create_all(engine)
    with engine.connect() as open_connection:
        yield open_connection
    engine.dispose()


def add_run(connection: Connection, **values: Any) -> UUID:
    """Insert a run with the least that a run has, and what is given."""
    run_id = new_run_id()
    least: dict[str, Any] = {
        "id": run_id,
        "workflow": "Onboarding",
        "version": 1,
        "state": "waiting",
        "args": "{}",
        "queue": "default",
        "priority": 100,
        "wakeups": 0,
        "recoveries": 0,
        "created_at": NOON,
        "changed_at": NOON,
    }
    connection.execute(insert(runs), least | values)
    return run_id


def add_execution(connection: Connection, run_id: UUID, position: int, **values: Any) -> None:
    least = {"run_id": run_id, "position": position, "name": "greet", "kind": "step", "attempt": 1}
    connection.execute(insert(executions), least | {"state": "completed"} | values)


def full_row(cls: type[Any], **special: Any) -> Any:
    """A value with something in every field, as the field's type wants it."""
    samples = {"str": "Grüße 🌊", "int": 7, "UUID": uuid4(), "datetime": NOON}
    return cls(
        **{
            field.name: special.get(field.name, samples[str(field.type).split(" |")[0]])
            for field in fields(cls)
        }
    )


def as_values(row: Any) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


@pytest.mark.parametrize(
    ("table", "cls"), [(runs, RunRow), (executions, ExecutionRow), (signals, SignalRow)], ids=lambda x: str(x)
)
def test_a_row_class_shows_every_column(table: Table, cls: type[Any]) -> None:
    """Law: nothing that is stored is out of sight: a row class has exactly the columns of its table."""
    assert [field.name for field in fields(cls)] == [column.name for column in table.columns]


def test_a_run_comes_back_as_it_was_stored(connection: Connection) -> None:
    """Law: ids come back as UUIDs, instants as aware UTC to the microsecond, text as it was, everywhere."""
    stored = full_row(RunRow, active_key="a" * 64, definition="d" * 64, state="running")
    connection.execute(insert(runs), as_values(stored))
    found = reads.find_run(connection, stored.id)
    assert found == stored
    assert type(found.lease_token) is UUID
    assert found.due_at is not None
    assert found.due_at.utcoffset() == timedelta(0)


def test_an_unknown_id_is_no_run(connection: Connection) -> None:
    """Law: asking for what is not there answers None."""
    assert reads.find_run(connection, new_run_id()) is None


def test_an_identity_is_found_while_it_is_held(connection: Connection) -> None:
    """Law: an identity leads to the run that holds it, of that workflow only, and to nothing once free."""
    holder = add_run(connection, active_key="a" * 64)
    add_run(connection, workflow="Other", active_key="a" * 64)
    add_run(connection, state="completed", active_key=None)
    found = reads.find_by_identity(connection, "Onboarding", "a" * 64)
    assert found is not None
    assert found.id == holder
    assert reads.find_by_identity(connection, "Onboarding", "b" * 64) is None


def test_a_row_that_nobody_understands_does_not_break_the_list(connection: Connection) -> None:
    """Law: broken JSON, an unknown state and an unknown workflow are shown like any other run."""
    sound = add_run(connection)
    odd = add_run(connection, workflow="Gone", state="levitating", args="{not json", context='{"~": "?"}')
    listed = reads.list_runs(connection, RunFilter())
    assert [row.id for row in listed] == [odd, sound]
    assert (listed[0].state, listed[0].args) == ("levitating", "{not json")


def test_open_entries_are_what_runs_are_at(connection: Connection) -> None:
    """Law: of each run asked for, in order, what is scheduled or in progress and still counts; nothing of others."""
    first, second, third = (add_run(connection) for _ in range(3))
    add_execution(connection, first, 1)
    add_execution(connection, first, 3, state="in_progress")
    add_execution(connection, first, 2, state="scheduled", kind="signal")
    add_execution(connection, first, 4, state="scheduled", superseded_at=NOON)
    add_execution(connection, second, 1, state="failed")
    add_execution(connection, third, 1, state="scheduled")
    found = reads.open_entries(connection, [first, second])
    assert {run_id: [row.position for row in rows] for run_id, rows in found.items()} == {
        first: [2, 3],
        second: [],
    }
    assert reads.open_entries(connection, []) == {}


@pytest.fixture
def zoo(connection: Connection) -> dict[str, UUID]:
    """One run for each thing that a filter can tell apart."""
    return {
        "ready": add_run(connection, state="ready", lane="default", due_at=NOON, changed_at=NOON - HOUR),
        "running": add_run(connection, state="running", lease_expires_at=NOON, current_step="ship"),
        "waiting": add_run(connection, state="waiting", wake_at=NOON, hero_type="app:User", hero_id="7"),
        "awaiting": add_run(connection, state="awaiting", hero_type="app:Shop", hero_id="7"),
        "paused": add_run(connection, state="paused", workflow="Other", active_key="b" * 64),
        "failed": add_run(connection, state="failed", active_key="a" * 64, key="order-1"),
        "completed": add_run(connection, state="completed", key="order-1", current_step="ship"),
        "canceled": add_run(connection, state="canceled", workflow="Other", changed_at=NOON - HOUR),
    }


def told(value: object) -> str:
    """A test's id that is the same in every process: a set's own text is not."""
    if not isinstance(value, RunFilter):
        return str(value)
    said = {field.name: getattr(value, field.name) for field in fields(value)}
    return ",".join(
        f"{name}={sorted(map(str, each)) if isinstance(each, set | frozenset) else each}"
        for name, each in said.items()
        if each is not None
    )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (RunFilter(states=LIVE), "ready running waiting awaiting"),
        (RunFilter(states=ATTENTION), "paused failed"),
        *((RunFilter(states={state}), state.value) for state in RunState),
        (RunFilter(states={"ready", "running"}), "ready running"),
        (RunFilter(states={"completed", "failed"}), "failed completed"),
        (RunFilter(states={"failed", "ready"}), "ready failed"),
        (RunFilter(states=()), ""),
        (RunFilter(workflows=["Other"]), "paused canceled"),
        (RunFilter(workflows=["Other"], states=ATTENTION), "paused"),
        (RunFilter(workflows=()), ""),
        (RunFilter(ids=()), ""),
        (RunFilter(hero=("app:User", "7")), "waiting"),
        (RunFilter(step="ship"), "running completed"),
        (RunFilter(digest="a" * 64), "failed"),
        (RunFilter(key="order-1"), "failed completed"),
        (RunFilter(changed_before=NOON), "ready canceled"),
        (RunFilter(changed_before=NOON, states=LIVE), "ready"),
        (RunFilter(changed_before=NOON - HOUR), ""),
    ],
    ids=told,
)
def test_a_filter_means_what_it_says(
    connection: Connection, zoo: dict[str, UUID], wanted: RunFilter, expected: str
) -> None:
    """Law: list, count and ids agree on which runs a filter means, and every given field narrows it."""
    names = expected.split()
    listed = reads.list_runs(connection, wanted, Order.OLDEST)
    assert [row.id for row in listed] == [zoo[name] for name in names]
    assert reads.count_runs(connection, wanted) == len(names)
    assert reads.run_ids(connection, wanted, limit=100) == [zoo[name] for name in names]


def test_ids_choose_among_runs(connection: Connection, zoo: dict[str, UUID]) -> None:
    """Law: ids mean these runs, in order of creation, and ids of no run are no error."""
    wanted = RunFilter(ids=[zoo["paused"], zoo["ready"], new_run_id()])
    listed = reads.list_runs(connection, wanted, Order.OLDEST)
    assert [row.id for row in listed] == [zoo["ready"], zoo["paused"]]


@pytest.mark.parametrize("state", ["failed", "completed"])
def test_lists_are_cut_in_order_of_creation(connection: Connection, state: str) -> None:
    """Law: newest first by default; limit and offset cut that order, for states of few and of many runs."""
    ids = [add_run(connection, state=state) for _ in range(5)]
    wanted = RunFilter(states={state})

    def listed(*args: Any, **options: Any) -> list[UUID]:
        return [row.id for row in reads.list_runs(connection, wanted, *args, **options)]

    assert listed() == ids[::-1]
    assert listed(limit=2) == [ids[4], ids[3]]
    assert listed(Order.OLDEST, limit=2, offset=3) == [ids[3], ids[4]]
    assert listed(limit=0) == []


def test_pages_of_ids_end(connection: Connection) -> None:
    """Law: paging by the last id meets each run once and ends, though no run has changed meanwhile."""
    ids = [add_run(connection, state="failed") for _ in range(5)]
    wanted = RunFilter(states=ATTENTION)
    seen: list[UUID] = []
    while page := reads.run_ids(connection, wanted, 2, after=seen[-1] if seen else None):
        seen += page
    assert seen == ids


def test_a_history_is_in_its_order(connection: Connection) -> None:
    """Law: a run's own journal by position, however it was written, whole and with what was superseded."""
    run_id, other = add_run(connection), add_run(connection)
    last = full_row(ExecutionRow, run_id=run_id, position=10, args_digest="c" * 64)
    connection.execute(insert(executions), as_values(last))
    add_execution(connection, run_id, 2, superseded_at=NOON, result="{not json")
    add_execution(connection, run_id, 1)
    add_execution(connection, other, 1)
    history = reads.history(connection, run_id)
    assert [row.position for row in history] == [1, 2, 10]
    assert history[1].result == "{not json"
    assert history[2] == last


def test_a_mailbox_is_in_the_order_of_sending(connection: Connection) -> None:
    """Law: a run's own signals in the order in which the database numbered them, read ones included."""
    run_id, other = add_run(connection), add_run(connection)
    whole = full_row(SignalRow, run_id=other, id=900)
    connection.execute(insert(signals), as_values(whole))
    for name, consumed_at in [("review", NOON), (None, None), ("review", None)]:
        values = {"run_id": run_id, "name": name, "sent_at": NOON, "consumed_at": consumed_at}
        connection.execute(insert(signals), values)
    mailbox = reads.signals_of(connection, run_id)
    assert [(row.name, row.consumed_at) for row in mailbox] == [
        ("review", NOON),
        (None, None),
        ("review", None),
    ]
    assert reads.signals_of(connection, other) == [whole]


def test_queue_depths_count_what_waits_for_a_worker(connection: Connection) -> None:
    """Law: each queue and priority with ready runs is shown with their number and the oldest due instant."""
    for queue, priority, hours in [("mail", 100, 3), ("mail", 100, 1), ("mail", 0, 2), ("default", 100, 5)]:
        due_at = NOON + hours * HOUR
        add_run(connection, state="ready", queue=queue, lane=queue, priority=priority, due_at=due_at)
    add_run(connection, state="running", queue="mail")
    assert reads.queue_depths(connection) == [
        QueueDepth("default", 100, 1, NOON + 5 * HOUR),
        QueueDepth("mail", 0, 1, NOON + 2 * HOUR),
        QueueDepth("mail", 100, 2, NOON + 1 * HOUR),
    ]


def test_orphans_are_counted_up_to_a_limit(connection: Connection) -> None:
    """Law: rows of runs that are gone are counted, and no others; counting is bounded."""
    run_id, gone = add_run(connection), new_run_id()
    for receiver in (run_id, gone):
        for position in (1, 2, 3):
            add_execution(connection, receiver, position)
        connection.execute(insert(signals), {"run_id": receiver, "sent_at": NOON})
    assert reads.find_orphans(connection) == Orphans(executions=3, signals=1, limit=1000)
    assert reads.find_orphans(connection, limit=2) == Orphans(executions=2, signals=1, limit=2)


@pytest.fixture
def index_used(sqlite_url: str) -> Iterator[Callable[..., str]]:
    """Ask a question and say how SQLite finds the answer.

    It shows on empty tables whether a question implies the condition of a partial index: SQLite compares the
    words of the two conditions, where others prove it and then go by the size of the tables.
    """
    engine = create_engine(sqlite_url)
    asked: list[tuple[str, Any]] = []
    event.listen(engine, "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))

    def ask(question: Callable[..., Any], *args: Any, **options: Any) -> str:
        with engine.connect() as connection:
            question(connection, *args, **options)
            statement, parameters = asked[-1]
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
        return str(plan[0].detail)

    yield ask
    engine.dispose()


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (RunFilter(states=ATTENTION), "ix_stepwell_runs_settled"),
        (RunFilter(states={"failed"}, changed_before=NOON), "ix_stepwell_runs_settled"),
        (RunFilter(states=TERMINAL), "ix_stepwell_runs_settled"),
        (RunFilter(states={"ready"}), "ix_stepwell_runs_lane"),
        (RunFilter(states={"running"}), "ix_stepwell_runs_lease"),
        (RunFilter(states={"waiting"}), "ix_stepwell_runs_wake"),
        (RunFilter(hero=("app:User", "7")), "ix_stepwell_runs_hero"),
        (RunFilter(workflows=["Onboarding"], digest="a" * 64), "ux_stepwell_runs_identity"),
    ],
    # Of their own: the text of a set differs from process to process.
    ids=["attention", "failed long ago", "terminal", "ready", "running", "waiting", "hero", "identity"],
)
def test_filters_are_served_by_their_index(
    index_used: Callable[..., str], wanted: RunFilter, index: str
) -> None:
    """Law: the question implies the condition of the partial index that is there for it."""
    assert index in index_used(reads.count_runs, wanted)


@pytest.mark.parametrize("state", ["ready", "running", "paused", "failed"])
def test_a_list_of_few_does_not_walk_all_the_runs(index_used: Callable[..., str], state: str) -> None:
    """Law: the wish for an order does not draw the planner away from the index that holds just these runs."""
    assert "ix_stepwell_runs_" in index_used(reads.list_runs, RunFilter(states={state}), limit=50)
    assert "ix_stepwell_runs_" in index_used(reads.run_ids, RunFilter(states={state}), limit=50)
