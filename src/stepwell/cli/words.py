"""Instants, durations and counts in words."""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = ["counted", "exact", "instant", "short_instant", "span"]


def instant(value: datetime | None) -> str:
    """An instant to the second; nothing for None."""
    return f"{value:%Y-%m-%d %H:%M:%S} UTC" if value else ""


def short_instant(value: datetime | None) -> str:
    """The same for a column: without the year, which is rarely in doubt."""
    return f"{value:%m-%d %H:%M:%S}" if value else ""


def exact(duration: timedelta) -> str:
    """How long something took."""
    seconds = max(0.0, duration.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else span(duration)


def span(duration: timedelta) -> str:
    """A duration in its largest unit, short enough for a column."""
    seconds = max(0, int(duration.total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: "1 run", "3 runs"."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"
