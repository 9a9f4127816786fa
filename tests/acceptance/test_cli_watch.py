"""``stepwell runs watch``: runs are followed while they go on."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.shop import Shop, finish, read_until


@pytest.fixture
def shop(tmp_path: Path, sqlite_url: str) -> Shop:
    return Shop.open(tmp_path, sqlite_url)


@pytest.fixture
def importing(shop: Shop) -> Iterator[str]:
    """The id of a run that has done four of ten, and goes on when the file ``go`` is there."""
    run_id = shop.python("print(Import.start().id)")
    worker = shop.start("worker", "--threads", "2")
    yield run_id
    (shop.folder / "go").touch()
    code, _, err = finish(worker)
    assert code == 0, err


def watching(shop: Shop, *arguments: str) -> subprocess.Popen[str]:
    return shop.start("runs", "watch", "--every", "0.1", *arguments)


def test_a_watched_run_tells_its_progress_and_its_end(shop: Shop, importing: str) -> None:
    """One JSON document for each change; the watch ends with the run, with exit code 0 if it has completed."""
    watch = watching(shop, importing[:18], "--json")
    assert watch.stdout is not None
    first = json.loads(read_until(watch.stdout.readline, '"done": 4'))
    assert (first["run"], first["state"], first["current_step"]) == (importing, "running", "load")
    assert first["progress"]["total"] == 10
    (shop.folder / "go").touch()
    out, err = watch.communicate(timeout=30)
    assert (watch.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["state"] == "completed"


def test_without_names_whatever_runs_is_watched_until_ctrl_c(shop: Shop, importing: str) -> None:
    """In a pipe each change is a line; Ctrl-C ends it with 130 and without a traceback."""
    watch = watching(shop)
    assert watch.stdout is not None
    line = read_until(watch.stdout.readline, "4 of 10")
    assert re.match(rf"\d\d:\d\d:\d\d  {importing}  running    Import at load: 4 of 10 \(40 %\)", line)
    (shop.folder / "go").touch()
    assert f"{importing}  completed  Import" in read_until(watch.stdout.readline, "completed")
    code, _, err = finish(watch, signal.SIGINT)
    assert (code, err.strip()) == (130, "")


def test_a_terminal_shows_a_bar_and_gets_its_cursor_back(shop: Shop, importing: str) -> None:
    """The picture is painted anew in place; whoever ends the watch, the terminal is as it was."""
    main, terminal = pty.openpty()
    watch = subprocess.Popen(
        shop.command("runs", "watch", importing),
        cwd=shop.folder,
        env=shop.environment(TERM="xterm", COLUMNS="100", PYTHONUTF8="1"),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = read_terminal(main, until=b"4 of 10")
    assert "\x1b[?25l" in shown
    assert "━" * 8 in shown
    watch.send_signal(signal.SIGTERM)
    assert "\x1b[?25h" in read_terminal(main)
    assert watch.wait(timeout=30) == 130
    os.close(main)


def read_terminal(file: int, until: bytes | None = None) -> str:
    """What is written to a terminal, up to some text, or to its end."""
    shown = b""
    while until is None or until not in shown:
        try:
            more = os.read(file, 4096)
        except OSError:
            break  # Linux reports so that nobody holds the other end any more
        if not more:
            break
        shown += more
    return shown.decode("utf-8", "replace")


def test_a_run_that_does_not_complete_is_a_failure(shop: Shop) -> None:
    """What is canceled, has failed or wants a person ends the watch with exit code 1, whatever the others did."""
    good, canceled, paused = shop.python(
        "for run in Slow.start_many([{'seconds': 0}] * 3): print(run.id)"
    ).split()
    broken = shop.python("print(Broken.start(text='the printer is on fire').id)")
    shop.python(f"well.run('{canceled}').cancel('sold out'); well.run('{paused}').pause('a break')")
    shop.drain(until=["failed"])
    done = shop.run("runs", "watch", good, columns=200)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"completed  Slow: took \d", done.stdout)
    done = shop.run("runs", "watch", good, good, canceled, paused, broken, columns=200)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines] == [good, canceled, paused, broken]
    for line, said in zip(
        lines[1:], ("sold out", "a break", "ValueError: the printer is on fire"), strict=True
    ):
        assert line.endswith(said)


def test_a_run_that_waits_is_watched_on(shop: Shop) -> None:
    """Whatever it waits for is said; a run that is deleted meanwhile ends the watch with exit code 1."""
    run_id = shop.python("print(Review.start().id)")
    shop.drain(until=["awaiting"])
    watch = watching(shop, run_id)
    assert watch.stdout is not None
    assert "awaiting   Review at decide: signal 'verdict' until" in watch.stdout.readline()
    shop.python(
        "with well.database.begin() as connection: connection.execute(text('DELETE FROM stepwell_runs'))"
    )
    _, err = watch.communicate(timeout=30)
    assert watch.returncode == 1
    assert err == f"Error: there is no run {run_id} any more: it was deleted meanwhile.\n"


def test_a_run_that_is_not_there_is_not_waited_for(shop: Shop) -> None:
    """A wrong id ends the command at once."""
    done = shop.run("runs", "watch", "00000000-0000-7000-8000-000000000000")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no run" in done.stderr
    assert shop.run("runs", "watch", "--every", "0").returncode == 2
