"""Runs as tables for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from rich.text import Text

from stepwell.cli.terminal import Column, printable, say, table, width
from stepwell.states import Kind
from stepwell.store.rows import ExecutionRow, RunRow

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
    for name, value in _facts(run, now):
        if value:
            say(f"{name:<9} {printable(value)}")
    say()
    if not journal:
        say("Its journal is empty: no step has ended yet.")
        return
    table(_JOURNAL_COLUMNS, [_journal_row(row) for row in journal])


def _facts(run: RunRow, now: datetime) -> list[tuple[str, str | None]]:
    lease = f"{run.lease_owner}, until {_instant(run.lease_expires_at)}" if run.lease_owner else None
    return [
        ("about", None if _about(run) == _NONE else _about(run)),
        ("queue", f"{run.queue}, priority {run.priority}"),
        ("created", f"{_instant(run.created_at)}, {_span(now - run.created_at)} ago"),
        ("started", _instant(run.started_at)),
        ("due", _instant(run.wake_at or run.due_at) if run.finished_at is None else None),
        ("finished", _instant(run.finished_at)),
        ("worker", lease if run.lease_expires_at else None),
        ("lost", f"its worker, {run.recoveries} times in a row" if run.recoveries else None),
        ("arguments", None if run.args == "{}" else run.args),
        ("context", run.context),
        ("result", None if run.result == "null" else run.result),
    ]


def _journal_row(row: ExecutionRow) -> list[str]:
    took = row.finished_at - row.started_at if row.finished_at and row.started_at else None
    return [
        str(row.position),
        f"({row.name})" if row.kind == Kind.COMMAND else row.name,
        str(row.attempt),
        row.outcome or row.state,
        _short(row.finished_at or row.started_at or row.scheduled_for),
        "" if took is None else _exact(took),
        _error(row),
    ]


def _instant(value: datetime | None) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S} UTC" if value else ""


def _short(value: datetime | None) -> str:
    return f"{value:%m-%d %H:%M:%S}" if value else ""


def _about(run: RunRow) -> str:
    """What tells it from other runs of its workflow: its hero, or its key."""
    if run.hero_type is None:
        return run.key or _NONE
    return f"{re.split('[.:]', run.hero_type)[-1]} {run.hero_id}"


def _due(run: RunRow, now: datetime) -> str:
    if run.wake_at is None:
        return _NONE
    return f"in {_span(run.wake_at - now)}" if run.wake_at > now else "now"


def _error(row: RunRow | ExecutionRow) -> str:
    return f"{row.error_class.rpartition('.')[2]}: {row.error_message}" if row.error_class else ""


def _exact(span: timedelta) -> str:
    seconds = max(0.0, span.total_seconds())
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 60 else _span(span)


def _span(span: timedelta) -> str:
    """A duration in its largest unit, short enough for a column."""
    seconds = max(0, int(span.total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


_RUN_COLUMNS: Final = (
    _RunColumn(Column("RUN", is_whole=True), lambda run, _: str(run.id)),
    _RunColumn(Column("WORKFLOW"), lambda run, _: run.workflow),
    _RunColumn(Column("ABOUT"), lambda run, _: _about(run), from_width=100),
    _RunColumn(Column("STATE", is_whole=True), lambda run, _: run.state),
    _RunColumn(Column("STEP"), lambda run, _: run.current_step or _NONE),
    _RunColumn(Column("SINCE", is_whole=True, is_number=True), lambda run, now: _span(now - run.changed_at)),
    _RunColumn(Column("WHY"), lambda run, _: run.reason or _NONE, from_width=110),
    _RunColumn(Column("DUE", is_whole=True), _due, from_width=130),
    _RunColumn(Column("QUEUE"), lambda run, _: run.queue, from_width=160),
    _RunColumn(Column("ERROR"), lambda run, _: _error(run), from_width=160),
)

_JOURNAL_COLUMNS: Final = (
    Column("#", is_whole=True, is_number=True),
    Column("STEP"),
    Column("TRY", is_whole=True, is_number=True),
    Column("OUTCOME", is_whole=True),
    Column("AT (UTC)", is_whole=True),
    Column("TOOK", is_whole=True, is_number=True),
    Column("ERROR", folds=True),
)
