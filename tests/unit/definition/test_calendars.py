"""When a repetition is due: intervals, the calendar's words, and cron expressions, across months and clock changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from stepwell.definition.calendars import Expired, interval_of

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
BERLIN = "Europe/Berlin"


def ticks(every: Any, start: str, timezone: str | None = None) -> Iterator[str]:
    """The instants of a grid after its anchor, as the clock on the wall shows them."""
    interval = interval_of(every, timezone)
    anchor = at = datetime.fromisoformat(start).replace(tzinfo=interval.zone).astimezone(UTC)
    while True:
        following = interval.after(at, anchor)
        assert following > at
        at = following
        yield at.astimezone(interval.zone).isoformat(timespec="minutes")


def some(count: int, *args: Any) -> list[str]:
    return list(islice(ticks(*args), count))


def test_the_31st_is_the_31st_again_after_a_short_month() -> None:
    """The day that was meant is kept; it does not stay at what February made of it."""
    found = [each[:10] for each in islice(ticks("month", "2027-12-31T09:00"), 5)]
    assert found == ["2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30", "2028-05-31"]


def test_words_keep_the_time_of_day() -> None:
    """A week later is the same weekday, and a named weekday is the next one of its name."""
    assert some(2, "week", "2026-11-25T09:30") == ["2026-12-02T09:30+00:00", "2026-12-09T09:30+00:00"]
    assert some(2, "monday", "2026-11-25T09:30") == ["2026-11-30T09:30+00:00", "2026-12-07T09:30+00:00"]
    assert some(1, "monday", "2026-11-30T09:30") == ["2026-12-07T09:30+00:00"]


@pytest.mark.parametrize("every", ["day", "30 2 * * *"])
def test_a_time_of_day_that_is_left_out_in_spring_comes_after_the_gap(every: str) -> None:
    """In the first minute after it, once, and the day after at its own time again."""
    assert some(3, every, "2026-03-27T02:30", BERLIN) == [
        "2026-03-28T02:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]


@pytest.mark.parametrize("every", ["day", "30 2 * * *"])
def test_a_time_of_day_that_comes_twice_in_autumn_fires_once(every: str) -> None:
    """The first time."""
    assert some(3, every, "2026-10-23T02:30", BERLIN) == [
        "2026-10-24T02:30+02:00",
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]


def test_a_repetition_that_begins_in_the_hour_that_comes_twice_looks_ahead() -> None:
    """It is 2:10 for the second time: 2:30 of today is over, wherever the library sees it."""
    second_time = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
    tick = interval_of("30 2 * * *", BERLIN).first(second_time, None)
    assert tick == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
    for word in ("day", "month", "sunday"):
        interval = interval_of(word, BERLIN)
        assert interval.first(second_time, second_time) == second_time
        assert interval.after(second_time, second_time) > second_time + timedelta(hours=20)


def test_a_cron_expression_of_every_hour_counts_real_time() -> None:
    """Both hours of autumn have their tick, and the hour that is left out in spring has none."""
    hours = [each[11:] for each in islice(ticks("0 * * * *", "2026-10-25T00:30", BERLIN), 4)]
    assert hours == ["01:00+02:00", "02:00+02:00", "02:00+01:00", "03:00+01:00"]
    assert [e[11:] for e in islice(ticks("0 * * * *", "2026-03-29T00:30", BERLIN), 2)] == [
        "01:00+01:00",
        "03:00+02:00",
    ]


def test_a_day_as_a_timedelta_is_24_hours() -> None:
    """Whatever the clocks do: who means the time of day says "day"."""
    assert interval_of(DAY).after(*[datetime(2026, 10, 24, 12, tzinfo=UTC)] * 2).hour == 12


def test_the_first_tick_is_where_it_was_asked_for_or_one_interval_later() -> None:
    """A weekday and a cron expression take the first of theirs that is not before ``start_at``."""
    now, start = datetime(2026, 11, 25, 9, 0, 30, tzinfo=UTC), datetime(2026, 12, 1, 8, tzinfo=UTC)
    firsts = {
        every: (interval_of(every).first(now, None), interval_of(every).first(now, start))
        for every in (timedelta(hours=2), "day", "month", "monday", "tuesday", "0 8 * * *", "5 9 * * wed")
    }
    moment = timedelta(seconds=30)
    assert firsts == {
        timedelta(hours=2): (now + timedelta(hours=2), start),
        "day": (now + DAY, start),
        "month": (datetime(2026, 12, 25, 9, tzinfo=UTC) + moment, start),
        "monday": (datetime(2026, 11, 30, 9, tzinfo=UTC) + moment, datetime(2026, 12, 7, 8, tzinfo=UTC)),
        "tuesday": (datetime(2026, 12, 1, 9, tzinfo=UTC) + moment, start),
        "0 8 * * *": (datetime(2026, 11, 26, 8, tzinfo=UTC), start),
        "5 9 * * wed": (datetime(2026, 11, 25, 9, 5, tzinfo=UTC), datetime(2026, 12, 2, 9, 5, tzinfo=UTC)),
    }


@pytest.mark.parametrize("every", [timedelta(hours=7), "day", "month", "friday", "0 9 1,15 * *", "0 3 * * *"])
@pytest.mark.parametrize("timeout", [None, timedelta(hours=30), timedelta(days=40)])
def test_expired_ticks_are_those_that_a_walk_finds(every: Any, timeout: timedelta | None) -> None:
    """However they are counted: each one on the way is either left out or comes."""
    interval = interval_of(every, None if isinstance(every, timedelta) else BERLIN)
    anchor = datetime(2026, 1, 31, 1, 30, tzinfo=UTC)
    for days in range(0, 400, 57):
        at = interval.after(anchor, anchor)
        now = at + timedelta(days=days, minutes=days)
        last, count, then = at, 0, at
        while (interval.after(then, anchor) <= now) if timeout is None else (now - then > timeout):
            last, count, then = then, count + 1, interval.after(then, anchor)
        expected = Expired(count, last, then) if count else None
        assert interval.expired(at, anchor, now, timeout) == expected


def test_a_million_expired_ticks_are_counted_at_once() -> None:
    """An interval is divided, and not walked."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    began_at = time.monotonic()
    for every in (timedelta(seconds=1), "day", "month"):
        expired = interval_of(every).expired(at, at, at + timedelta(days=5000), None)
        assert expired is not None
        assert expired.then <= at + timedelta(days=5000) < interval_of(every).after(expired.then, at)
    assert time.monotonic() - began_at < 0.2


def test_an_interval_that_is_changed_holds_from_the_last_tick() -> None:
    """And of a calendar, the wall time of the anchor."""
    anchor, at = datetime(2026, 1, 31, 9, tzinfo=UTC), datetime(2026, 2, 28, 9, tzinfo=UTC)
    assert interval_of(timedelta(hours=5)).after(at, anchor) == at + timedelta(hours=5)
    assert interval_of("day").after(at, anchor) == at + DAY
    assert interval_of("0 8 * * *").after(at, anchor) == datetime(2026, 3, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("every", "timezone", "words"),
    [
        (5, None, ["every must be a timedelta", "'day', 'week', 'month'"]),
        (timedelta(), None, ["every must be more than zero"]),
        ("fortnight", None, ["'0 9 * * mon-fri'", "got 'fortnight' (Wrong number of fields)"]),
        ("0 25 * * *", None, ["(Bad hour)"]),
        ("0 0 31 2 *", None, ["got '0 0 31 2 *'"]),
        ("day", "Mars/Base", ["timezone must be an IANA name", "got 'Mars/Base'", "install tzdata"]),
        ("day", 2, ["timezone must be an IANA name"]),
        ("day", "", ["timezone must be an IANA name"]),
        (MINUTE, BERLIN, ["timezone is for words and cron expressions"]),
    ],
)
def test_what_is_no_interval_is_refused(every: Any, timezone: Any, words: list[str]) -> None:
    """With what could be meant."""
    with pytest.raises(TypeError) as refusal:
        interval_of(every, timezone)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
