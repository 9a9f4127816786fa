"""When a repetition is due: fixed intervals, the calendar's (days, weeks, months, weekdays), and cron expressions.

Each is a grid of instants. A calendar's is laid out in wall time of one time zone, from an anchor that never moves: so
a repetition at 2:30 on the 31st is at 2:30 on the 31st again after a short month and after a change of the clocks.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from stepwell.definition import checks

__all__ = ["Cron", "Expired", "Fixed", "Interval", "Words", "interval_of", "zone_of"]

_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WORDS: Final = ("day", "week", "month", *_WEEKDAYS)
_MINUTE: Final = timedelta(minutes=1)
_LEAP_YEAR: Final = datetime(2024, 1, 1)


@dataclass(frozen=True, slots=True)
class Expired:
    """Ticks that are left out in one go.

    Attributes:
        count: How many.
        last: The instant of the last one.
        then: The first tick that is not left out.
    """

    count: int
    last: datetime
    then: datetime


class Interval(Protocol):
    """A grid of instants."""

    @property
    def zone(self) -> tzinfo:
        """Where its wall clock hangs; UTC where there is none."""
        ...

    def first(self, reached: datetime, start_at: datetime | None) -> datetime:
        """The first tick of a repetition that is reached now."""
        ...

    def after(self, at: datetime, anchor: datetime) -> datetime:
        """The tick after the one at ``at``, of a repetition that was laid out from ``anchor``."""
        ...

    def expired(
        self, at: datetime, anchor: datetime, now: datetime, timeout: timedelta | None
    ) -> Expired | None:
        """The ticks from ``at`` on that are later than ``timeout``; None if the one at ``at`` is not.

        Without a timeout, those after which another one is due already.
        """
        ...


class _Numbered:
    """A grid whose ticks can be numbered: however many have expired, they are counted without a walk."""

    def _number(self, at: datetime, anchor: datetime) -> int:
        """The number of the last tick that is not after ``at``."""
        raise NotImplementedError

    def _at(self, number: int, anchor: datetime) -> datetime:
        raise NotImplementedError

    def after(self, at: datetime, anchor: datetime) -> datetime:
        return self._at(self._number(at, anchor) + 1, anchor)

    def expired(
        self, at: datetime, anchor: datetime, now: datetime, timeout: timedelta | None
    ) -> Expired | None:
        begin = self._number(at, anchor)
        if timeout is None:
            end = self._number(now, anchor)
        else:
            end = self._number(now - timeout, anchor)
            end += self._at(end, anchor) < now - timeout
        if end <= begin:
            return None
        return Expired(end - begin, max(at, self._at(end - 1, anchor)), self._at(end, anchor))


@dataclass(frozen=True, slots=True)
class Fixed(_Numbered):
    """Every so often, counted from the first tick: a day is 24 hours, whatever the clocks on the wall do.

    Attributes:
        every: How long from one tick to the next.
    """

    every: timedelta

    @property
    def zone(self) -> tzinfo:
        return UTC

    def first(self, reached: datetime, start_at: datetime | None) -> datetime:
        return reached + self.every if start_at is None else start_at

    def _number(self, at: datetime, anchor: datetime) -> int:
        return (at - anchor) // self.every

    def _at(self, number: int, anchor: datetime) -> datetime:
        return anchor + number * self.every

    def after(self, at: datetime, anchor: datetime) -> datetime:
        # From the tick before: an interval that is changed in the code holds from there on.
        return at + self.every

    def expired(
        self, at: datetime, anchor: datetime, now: datetime, timeout: timedelta | None
    ) -> Expired | None:
        return _Numbered.expired(self, at, at, now, timeout)


@dataclass(frozen=True, slots=True)
class Words(_Numbered):
    """``"day"``, ``"week"``, ``"month"`` or a weekday, at the wall time of the anchor.

    Attributes:
        word: Which of them.
        zone: The time zone of the wall clock.
    """

    word: str
    zone: tzinfo

    def first(self, reached: datetime, start_at: datetime | None) -> datetime:
        if start_at is None:
            return self.after(reached, reached)
        is_on_it = (
            self.word not in _WEEKDAYS or self._first_day(self._wall(start_at)) == self._wall(start_at).date()
        )
        return start_at if is_on_it else self._at(0, start_at)

    def _number(self, at: datetime, anchor: datetime) -> int:
        wall, base = self._wall(at), self._wall(anchor)
        if self.word == "month":
            number = (wall.year - base.year) * 12 + wall.month - base.month
        else:
            number = (wall.date() - self._first_day(base)).days // self._days
        while self._at(number, anchor) > at:
            number -= 1
        while self._at(number + 1, anchor) <= at:
            number += 1
        return number

    def _at(self, number: int, anchor: datetime) -> datetime:
        base = self._wall(anchor)
        if self.word == "month":
            day = _month_later(base.date(), number)
        else:
            day = self._first_day(base) + timedelta(days=number * self._days)
        return instant_of(datetime.combine(day, base.time()), self.zone)

    def _first_day(self, base: datetime) -> date:
        """The day that is number 0: the anchor's, or the weekday that comes on it or after it."""
        if self.word not in _WEEKDAYS:
            return base.date()
        return base.date() + timedelta(days=(_WEEKDAYS.index(self.word) - base.weekday()) % 7)

    @property
    def _days(self) -> int:
        return 1 if self.word == "day" else 7

    def _wall(self, instant: datetime) -> datetime:
        return instant.astimezone(self.zone).replace(tzinfo=None, fold=0)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression of five fields, or of six that begin with the second.

    Attributes:
        expression: As it was given.
        zone: The time zone of the wall clock.
    """

    expression: str
    zone: tzinfo

    def first(self, reached: datetime, start_at: datetime | None) -> datetime:
        # An instant that is given may be the first one itself.
        after = reached if start_at is None else start_at - timedelta(microseconds=1)
        return self.after(after, after)

    def after(self, at: datetime, anchor: datetime) -> datetime:
        found = CronSim(self.expression, at.astimezone(self.zone))
        while True:
            # In an hour that comes twice it would answer with the first time, which is over.
            tick = next(found).astimezone(UTC)
            if tick > at:
                return tick

    def expired(
        self, at: datetime, anchor: datetime, now: datetime, timeout: timedelta | None
    ) -> Expired | None:
        bound = now if timeout is None else now - timeout
        if timeout is not None and at >= bound:
            return None
        count, last, then = 0, at, at
        following = self.after(at, anchor)
        found = CronSim(self.expression, following.astimezone(self.zone))
        while following <= bound if timeout is None else then < bound:
            count, last, then = count + 1, then, following
            following = next(found).astimezone(UTC)
        return Expired(count, last, then) if count else None


def instant_of(wall: datetime, zone: tzinfo) -> datetime:
    """The instant at which a clock on the wall shows this.

    Of a time that comes twice, as clocks are put back, the first. Of one that does not come, as they are put forward,
    the first minute after the gap.
    """
    local = wall.replace(tzinfo=zone, fold=0)
    while local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
        local = local.replace(second=0, microsecond=0) + _MINUTE
    return local.astimezone(UTC)


def _month_later(day: date, months: int) -> date:
    """The same day of a later month, or the last one of a month that is too short."""
    years, month = divmod(day.month - 1 + months, 12)
    year = day.year + years
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def zone_of(name: object) -> tzinfo:
    """The time zone of an IANA name.

    Raises:
        TypeError: There is none of this name.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)  # type: ignore[arg-type]  # what is no name is refused there
    except (ValueError, OSError, TypeError, LookupError) as error:
        raise TypeError(
            f"timezone must be an IANA name such as 'Europe/Berlin'; got {name!r}. Without a database of time zones "
            "on this machine, install tzdata."
        ) from error


def interval_of(every: Any, timezone: object = None) -> Interval:
    """The grid that an author means.

    Raises:
        TypeError: It is none; the message is the end of a sentence that begins with the verb.
    """
    if not isinstance(every, str):
        if problem := checks.broken_duration(every, zero=False):
            raise TypeError(
                f"every {problem}. Or a word, {_listed()}; or a cron expression, '0 9 * * mon-fri'"
            )
        if timezone is not None:
            raise TypeError("timezone is for words and cron expressions; a timedelta is the same everywhere")
        return Fixed(every)
    zone = zone_of("UTC" if timezone is None else timezone)
    if every in _WORDS:
        return Words(every, zone)
    try:
        next(CronSim(every, _LEAP_YEAR))
    except (CronSimError, StopIteration) as error:
        reason = str(error) or "there is no such day"
        raise TypeError(
            f"every must be a timedelta, {_listed()}, or a cron expression such as '0 9 * * mon-fri'; got {every!r} "
            f"({reason})"
        ) from error
    return Cron(every, zone)


def _listed() -> str:
    return f"{', '.join(map(repr, _WORDS[:3]))} or a weekday ('monday')"
