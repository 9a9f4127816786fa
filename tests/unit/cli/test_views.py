"""How watched runs look: on a terminal, in a log, for machines."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from stepwell.cli.progress import Meter, read_progress
from stepwell.cli.views import JSONView, LineView, LiveView
from stepwell.cli.watching import MOST, Look, Sight
from tests.unit.cli.rows import RUN_ID, after, entry, run


def working(done: int, total: int | None = 10, **values: Any) -> Sight:
    """A run whose step has told its progress."""
    row = entry(details=json.dumps({"progress": {"done": done, "total": total}}), **values)
    progress = read_progress(row)
    assert progress is not None
    return Sight(run(), row, progress, Meter().look(row, progress, after(2)))


def look(*sights: Sight, at: float = 2, are_named: bool = True) -> Look:
    return Look(after(at), sights, frozenset(), are_named)


class Screen(StringIO):
    """A terminal's output, in an encoding of its own."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only here
        return self._encoding


def painted(seen: Look, width: int = 80, encoding: str = "utf-8") -> list[str]:
    """What a terminal shows."""
    screen = Screen(encoding)
    console = Console(file=screen, width=width, color_system=None, highlight=False)
    console.print(LiveView(console).picture(seen))
    return screen.getvalue().splitlines()


def test_progress_is_a_bar_with_rate_and_remaining_time() -> None:
    """Half of it done is half of the bar; a step that knows no total has numbers only."""
    head, bar = painted(look(working(5)))
    assert head.split() == [str(RUN_ID), "running", "Newsletter", "at", "write"]
    assert bar == "  ━━━━━━━━━━──────────  5 of 10 (50 %), 2.5/s, 2 s left"
    assert painted(look(working(5, None)))[1] == "  5 done, 2.5/s"


def test_a_bar_is_full_only_when_nothing_is_left() -> None:
    """999 of 1000 is not done yet, and more than all is no longer bar."""
    assert painted(look(working(999, 1000)))[1].startswith(f"  {'━' * 19}─  999 of 1000 (99 %)")
    assert painted(look(working(12)))[1].startswith(f"  {'━' * 20}  12 of 10 (100 %)")


def test_a_terminal_without_lines_gets_a_bar_of_signs() -> None:
    """The picture holds only what the encoding has."""
    assert painted(look(working(5)), encoding="ascii")[1].startswith("  ##########----------  5 of 10")


@pytest.mark.parametrize(
    ("sight", "said"),
    [
        (Sight(run()), ""),
        (Sight(run(), entry()), "for 2 s"),
        (Sight(run(), entry(cursor="7", attempt=3)), "cursor 7, attempt 3, for 2 s"),
        (
            Sight(run(lease_expires_at=after(1))),
            "its lease has run out",
        ),
        (
            Sight(run(stop_request='{"verb": "pause", "by": "carol"}'), entry()),
            "for 2 s, asked to pause, by carol",
        ),
        (
            Sight(run(state="awaiting"), entry(kind="signal", key="go", state="scheduled")),
            "signal 'go'",
        ),
        (
            Sight(run(state="ready", reason="interrupted"), entry(kind="gate", state="scheduled")),
            "in queue default, interrupted",
        ),
        (Sight(run(state="waiting", reason="newer_version")), "newer_version"),
        (Sight(run(state="paused", reason="a break")), "a break"),
        (
            Sight(run(state="failed", reason="step_failed", error_class="a.Gone", error_message="no")),
            "Gone: no",
        ),
        (Sight(run(state="failed", reason="undecodable")), "undecodable"),
        (Sight(run(state="completed", finished_at=after(90))), "took 1 min"),
        (Sight(run(state="canceled", finished_at=after(1))), ""),
        (Sight(run(state="of tomorrow", reason="why not")), "why not"),
    ],
)
def test_a_run_says_where_it_stands(
    sight: Sight, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a person needs to know of each state, below its line on a terminal and behind it in a log."""
    monkeypatch.setenv("COLUMNS", "200")
    _, *more = painted(look(sight), width=200)
    assert more == ([f"  {said}"] if said else [])
    with LineView() as view:
        view.show(look(sight))
    line = capsys.readouterr().out
    assert (
        line
        == f"12:00:02  {RUN_ID}  {sight.run.state:<9}  Newsletter at write{f': {said}' if said else ''}\n"
    )


def test_nothing_on_the_picture_is_wider_than_the_terminal() -> None:
    """A long name or error is cut, and never wrapped: the picture keeps its place."""
    sight = Sight(run(workflow="鍵" * 90, state="failed", error_class="E", error_message="x" * 200))
    lines = painted(look(sight, working(5)), width=60)
    assert len(lines) == 4
    assert max(cell_len(line) for line in lines) <= 60


def test_nothing_in_a_run_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Names, reasons and cursors are text, with control characters written out."""
    hostile = "[red]\x1b[31m\u202e\r\n"
    sights = look(
        Sight(run(workflow=hostile, current_step=hostile, state="paused", reason=hostile)),
        Sight(run(), entry(cursor=hostile)),
    )
    with LineView() as view:
        view.show(sights)
    with JSONView() as view:
        view.show(sights)
    for text in ("".join(painted(sights, width=300)), capsys.readouterr().out):
        assert not {"\x1b", "\u202e", "\r"} & set(text)
        assert "[red]" in text


def test_without_names_the_picture_shows_what_runs() -> None:
    """What has stopped since the last look is gone; nothing at all is said in words."""
    stopped = Sight(run(state="completed", finished_at=after(1)))
    assert painted(look(stopped, are_named=False)) == ["No run is running."]
    assert len(painted(look(stopped, working(1), are_named=False))) == 2
    many = painted(look(*[Sight(run())] * MOST, are_named=False))
    assert many[-1] == f"These are the oldest {MOST}."


def test_a_log_has_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    """Time that passes is no change; progress, another state and another attempt are."""
    view = LineView()
    view.show(look(working(1)))
    view.show(look(working(1), at=5))
    view.show(look(working(2), at=6))
    view.show(look(working(2, attempt=2), at=7))
    view.show(look(Sight(run(state="waiting", reason="retry")), at=8))
    lines = capsys.readouterr().out.splitlines()
    assert [line[:8] for line in lines] == ["12:00:02", "12:00:06", "12:00:07", "12:00:08"]


def test_a_log_says_once_that_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Who pipes the output somewhere learns that it works."""
    view = LineView()
    view.show(look(are_named=False))
    view.show(look(are_named=False, at=3))
    assert capsys.readouterr().out == "12:00:02  No run is running.\n"


def test_machines_get_a_document_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a line, with numbers as numbers and the cursor as it is stored."""
    view = JSONView()
    view.show(look(working(5, cursor='{"page": 3}')))
    view.show(look(working(5, cursor='{"page": 3}'), at=3))
    view.show(look(Sight(run(state="waiting", wake_at=after(60))), at=4))
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {
        "at": "2030-06-01T12:00:02.000Z",
        "run": str(RUN_ID),
        "workflow": "Newsletter",
        "state": "running",
        "reason": None,
        "current_step": "write",
        "attempt": 1,
        "progress": {"done": 5, "total": 10, "rate": 2.5, "remaining_seconds": 2.0},
        "cursor": {"page": 3},
        "wake_at": None,
        "error_class": None,
        "error_message": None,
    }
    assert (second["progress"], second["wake_at"]) == (None, "2030-06-01T12:01:00.000Z")


@pytest.mark.parametrize(
    ("states", "is_last", "is_good"),
    [
        (["completed", "completed"], True, True),
        (["completed", "running"], False, False),
        (["completed", "canceled"], True, False),
        (["failed"], True, False),
        (["paused", "waiting"], False, False),
        ([], True, True),
    ],
)
def test_a_watch_ends_when_nothing_goes_on(states: list[str], is_last: bool, is_good: bool) -> None:
    """Runs that want a person do not go on; only completed ones are good."""
    seen = look(*(Sight(run(state=state)) for state in states))
    assert (seen.is_last, seen.is_good) == (is_last, is_good)
    assert not look(*seen.sights, are_named=False).is_last
    assert not Look(after(0), seen.sights, frozenset([RUN_ID]), are_named=True).is_good
