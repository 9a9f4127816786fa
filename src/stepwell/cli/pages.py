"""Runs as tables for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rich.text import Text

from stepwell.cli.notes import cursor_of, error_of, note_of, orphans_of, request_of, title_of
from stepwell.cli.progress import Meter, progress_text, read_progress
from stepwell.cli.terminal import Column, say, table, width
from stepwell.cli.words import counted, exact, instant, short_instant, span
from stepwell.states import ExecutionState
from stepwell.store.rows import ExecutionRow, RunRow
from stepwell.texts import printable

__all__ = ["show_run", "show_runs"]

_NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class _RunColumn:
    """A column of the list; it is left out where the output is narrower than ``from_width``."""

    column: Column
    value: Callable[[RunRow, datetime], str]
    from_width: int = 0


def show_runs(runs: Sequence[RunRow], now: datetime) -> None:
    """The list, with as many columns as there is room for."""
    shown = [each for each in _RUN_COLUMNS if width() >= each.from_width]
    table([each.column for each in shown], [[each.value(run, now) for each in shown] for run in runs])


def show_run(run: RunRow, journal: Sequence[ExecutionRow], explanation: str, now: datetime) -> None:
    """One run: where it stands, its facts, its journal."""
    say(Text(printable(explanation), style="bold"))
    say()
    for name, value in _facts(run, journal, now):
        if value:
            say(f"{name:<9} {printable(value)}")
    say()
    if not journal:
        say("Its journal is empty: no step has ended yet.")
        return
    table(_JOURNAL_COLUMNS, [_journal_row(row) for row in journal])


def _facts(run: RunRow, journal: Sequence[ExecutionRow], now: datetime) -> list[tuple[str, str | None]]:
    lease = f"{run.lease_owner}, until {instant(run.lease_expires_at)}" if run.lease_owner else None
    lost = f"its worker, {counted(run.recoveries, 'time')} in a row" if run.recoveries else None
    is_over = run.finished_at is not None
    return [
        ("about", None if _about(run) == _NONE else _about(run)),
        ("queue", f"{run.queue}, priority {run.priority}"),
        ("created", f"{instant(run.created_at)}, {span(now - run.created_at)} ago"),
        ("started", instant(run.started_at)),
        ("due", None if is_over else instant(run.wake_at or run.due_at)),
        ("finished", instant(run.finished_at)),
        ("worker", lease if run.lease_expires_at else None),
        ("lost", lost),
        ("asked", None if is_over else request_of(run, now)),
        ("progress", None if is_over else _progress(journal, now)),
        ("cursor", None if is_over else cursor_of(run, journal)),
        ("arguments", None if run.args == "{}" else run.args),
        ("context", run.context),
        ("result", None if run.result == "null" else run.result),
        ("orphans", orphans_of(run)),
    ]


def _progress(journal: Sequence[ExecutionRow], now: datetime) -> str | None:
    """How far the body has come that is under way, at the pace that it had since it began."""
    bodies = [row for row in journal if row.state == ExecutionState.IN_PROGRESS]
    progress = read_progress(bodies[-1]) if bodies else None
    return None if progress is None else progress_text(progress, Meter().look(bodies[-1], progress, now))


def _journal_row(row: ExecutionRow) -> list[str]:
    took = row.finished_at - row.started_at if row.finished_at and row.started_at else None
    return [
        str(row.position),
        title_of(row),
        str(row.attempt),
        row.outcome or row.state,
        short_instant(row.finished_at or row.started_at or row.scheduled_for),
        "" if took is None else exact(took),
        note_of(row),
    ]


def _about(run: RunRow) -> str:
    """What tells it from other runs of its workflow: its hero, or its key."""
    if run.hero_type is None:
        return run.key or _NONE
    return f"{re.split('[.:]', run.hero_type)[-1]} {run.hero_id}"


def _due(run: RunRow, now: datetime) -> str:
    if run.wake_at is None:
        return _NONE
    return f"in {span(run.wake_at - now)}" if run.wake_at > now else "now"


_RUN_COLUMNS: Final = (
    _RunColumn(Column("RUN", is_whole=True), lambda run, _: str(run.id)),
    _RunColumn(Column("WORKFLOW"), lambda run, _: run.workflow),
    _RunColumn(Column("ABOUT"), lambda run, _: _about(run), from_width=100),
    _RunColumn(Column("STATE", is_whole=True), lambda run, _: run.state),
    _RunColumn(Column("STEP"), lambda run, _: run.current_step or _NONE),
    _RunColumn(Column("SINCE", is_whole=True, is_number=True), lambda run, now: span(now - run.changed_at)),
    _RunColumn(Column("WHY"), lambda run, _: run.reason or _NONE, from_width=110),
    _RunColumn(Column("DUE", is_whole=True), _due, from_width=130),
    _RunColumn(Column("QUEUE"), lambda run, _: run.queue, from_width=160),
    _RunColumn(Column("ERROR"), lambda run, _: error_of(run), from_width=160),
)

_JOURNAL_COLUMNS: Final = (
    Column("#", is_whole=True, is_number=True),
    Column("STEP"),
    Column("TRY", is_whole=True, is_number=True),
    Column("OUTCOME", is_whole=True),
    Column("AT (UTC)", is_whole=True),
    Column("TOOK", is_whole=True, is_number=True),
    Column("NOTE", folds=True),
)
