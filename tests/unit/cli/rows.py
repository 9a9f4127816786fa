"""Rows as the database would have them, with the least that a row has."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from stepwell.store.rows import ExecutionRow, RunRow

__all__ = ["NOON", "RUN_ID", "after", "entry", "run"]

NOON: Final = datetime(2030, 6, 1, 12, tzinfo=UTC)
RUN_ID: Final = UUID("0193f5a2-6c1e-7d3b-9a41-5f0e8d2c7b16")


def after(seconds: float) -> datetime:
    """An instant after noon."""
    return NOON + timedelta(seconds=seconds)


def run(**values: Any) -> RunRow:
    """A run."""
    least: dict[str, Any] = {
        **{field.name: None for field in fields(RunRow)},
        "id": RUN_ID,
        "workflow": "Newsletter",
        "version": 1,
        "state": "running",
        "args": "{}",
        "queue": "default",
        "priority": 100,
        "wakeups": 0,
        "current_step": "write",
        "recoveries": 0,
        "created_at": NOON,
        "started_at": NOON,
        "changed_at": NOON,
    }
    return RunRow(**{**least, **values})


def entry(**values: Any) -> ExecutionRow:
    """An entry of its journal."""
    least: dict[str, Any] = {
        **{field.name: None for field in fields(ExecutionRow)},
        "run_id": RUN_ID,
        "position": 1,
        "name": "write",
        "kind": "step",
        "attempt": 1,
        "state": "in_progress",
        "started_at": NOON,
    }
    return ExecutionRow(**{**least, **values})
