"""Progress: what a step told, and the pace that is seen."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from stepwell.cli.progress import Meter, Progress, progress_text, read_progress
from tests.unit.cli.rows import after, entry


def seen(meter: Meter, done: int, at: float, *, total: int | None = 1000, **values: object) -> str:
    """What the meter says at a look."""
    progress = Progress(done, total)
    return progress_text(progress, meter.look(entry(**values), progress, after(at)))


def test_the_first_look_tells_the_average_since_the_step_began() -> None:
    """Who looks once gets a rate: what is done, over the time that the step has taken."""
    assert seen(Meter(), 400, 40) == "400 of 1000 (40 %), 10.0/s, 1 min 0 s left"


def test_the_pace_is_that_between_the_changes_that_were_seen() -> None:
    """A slow beginning is forgotten; the first sight is none of the changes, since its age is unknown."""
    meter = Meter()
    seen(meter, 100, 100)
    assert seen(meter, 150, 102) == "150 of 1000 (15 %), 1.5/s, 9 min 38 s left"
    assert seen(meter, 350, 112) == "350 of 1000 (35 %), 20.0/s, 32 s left"


def test_the_remaining_time_goes_down_between_two_changes() -> None:
    """The worker tells news every few seconds; until then the clock goes on."""
    meter = Meter()
    seen(meter, 400, 40)
    assert seen(meter, 400, 50) == "400 of 1000 (40 %), 10.0/s, 50 s left"


def test_only_the_last_minute_counts() -> None:
    """A pace that has changed is the new one a minute later."""
    meter = Meter()
    for second in range(0, 300, 10):
        seen(meter, second, second)
    for second in range(300, 400, 10):
        told = seen(meter, 300 + 5 * (second - 300), second, total=None)
    assert told == "750 done, 5.0/s"


def test_a_step_that_went_on_from_its_cursor_has_no_average() -> None:
    """It counts what was done before it began: until two changes were seen, nobody knows its pace."""
    meter = Meter()
    assert seen(meter, 500, 1, continues_from=1) == "500 of 1000 (50 %)"
    assert seen(meter, 510, 2, continues_from=1) == "510 of 1000 (51 %)"
    assert seen(meter, 530, 4, continues_from=1) == "530 of 1000 (53 %), 10.0/s, 47 s left"


@pytest.mark.parametrize("values", [{"attempt": 2, "started_at": after(20)}, {"position": 2}])
def test_another_attempt_is_measured_anew(values: dict[str, object]) -> None:
    """What one attempt did says nothing about the next."""
    meter = Meter()
    for second in (0, 5, 10, 15):
        seen(meter, 100 * second, second, total=None)
    assert seen(meter, 1600, 40, total=None, **{"started_at": after(20), **values}) == "1600 done, 80.0/s"


def test_a_step_that_counts_back_is_measured_anew() -> None:
    """A body that begins a second pass has no negative pace."""
    meter = Meter()
    seen(meter, 900, 10)
    assert seen(meter, 20, 20) == "20 of 1000 (2 %), 1.0/s, 16 min 20 s left"


def test_a_step_without_news_has_no_remaining_time() -> None:
    """A body that hangs must not look as if it were about to end."""
    meter = Meter()
    seen(meter, 400, 40)
    assert seen(meter, 400, 85) == "400 of 1000 (40 %), 10.0/s, no news for 45 s"


@pytest.mark.parametrize(
    ("done", "total", "expected"),
    [
        (0, 1000, "0 of 1000 (0 %), 0/s"),
        (999, 1000, "999 of 1000 (99 %), 25.0/s, 0 s left"),
        (1000, 1000, "1000 of 1000 (100 %), 25.0/s, 0 s left"),
        (1200, 1000, "1200 of 1000 (100 %), 30.0/s, 0 s left"),
        (7, 0, "7 of 0, 0.17/s, 0 s left"),
        (-5, 10, "-5 of 10 (0 %), 0/s"),
        (10**6, 10**12, "1000000 of 1000000000000 (0 %), 25000/s, 462 d 23 h left"),
        (1, 2**63, f"1 of {2**63} (0 %), 0.025/s"),
        (1, None, "1 done, 0.025/s"),
    ],
)
def test_odd_numbers_are_told_as_they_are(done: int, total: int | None, expected: str) -> None:
    """Nothing is divided by zero, and 100 % is said when nothing is left."""
    assert seen(Meter(), done, 40, total=total) == expected


def test_a_step_that_begins_in_the_future_has_no_pace() -> None:
    """Clocks differ by a little: no rate is better than an absurd one."""
    progress = Progress(5, 10)
    pace = Meter().look(entry(started_at=after(1)), progress, after(0))
    assert (pace.rate, pace.remaining, pace.quiet) == (None, None, timedelta())


@pytest.mark.parametrize(
    "details",
    [
        None,
        "",
        "{",
        "[]",
        "7",
        '{"policy": "*"}',
        '{"progress": 7}',
        '{"progress": {"done": "1", "total": 2}}',
        '{"progress": {"done": true, "total": null}}',
        '{"progress": {"done": 1.5, "total": 2}}',
        '{"progress": {"done": 1}}',
        f'{{"progress": {{"done": {10**40}, "total": 1}}}}',
    ],
)
def test_what_makes_no_sense_is_no_progress(details: str | None) -> None:
    """A row that was written by another version, or by hand, breaks no page."""
    assert read_progress(entry(details=details)) is None


def test_progress_is_read_from_the_entry_of_the_running_step() -> None:
    """What self.progress() stores comes back, with and without a total."""
    told = json.dumps({"progress": {"done": 3, "total": None}})
    assert read_progress(entry(details=told)) == Progress(3, None)
