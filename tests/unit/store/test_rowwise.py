"""Entries statement by statement: the guard decides before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from stepwell.entries import Execution, JournalEntry, Settlement, Verdict
from stepwell.ids import new_run_id, new_token
from stepwell.states import ExecutionState, Kind, Outcome, RunState
from stepwell.store.dialects.base import EXECUTION_COLUMNS
from stepwell.store.dialects.rowwise import Rowwise, as_stored

NOON = datetime(2030, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)
MICROS = 1_906_545_600_123_456


def rowwise(placeholder: str = "?") -> Rowwise:
    return Rowwise(
        placeholder, upsert=lambda names: f"UPSERT {','.join(names)}", quote=str, returning=" RETURNING x"
    )


def row(position: int) -> Execution:
    return Execution(
        position, "greet", Kind.STEP, ExecutionState.COMPLETED, Outcome.SUCCESS, finished_at=NOON
    )


def entry(*rows: Execution, settlement: Settlement | None = None) -> JournalEntry:
    return JournalEntry(new_run_id(), new_token(), NOON, "worker", "next", rows, settlement=settlement)


@pytest.mark.parametrize("placeholder", ["?", "%s"])
def test_each_statement_has_a_place_for_each_value(placeholder: str) -> None:
    """A value more or less than places would be a broken statement on one product only."""
    statements, settled = rowwise(placeholder), Settlement(RunState.WAITING, wake_at=NOON, seen_wakeups=3)
    settling = entry(row(1), settlement=settled)
    assert statements.step.count(placeholder) == len(statements.step_values(settling))
    assert statements.settle.count(placeholder) == len(statements.settle_values(settling, settled))
    assert statements.record.count(placeholder) == len(statements.execution_values(settling, row(1)))


def test_a_row_is_written_in_the_order_of_its_columns() -> None:
    """Each value of an execution lands in the column of its name."""
    mine = entry(row(1))
    values = dict(zip(EXECUTION_COLUMNS, rowwise().execution_values(mine, row(1)), strict=True))
    expected = {
        "run_id": mine.run_id.hex,
        "position": 1,
        "name": "greet",
        "kind": "step",
        "attempt": 1,
        "state": "completed",
        "outcome": "success",
        "finished_at": MICROS,
        "worker": "worker",
    }
    assert values == dict.fromkeys(EXECUTION_COLUMNS) | expected


def test_what_identifies_a_row_is_never_changed_by_a_later_one() -> None:
    """Finishing a row keeps its name, kind and key; everything else is the later entry's."""
    changing = rowwise().record.partition("UPSERT ")[2].split(",")
    assert set(EXECUTION_COLUMNS) - set(changing) == {"run_id", "position", "name", "kind", "key"}


def test_a_refused_entry_writes_nothing() -> None:
    """When the guard refuses, no row of that entry is sent, and the next entry is judged for itself."""
    entries = [entry(row(1), row(2)), entry(row(3)), entry(row(4), settlement=Settlement(RunState.COMPLETED))]
    asked: list[tuple[UUID, str]] = []
    written: list[tuple[Any, ...]] = []
    statements = rowwise()

    def guard(mine: JournalEntry, sql: str, values: tuple[Any, ...]) -> tuple[int, str | None] | None:
        asked.append((mine.run_id, sql))
        assert len(written) == (2 if mine is not entries[0] else 0)
        return None if mine is entries[1] else (7, '{"verb": "pause"}')

    verdicts = statements.apply(entries, guard, lambda sql, values: written.append((sql, *values[:2])))
    assert verdicts == [
        Verdict(True, 7, '{"verb": "pause"}'),
        Verdict(False),
        Verdict(True, 7, '{"verb": "pause"}'),
    ]
    assert asked == [
        (entries[0].run_id, statements.step),
        (entries[1].run_id, statements.step),
        (entries[2].run_id, statements.settle),
    ]
    assert [position for _, _, position in written] == [1, 2, 4]


def test_values_are_stored_alike_everywhere() -> None:
    """Instants are microseconds since 1970 in any time zone, ids are 32 hex digits, the rest is itself."""
    elsewhere = NOON.astimezone(timezone(timedelta(hours=-7)))
    run_id = new_run_id()
    assert [as_stored(value) for value in (NOON, elsewhere, run_id, None, "text", 3)] == [
        MICROS,
        MICROS,
        run_id.hex,
        None,
        "text",
        3,
    ]
    with pytest.raises(TypeError, match="aware"):
        as_stored(datetime(2030, 6, 1))
