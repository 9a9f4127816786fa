"""What somebody asks of a run, as a text on its row: read with patience, written in one way."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from stepwell.requests import StopRequest

NOON = datetime(2030, 6, 1, 12, 0, tzinfo=UTC)
SUCCESSOR = UUID("01a22ce4-8dda-718b-8c04-1b131d50b8a8")


def test_what_was_written_is_read_back() -> None:
    """Each of its facts, those that are left out included."""
    full = StopRequest("cancel", "enough", "ann", NOON, "pack", "paused", SUCCESSOR)
    assert StopRequest.parse(full.text()) == full
    bare = StopRequest("pause")
    assert StopRequest.parse(bare.text()) == bare
    assert json.loads(bare.text()) == {"verb": "pause"}


@pytest.mark.parametrize(
    "text",
    [None, "", "{broken", "[]", "3", "null", '"cancel"', "{}", '{"verb": 3}', "[" * 100_000],
)
def test_what_cannot_be_read_is_no_request(text: str | None) -> None:
    """Nothing is raised, whatever stands there: one bad row stops nobody."""
    assert StopRequest.parse(text) is None


def test_what_is_wrong_in_a_request_is_left_out() -> None:
    """A verb is enough; an instant without a zone, which could not be compared with any, is none."""
    text = {
        "verb": "cancel",
        "reason": 3,
        "by": [],
        "at": "2030-06-01T12:00:00",
        "step": {},
        "successor": "x",
    }
    assert StopRequest.parse(json.dumps(text)) == StopRequest("cancel")
    assert StopRequest.parse('{"verb": "cancel", "at": "noon"}') == StopRequest("cancel")


def test_cancel_beats_pause_beats_skip() -> None:
    """A request beats the weaker ones only; a verb that nobody knows beats none."""
    verbs = ["dance", "skip", "pause", "cancel"]
    for stronger, first in enumerate(verbs):
        for weaker, second in enumerate(verbs):
            assert StopRequest(first).beats(second) is (stronger > weaker)


def test_the_note_of_a_request_tells_who_when_why_and_of_what() -> None:
    """The state is the one that the run was asked in, where that is known."""
    asked = StopRequest("cancel", "enough", "ann", NOON, "pack", "paused")
    said = {"by": "ann", "from": "paused", "reason": "enough", "asked_at": "2030-06-01T12:00:00+00:00"}
    assert json.loads(asked.note("running")) == said
    assert json.loads(StopRequest("pause").note("running")) == {"by": None, "from": "running", "reason": None}
