"""The last column of a journal: what an entry says besides its columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell.cli.notes import cursor_of, note_of, orphans_of, request_of, title_of
from tests.unit.cli.rows import NOON, after, entry, run


@pytest.mark.parametrize(
    ("values", "title", "note"),
    [
        (
            {"kind": "signal", "key": "review", "state": "scheduled", "scheduled_for": after(60)},
            "write",
            "signal 'review' until 06-01 12:01:00",
        ),
        (
            {"kind": "signal", "key": "review", "state": "completed", "scheduled_for": after(60)},
            "write",
            "signal 'review'",
        ),
        ({"kind": "gate", "state": "scheduled"}, "write", "gate"),
        (
            {"kind": "poll", "state": "scheduled", "scheduled_for": after(60)},
            "write",
            "poll, next look at 06-01 12:01:00",
        ),
        ({"state": "scheduled", "scheduled_for": after(60)}, "write", "timer until 06-01 12:01:00"),
        (
            {"state": "scheduled", "scheduled_for": after(60), "attempt": 2},
            "write",
            "retry at 06-01 12:01:00",
        ),
        (
            {
                "kind": "command",
                "name": "resume",
                "state": "completed",
                "details": json.dumps(
                    {"by": "carol", "from": "paused", "from_step": "pay", "new_keys": True}
                ),
            },
            "(resume)",
            "by carol, while paused, from step 'pay', with new keys",
        ),
        (
            {"state": "skipped", "details": json.dumps({"by": "carol", "reason": "not wanted"})},
            "write",
            "by carol, because: not wanted",
        ),
        (
            {"details": json.dumps({"progress": {"done": 3, "total": 4}}), "cursor": '"c"'},
            "write",
            '3 of 4 (75 %), cursor "c"',
        ),
        ({"state": "scheduled", "cursor": "7"}, "write", "cursor 7"),
        ({"cursor": '"' + "x" * 90 + '"'}, "write", 'cursor "' + "x" * 56 + "..."),
        (
            {
                "state": "failed",
                "superseded_at": NOON,
                "error_class": "builtins.ValueError",
                "error_message": "no",
            },
            "write",
            "superseded, ValueError: no",
        ),
        (
            {"kind": "poll", "state": "failed", "error_message": "it did not hold within 0:00:01"},
            "write",
            "poll, it did not hold within 0:00:01",
        ),
        ({"state": "completed", "key": '"A"'}, 'write["A"]', ""),
        ({"state": "completed", "key": '"A"#2'}, 'write["A"]#2', ""),
        ({"state": "completed", "key": '"#A"'}, 'write["#A"]', ""),
        (
            {"kind": "signal", "name": "review", "key": "#2", "state": "completed"},
            "review#2",
            "signal 'review'",
        ),
        ({"kind": "signal", "name": "review", "state": "scheduled"}, "review", "signal 'review'"),
        ({"details": "{broken"}, "write", ""),
        ({"details": '"text"'}, "write", ""),
        (
            {"kind": "recovery", "state": "failed", "error_class": "s.WorkerLost", "error_message": "gone"},
            "write",
            "recovery, WorkerLost: gone",
        ),
        ({"kind": "pause", "name": "pause", "state": "completed"}, "pause", ""),
        ({"kind": "of tomorrow", "state": "scheduled"}, "write", "of tomorrow"),
    ],
)
def test_an_entry_says_what_it_is_about(values: dict[str, Any], title: str, note: str) -> None:
    """Waits by their kind, commands by who gave them, long steps by how far they are, failures by their error."""
    row = entry(**values)
    assert (title_of(row), note_of(row)) == (title, note)


@pytest.mark.parametrize(
    ("kind", "key", "title"),
    [
        ("step", '"A"', 'write["A"]'),
        ("step", '"A"#2', 'write["A"]#2'),
        ("step", "#2", "write#2"),
        ("step", "7", "write[7]"),
        ("tick", "3", "write[tick 3]"),
        ("tick", "3#2", "write[tick 3]#2"),
    ],
)
def test_a_call_is_told_from_others_like_it(kind: str, key: str, title: str) -> None:
    """By its key, its number, and of a repetition by the number of the tick."""
    assert title_of(entry(kind=kind, key=key)) == title


def test_the_cursor_is_the_last_that_counts() -> None:
    """Of the step that the run is at: not of another step, and not of what was superseded."""
    journal = [
        entry(name="read", cursor="1"),
        entry(cursor="2"),
        entry(cursor="3", state="scheduled"),
        entry(cursor="9", superseded_at=NOON),
        entry(),
    ]
    assert cursor_of(run(), journal) == "3"
    assert cursor_of(run(current_step="send"), journal) is None
    assert cursor_of(run(current_step=None), journal) is None


def test_a_request_tells_who_asked_for_what_and_why() -> None:
    """Somebody who finds a run that is to stop learns whose doing it is; what cannot be read is not told."""
    text = json.dumps(
        {"verb": "pause", "reason": "a break", "by": "carol", "at": NOON.isoformat(), "step": "x"}
    )
    assert request_of(run(stop_request=text), after(90)) == "to pause, by carol, because: a break, 1 min ago"
    assert request_of(run(stop_request='{"verb": "cancel", "at": 7}'), NOON) == "to cancel"
    assert request_of(run(stop_request="{"), NOON) is None
    assert request_of(run(), NOON) is None


def test_orphans_are_told_by_their_names() -> None:
    """Those of a run that has some; details that say something else, or cannot be read, say nothing."""
    told = orphans_of(run(details=json.dumps({"orphans": ["charge", 'pack["b"]']})))
    assert told == 'recorded, but no longer reached by the code: charge, pack["b"]'
    for details in (None, "{", '{"orphans": []}', '{"orphans": 7}', '{"unread_signals": 1}'):
        assert orphans_of(run(details=details)) is None
