"""Runs as JSON documents for machines: instants as ISO 8601 in UTC, stored values as they are stored."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from stepwell.store.rows import ExecutionRow, RunRow

__all__ = ["execution_document", "instant", "run_document", "stored"]

_LISTED: Final = (
    "id",
    "workflow",
    "version",
    "key",
    "state",
    "reason",
    "current_step",
    "hero_type",
    "hero_id",
    "queue",
    "priority",
    "wake_at",
    "lease_owner",
    "lease_expires_at",
    "recoveries",
    "error_class",
    "error_message",
    "created_at",
    "started_at",
    "changed_at",
    "finished_at",
)
_PAYLOADS: Final = ("args", "context", "result", "stop_request", "details")
_UNTOLD: Final = frozenset({"run_id", "args_digest"})
_STORED: Final = frozenset({"hero_id", "result", "context_delta", "cursor", *_PAYLOADS})


def run_document(run: RunRow, *, payloads: bool = False) -> dict[str, Any]:
    """A run.

    Args:
        run: The row.
        payloads: Add arguments, context, result, a pending stop request, and what else is noted on it.
    """
    names = (*_LISTED, *_PAYLOADS) if payloads else _LISTED
    return {name: _value(name, getattr(run, name)) for name in names}


def execution_document(execution: ExecutionRow) -> dict[str, Any]:
    """An entry of a run's journal."""
    names = (field.name for field in fields(execution) if field.name not in _UNTOLD)
    return {name: _value(name, getattr(execution, name)) for name in names}


def instant(value: datetime) -> str:
    """An instant as ISO 8601 in UTC."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _value(name: str, value: Any) -> Any:
    match value:
        case datetime():
            return instant(value)
        case UUID():
            return str(value)
        case str() if name in _STORED:
            return stored(value)
        case _:
            return value


def stored(text: str) -> Any:
    """What the stored text says; a text that is no JSON stands for itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
