"""Writing a journal entry statement by statement, for databases where one round trip more costs little.

The guard decides first: when it refuses, nothing of the entry was written and the transaction goes on with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from stepwell.clock import to_micros
from stepwell.entries import Execution, JournalEntry, Settlement, Verdict
from stepwell.states import TERMINAL, RunState
from stepwell.store.dialects.base import CONSUME, EXECUTION_COLUMNS, FINISHED_COLUMNS

__all__ = ["Rowwise", "as_stored"]

_GUARD: Final = "WHERE id = ? AND lease_token = ? AND state = 'running'"
_VERSION: Final = "version = CASE WHEN version < ? THEN ? ELSE version END"
_STEP: Final = f"""
UPDATE stepwell_runs SET
    current_step = ?, context = COALESCE(?, context), {_VERSION},
    recoveries = CASE WHEN ? = 1 THEN 0 ELSE recoveries END
{_GUARD}"""
_SETTLE: Final = f"""
UPDATE stepwell_runs SET
    current_step = ?, context = COALESCE(?, context), {_VERSION},
    recoveries = CASE WHEN ? = 1 THEN 0 ELSE recoveries END,
    state = ?, reason = ?, queue = COALESCE(?, queue), priority = COALESCE(?, priority),
    lane = CASE WHEN ? = 1 THEN queue END, due_at = ?, wake_at = ?,
    result = COALESCE(?, result), error_class = ?, error_message = ?,
    active_key = CASE WHEN ? = 1 THEN NULL ELSE active_key END,
    open_branch = CASE WHEN ? = 1 THEN NULL ELSE open_branch END,
    stop_request = CASE WHEN ? = 1 THEN NULL ELSE stop_request END,
    details = COALESCE(?, details), changed_at = ?, finished_at = ?,
    lease_expires_at = NULL, lease_token = NULL, lease_owner = NULL
{_GUARD} AND (? IS NULL OR wakeups = ?)"""


def as_stored(value: Any) -> Any:
    """A value as SQLite and MariaDB hold it."""
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, UUID):
        return value.hex
    return value


class Rowwise:
    """The statements of an entry, for one parameter style.

    Args:
        placeholder: ``?`` or ``%s``.
        upsert: Turns (assignments from the new row) into the clause that finishes an unfinished row.
        new_value: How the clause names the new row's value of a column.
    """

    def __init__(
        self,
        placeholder: str,
        upsert: Callable[[list[str]], str],
        quote: Callable[[str], str],
        returning: str,
    ) -> None:
        columns = ", ".join(quote(name) for name in EXECUTION_COLUMNS)
        marks = ", ".join([placeholder] * len(EXECUTION_COLUMNS))
        changing = [quote(name) for name in FINISHED_COLUMNS]
        self.step = _STEP.replace("?", placeholder) + returning
        # The queue may change in this very statement, and databases differ in which value `queue` then has.
        self.settle = _SETTLE.replace("THEN queue END", "THEN COALESCE(?, queue) END").replace(
            "?", placeholder
        )
        self.settle += returning
        self.consume = CONSUME.replace("?", placeholder)
        self.record = f"INSERT INTO stepwell_step_executions ({columns}) VALUES ({marks}) {upsert(changing)}"

    @staticmethod
    def step_values(entry: JournalEntry) -> tuple[Any, ...]:
        return (
            entry.current_step,
            entry.context,
            entry.version,
            entry.version,
            int(entry.is_progress),
            entry.run_id.hex,
            entry.token.hex,
        )

    @staticmethod
    def settle_values(entry: JournalEntry, settlement: Settlement) -> tuple[Any, ...]:
        is_over = settlement.state in TERMINAL
        return (
            entry.current_step,
            entry.context,
            entry.version,
            entry.version,
            int(entry.is_progress),
            str(settlement.state),
            settlement.reason,
            settlement.queue,
            settlement.priority,
            int(settlement.state is RunState.READY),
            settlement.queue,
            as_stored(settlement.due_at),
            as_stored(settlement.wake_at),
            settlement.result,
            settlement.error_class,
            settlement.error_message,
            int(settlement.frees_identity),
            int(is_over),
            int(settlement.answers_request),
            settlement.details,
            to_micros(entry.at),
            to_micros(entry.at) if is_over else None,
            entry.run_id.hex,
            entry.token.hex,
            settlement.seen_wakeups,
            settlement.seen_wakeups,
        )

    @staticmethod
    def execution_values(entry: JournalEntry, row: Execution) -> tuple[Any, ...]:
        """In the order of the table's columns."""
        return (
            entry.run_id.hex,
            row.position,
            row.name,
            row.key,
            row.kind.value,
            row.attempt,
            row.state.value,
            None if row.outcome is None else row.outcome.value,
            row.args_digest,
            row.result,
            row.context_delta,
            row.cursor,
            row.continues_from,
            None,
            as_stored(row.scheduled_for),
            as_stored(row.started_at),
            as_stored(row.finished_at),
            row.error_class,
            row.error_message,
            row.traceback,
            entry.worker,
            row.details,
        )

    def apply(
        self,
        entries: Sequence[JournalEntry],
        guard: Callable[[JournalEntry, str, tuple[Any, ...]], tuple[int, str | None] | None],
        execute: Callable[[str, tuple[Any, ...]], object],
    ) -> list[Verdict]:
        """Write each entry whose guard holds; ``guard`` answers (wakeups, stop_request), or None if it refuses."""
        verdicts = []
        for entry in entries:
            if entry.settlement is None:
                answer = guard(entry, self.step, self.step_values(entry))
            else:
                answer = guard(entry, self.settle, self.settle_values(entry, entry.settlement))
            if answer is None:
                verdicts.append(Verdict(accepted=False))
                continue
            for row in entry.executions:
                execute(self.record, self.execution_values(entry, row))
            if entry.consumes is not None:
                execute(self.consume, (to_micros(entry.at), entry.executions[0].position, entry.consumes))
            verdicts.append(Verdict(True, answer[0], answer[1]))
        return verdicts
