"""What an entry of the journal, or a request on a run, says besides its columns: in a few words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from stepwell.cli.progress import read_progress
from stepwell.cli.words import short_instant, span
from stepwell.requests import StopRequest
from stepwell.states import ExecutionState, Kind
from stepwell.store.rows import ExecutionRow, RunRow
from stepwell.texts import details_of

__all__ = [
    "cursor_of",
    "error_of",
    "kind_of",
    "note_of",
    "orphans_of",
    "request_of",
    "short_cursor",
    "signal_of",
    "title_of",
]

_LONGEST_CURSOR: Final = 60
_SHORT: Final = 57
_TOLD_BY_NAME: Final = frozenset({Kind.STEP, Kind.COMMAND})


def title_of(row: ExecutionRow) -> str:
    """The step or wait, with what tells it from other calls of it; a person's command stands in parentheses."""
    if row.kind == Kind.COMMAND:
        return f"({row.name})"
    if row.key is None or (row.kind == Kind.SIGNAL and not _is_numbered(row.key)):
        # A declared step's signal has its name there, which the note tells.
        return row.name
    key, number, count = row.key.rpartition("#")
    if not number or not count.isdecimal():
        key, number, count = row.key, "", ""
    if row.kind == Kind.TICK:
        key = f"tick {key}"
    return f"{row.name}{f'[{key}]' if key else ''}{number}{count}"


def signal_of(row: ExecutionRow) -> str:
    """The name of the signal that the entry of a wait is about.

    In ``run()`` the wait itself has that name; a declared step's wait has it as its key.
    """
    return row.name if row.key is None or _is_numbered(row.key) else row.key


def note_of(row: ExecutionRow) -> str:
    """What it waits for, how far it has come, who did it, what went wrong."""
    told = details_of(row.details)
    progress = read_progress(row)
    parts = [
        "superseded" if row.superseded_at else "",
        kind_of(row) or "",
        "" if progress is None else str(progress),
        short_cursor(row),
        *_deed(told),
        error_of(row),
    ]
    return ", ".join(part for part in parts if part)


def kind_of(row: ExecutionRow) -> str | None:
    """What kind of entry it is, and of a wait that lasts until when; None for a step that waits for nothing."""
    is_open = row.state == ExecutionState.SCHEDULED
    if row.kind == Kind.STEP and is_open and row.scheduled_for is not None:
        return f"retry at {short_instant(row.scheduled_for)}" if row.attempt > 1 else _until("timer", row)
    if row.kind in _TOLD_BY_NAME or row.kind == row.name:
        return None
    what = f"signal {signal_of(row)!r}" if row.kind == Kind.SIGNAL else row.kind
    if not is_open:
        return what
    return _until(f"{what}, next look" if row.kind == Kind.POLL else what, row)


def error_of(row: RunRow | ExecutionRow) -> str:
    """The error's class and message; a wait that ran out has a message only."""
    if not row.error_class:
        return row.error_message or ""
    return f"{row.error_class.rpartition('.')[2]}: {row.error_message}"


def cursor_of(run: RunRow, journal: Sequence[ExecutionRow]) -> str | None:
    """Where the resumable step stands that the run is at."""
    if run.current_step is None:
        return None
    found = [
        row.cursor
        for row in journal
        if row.name == run.current_step and row.cursor is not None and row.superseded_at is None
    ]
    return found[-1] if found else None


def short_cursor(row: ExecutionRow) -> str:
    """The entry's cursor, cut where it is long; nothing if it has none."""
    if row.cursor is None:
        return ""
    return f"cursor {row.cursor if len(row.cursor) <= _LONGEST_CURSOR else f'{row.cursor[:_SHORT]}...'}"


def orphans_of(run: RunRow) -> str | None:
    """Recorded calls that ``run()`` has not come to when it ended: its code has changed under the run."""
    names = details_of(run.details).get("orphans")
    if not names or not isinstance(names, list):
        return None
    return f"recorded, but no longer reached by the code: {', '.join(map(str, names))}"


def request_of(run: RunRow, now: datetime) -> str | None:
    """What somebody has asked of the run and no worker has heeded yet."""
    request = StopRequest.parse(run.stop_request)
    if request is None:
        return None
    parts = [f"to {request.verb}", *_deed({"by": request.by, "reason": request.reason})]
    if request.at is not None:
        parts.append(f"{span(now - request.at)} ago")
    return ", ".join(parts)


def _is_numbered(key: str) -> bool:
    return key.startswith("#")


def _until(what: str, row: ExecutionRow) -> str:
    if row.scheduled_for is None:
        return what
    word = "at" if row.kind == Kind.POLL else "until"
    return f"{what} {word} {short_instant(row.scheduled_for)}"


def _deed(told: dict[str, Any]) -> list[str]:
    """Who did something, why, and what exactly."""
    parts = [f"by {told['by']}"] if told.get("by") else []
    if told.get("reason"):
        parts.append(f"because: {told['reason']}")
    if told.get("from"):
        parts.append(f"while {told['from']}")
    if told.get("from_step"):
        parts.append(f"from step {told['from_step']!r}")
    if told.get("expired"):
        parts.append(f"{told['expired']} expired")
    if told.get("new_keys"):
        parts.append("with new keys")
    return parts
