"""Values on the command line: understood, or refused with what to write instead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from stepwell.cli import parameters


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("10m", timedelta(minutes=10)),
        ("10 min", timedelta(minutes=10)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        (" 2d 3h ", timedelta(days=2, hours=3)),
        ("1w", timedelta(weeks=1)),
        ("0s", timedelta()),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, expected: timedelta) -> None:
    """What other commands show as a duration can be typed as one."""
    assert parameters.duration(text) == expected


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "5 minutes", "1.5h", "10mm", "5m x", "10x"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Nothing is guessed: a number without a unit could be minutes or seconds."""
    with pytest.raises(click.BadParameter, match="is no duration: write it like 90s, 10m, 1h30m or 2d"):
        parameters.duration(text)


@pytest.mark.parametrize("text", ["40000d", "9" * 30 + "s", "99999d99999d"])
def test_a_duration_beyond_the_calendar_is_refused(text: str) -> None:
    """A century is enough, and no number breaks the arithmetic."""
    with pytest.raises(click.BadParameter, match="is too long: at most 36500d"):
        parameters.duration(text)


def test_an_instant_has_a_time_zone() -> None:
    """ISO 8601, with Z or an offset; without one it is refused, with what to add."""
    eight = datetime(2026, 3, 1, 8, tzinfo=UTC)
    assert parameters.instant("2026-03-01T08:00:00Z") == eight
    assert parameters.instant("2026-03-01 10:00+02:00") == eight
    with pytest.raises(click.BadParameter, match="has no time zone: end it with Z"):
        parameters.instant("2026-03-01T08:00:00")
    with pytest.raises(click.BadParameter, match="is no instant: write it like 2026-03-01T08:00:00Z"):
        parameters.instant("tomorrow")


def test_a_payload_is_json() -> None:
    """A bare word is refused with the quotes that it needs; NaN is no JSON."""
    assert parameters.json_value('{"amount": 3, "notes": [null, "é"]}') == {"amount": 3, "notes": [None, "é"]}
    for text in ("approved", "", "NaN", "[" * 100_000):
        with pytest.raises(click.BadParameter, match=r"A text has double quotes of its own: '\"approved\"'"):
            parameters.json_value(text)


@pytest.mark.parametrize("text", ["", " ", " mail", "a" * 191, "a\nb"])
def test_a_name_is_what_a_class_could_use(text: str) -> None:
    """A queue or a signal that no class can name would be waited for in vain."""
    assert parameters.name("mail") == "mail"
    with pytest.raises(click.BadParameter, match="a name must"):
        parameters.name(text)
