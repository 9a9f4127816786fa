"""A worker's log: one line for each record, with its facts."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from stepwell.logs import Facts
from stepwell.texts import printable

__all__ = ["JSONLines", "LogFormat", "TextLines", "set_up_logging"]

_STANDARD: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})


class LogFormat(StrEnum):
    """What a line looks like."""

    TEXT = "text"
    JSON = "json"


class TextLines(logging.Formatter):
    """For people: time, level, message, then ``name=value`` for each fact; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        facts = "  ".join(f"{name}={_shown(value)}" for name, value in _facts(record).items())
        line = f"{_instant(record)} {record.levelname:<7} {printable(_message(record))}"
        lines = [f"{line}  {facts}" if facts else line]
        if record.exc_info:
            trace = printable(self.formatException(record.exc_info), keep_lines=True)
            lines += [f"    {each}" for each in trace.splitlines()]
        return "\n".join(lines)


class JSONLines(logging.Formatter):
    """For machines: one JSON object a line; ``time``, ``level``, ``logger``, ``message``, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **_facts(record),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str, ensure_ascii=True)


def set_up_logging(chosen: LogFormat | None, level: str) -> None:
    """Send records to standard error.

    Args:
        chosen: The format; None leaves an application's own logging alone, and is text where it has none.
        level: Records below it are dropped.
    """
    root = logging.getLogger()
    if chosen is None and root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines() if chosen is LogFormat.JSON else TextLines())
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It tells about its own set-up with every look at the schema.
    logging.getLogger("alembic").setLevel(max(root.level, logging.WARNING))


def _message(record: logging.LogRecord) -> str:
    """What is said, without the facts behind it: they have fields of their own here."""
    if isinstance(record.args, tuple) and record.args and isinstance(record.args[0], Facts):
        return record.msg.removesuffix("%s")
    return record.getMessage()


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _shown(value: object) -> str:
    text = printable(value)
    return json.dumps(text, ensure_ascii=False) if not text or " " in text or '"' in text else text


def _instant(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
