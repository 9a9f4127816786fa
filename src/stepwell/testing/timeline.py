"""A run's history as text, for messages and for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from stepwell.engine.explaining import explain
from stepwell.states import ExecutionState, Kind
from stepwell.store.rows import ExecutionRow, RunRow
from stepwell.texts import details_of

__all__ = ["timeline"]

_LONGEST_MESSAGE: Final = 120
_MOST_ROWS: Final = 200
_NUMBER: Final = re.compile(r"#\d+\Z")
"""What tells a call in ``run()`` from others like it."""


def timeline(run: RunRow, journal: Sequence[ExecutionRow], now: datetime) -> str:
    """Where the run stands, and a line for each entry of its journal: how long after the start, what, how."""
    lines = [explain(run, journal, now)]
    rows = [_cells(row, run.created_at) for row in journal[-_MOST_ROWS:]]
    if len(journal) > _MOST_ROWS:
        lines.append(f"  ({len(journal) - _MOST_ROWS} earlier entries)")
    width = max((len(cells[1]) for cells in rows), default=0)
    lines += [f"  {when}  {what:<{width}}  {how}".rstrip() for when, what, how in rows]
    if not rows:
        lines.append("  (nothing has happened yet)")
    return "\n".join(lines)


def _cells(row: ExecutionRow, start: datetime) -> tuple[str, str, str]:
    has_begun = row.state != ExecutionState.SCHEDULED
    at = row.finished_at or (row.started_at if has_begun else None)
    return _offset(None if at is None else at - start), _what(row), "  ".join(_how(row, start))


def _what(row: ExecutionRow) -> str:
    """``ship["A"]#2``, ``sleep#2 (timer)``, ``remind (tick 3)``; of a declared step, ``decide (signal review)``."""
    found = _NUMBER.search(row.key or "")
    number = found.group() if found else ""
    key = (row.key or "").removesuffix(number)
    if row.kind == Kind.STEP:
        return f"{row.name}{f'[{key}]' if key else ''}{number}"
    return f"{row.name}{number} ({' '.join(filter(None, (row.kind, key)))})"


def _how(row: ExecutionRow, start: datetime) -> list[str]:
    left_out = details_of(row.details).get("expired")
    words = [f"{left_out} expired" if left_out else row.outcome or row.state]
    if row.superseded_at is not None:
        words[0] += " (superseded)"
    if row.finished_at is None and row.scheduled_for is not None:
        words[0] += f" for {_offset(row.scheduled_for - start).strip()}"
    if row.attempt > 1:
        words.append(f"attempt {row.attempt}")
    if row.cursor is not None:
        words.append(f"cursor {row.cursor}")
    if row.error_class is not None:
        message = " ".join((row.error_message or "").split())
        words.append(f"{row.error_class}: {message[:_LONGEST_MESSAGE]}")
    return words


def _offset(span: timedelta | None) -> str:
    """How long after the start, in a column of one width; blank for what has not happened."""
    if span is None:
        return " " * 14
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{f'+{span.days}d':>5} {hours:02}:{minutes:02}:{seconds:02}"
