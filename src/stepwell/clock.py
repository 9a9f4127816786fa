"""Time as values: instants are aware UTC datetimes, durations are timedeltas, SQL holds microseconds."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

__all__ = [
    "Clock",
    "ManualClock",
    "SystemClock",
    "from_micros",
    "later",
    "require_aware",
    "require_duration",
    "to_micros",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_SECONDS_A_DAY: Final = 86_400
_MICROS_A_SECOND: Final = 1_000_000


def to_micros(instant: datetime) -> int:
    """An aware instant as integer microseconds since 1970-01-01 UTC.

    Raises:
        TypeError: The datetime is naive.
    """
    since = require_aware(instant) - _EPOCH
    return (since.days * _SECONDS_A_DAY + since.seconds) * _MICROS_A_SECOND + since.microseconds


def from_micros(micros: int) -> datetime:
    """The aware UTC instant of integer microseconds since 1970-01-01 UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def later(instant: datetime, wait: timedelta) -> datetime:
    """The instant so much later; the last one that there is, if that lies beyond it, which is as good as never."""
    try:
        return instant + wait
    except OverflowError:
        return _LAST if wait > timedelta() else _FIRST


def require_duration(value: object, what: str) -> timedelta:
    """Return ``value`` if it is a duration.

    Raises:
        TypeError: It is a bare number, whose unit nobody can see, or something else.
    """
    if not isinstance(value, timedelta):
        raise TypeError(f"{what} must be a timedelta; got {value!r}. Write timedelta(seconds=...).")
    return value


def require_aware(instant: datetime, what: str = "an instant") -> datetime:
    """Return ``instant`` if it carries a time zone.

    Raises:
        TypeError: It is naive: nobody can say which instant it means.
    """
    if instant.tzinfo is None or instant.utcoffset() is None:
        raise TypeError(
            f"{what} must be an aware datetime; {instant!r} has no time zone. "
            "Write datetime.now(UTC) or attach tzinfo=."
        )
    return instant


class Clock(Protocol):
    """Where the engine gets the time from."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump, for measuring durations in this process."""
        ...


class SystemClock:
    """The host's clock, anchored to the monotonic one: it does not jump between two anchorings.

    The engine moves it to the database's time with :meth:`anchor`, so that every process that works on the
    same tables judges leases and due times by one clock.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.monotonic() + self._offset, UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def anchor(self, epoch_seconds: float, at_monotonic: float) -> float:
        """Say that ``epoch_seconds`` was the time when the monotonic clock stood at ``at_monotonic``.

        Returns:
            The jump, in seconds: positive when the clock was behind.
        """
        offset = epoch_seconds - at_monotonic
        jump, self._offset = offset - self._offset, offset
        return jump


class ManualClock:
    """A clock that moves only when told to, for tests: a wait of thirty days passes in no time.

    Args:
        start: The first instant; now, by default.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._lock = threading.Lock()
        self._start = require_aware(start) if start else datetime.now(UTC)
        self._elapsed = timedelta()

    def now(self) -> datetime:
        with self._lock:
            return self._start + self._elapsed

    def monotonic(self) -> float:
        with self._lock:
            return self._elapsed.total_seconds()

    def travel(self, duration: timedelta) -> datetime:
        """Move ahead by ``duration`` and return the new instant."""
        with self._lock:
            if duration < timedelta():
                raise ValueError(f"a clock goes forward only; got {duration!r}")
            self._elapsed += duration
            return self._start + self._elapsed
