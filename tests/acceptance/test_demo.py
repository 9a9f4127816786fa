"""``stepwell demo``: it shows what it promises, and its proof can fail."""

from __future__ import annotations

import csv
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from stepwell.demo.telling import held_text
from tests.acceptance.shop import Shop
from tests.architecture.sources import ROOT

CUSTOMERS = 60

CONCLUDE = """
import sys
from pathlib import Path
from stepwell.demo.runner import Demo, Killed
from stepwell.demo.screen import PlainScreen
from stepwell.states import Outcome

demo = Demo(Path(sys.argv[1]), PlainScreen(), int(sys.argv[2]))
runs = demo._well.runs().all() if sys.argv[3] == "held" else []
held = [run.id for run in runs if any(row.outcome == Outcome.LOST for row in run.steps)]
sys.exit(demo.conclude(Killed(1.0, held)))
"""


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end."""
    return subprocess.run(
        [sys.executable, "-m", "stepwell", "demo", *options],
        cwd=folder,
        env=Shop(folder, "").environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A demo that was run once and kept: its folder, and what it said."""
    folder = tmp_path_factory.mktemp("demo")
    done = demo(folder, "--customers", str(CUSTOMERS), "--keep", "kept")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return folder / "kept", done.stdout


def conclude(folder: Path, held: str = "held") -> subprocess.CompletedProcess[str]:
    """Let the demo read its ledger once more."""
    return subprocess.run(
        [sys.executable, "-c", CONCLUDE, str(folder), str(CUSTOMERS), held],
        env=Shop(folder, "").environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_demo_kills_recovers_and_proves(told: tuple[Path, str]) -> None:
    """It says what was killed and recovered; the ledger has each step of each customer once."""
    folder, text = told
    assert "KILLED with SIGKILL" in text
    held = re.search(r"It held (\d+) runs", text)
    assert held is not None
    assert int(held[1]) > 0
    assert f"all {held[1]} of them, by worker-2" in text
    assert f"5 steps of {CUSTOMERS} customers happened exactly once, all {5 * CUSTOMERS}." in text
    with sqlite3.connect(folder / "demo.db") as connection:
        counted = connection.execute(
            "SELECT count(*), count(DISTINCT step || ':' || customer_id) FROM ledger"
        ).fetchone()
        lost = connection.execute(
            "SELECT count(DISTINCT run_id) FROM stepwell_step_executions WHERE outcome = 'lost'"
        ).fetchone()
    connection.close()
    assert counted == (5 * CUSTOMERS, 5 * CUSTOMERS)
    assert lost == (int(held[1]),)


def test_without_a_terminal_the_demo_speaks_in_plain_lines(told: tuple[Path, str]) -> None:
    """In a file or a pipe there is no escape sequence, and no line is wider than an ordinary terminal."""
    _, text = told
    assert "\x1b" not in text
    assert "\r" not in text
    assert max(len(line) for line in text.splitlines() if "sqlite:///" not in line) <= 80


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            "INSERT INTO ledger (customer_id, step) SELECT customer_id, step FROM ledger WHERE id = 7",
            "NOT PROVED",
        ),
        ("DELETE FROM ledger WHERE id = 7", "NOT PROVED"),
        ("UPDATE ledger SET customer_id = customer_id % 60 + 1 WHERE id = 7", "NOT PROVED"),
        ("INSERT INTO ledger (customer_id, step) VALUES (1, 'celebrate')", "NOT PROVED"),
        ("UPDATE customers SET credit = 40 WHERE id = 7", "NOT PROVED"),
        ("DELETE FROM customers WHERE id = 60; DELETE FROM ledger WHERE customer_id = 60", "NOT PROVED"),
        ("", "Proved"),
    ],
)
def test_the_proof_can_fail(told: tuple[Path, str], tmp_path: Path, damage: str, said: str) -> None:
    """A step missing, doubled, or done for somebody else gives exit code 1; a whole ledger gives 0."""
    folder, _ = told
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    connection = sqlite3.connect(copy / "demo.db")
    connection.executescript(damage)
    connection.close()
    done = conclude(copy)
    assert done.returncode == (0 if said == "Proved" else 1), done.stdout + done.stderr
    assert said in done.stdout


def test_a_demo_that_recovered_nothing_proves_nothing(told: tuple[Path, str]) -> None:
    """If the kill hit no run, the ledger may be right and shows nothing: exit code 1."""
    done = conclude(told[0], held="nothing")
    assert done.returncode == 1
    assert "NOT SHOWN" in done.stdout


def test_a_kept_demo_can_be_looked_at(told: tuple[Path, str]) -> None:
    """The command that the demo names at its end works."""
    folder, text = told
    command = text.rstrip().splitlines()[-1].partition("stepwell ")[2].split()
    done = Shop(folder.parent, "").run(*command, STEPWELL_APP="")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Onboarding" in done.stdout


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    """Who has seen enough gets the prompt back: no worker goes on, and no folder stays."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stepwell", "demo"],
        cwd=tmp_path,
        env=Shop(tmp_path, "").environment(TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    worker = next(
        found for line in process.stdout if (found := re.search(r"worker-1 started: process (\d+)", line))
    )
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not Path("/proc", worker[1]).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_not_touched(tmp_path: Path) -> None:
    """The demo wants a folder of its own."""
    (tmp_path / "letter.txt").touch()
    done = demo(tmp_path, "--keep", ".")
    assert done.returncode == 2
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def test_the_script_runs_the_demo_where_the_caller_stands(tmp_path: Path) -> None:
    """``bin/demo --keep look`` makes ``look`` in the caller's directory, wherever the repository is."""
    root, caller = tmp_path / "repository", tmp_path / "caller"
    shutil.copytree(ROOT / "bin", root / "bin")
    shutil.copy(ROOT / "pyproject.toml", root)
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\npwd; echo "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    stamp = subprocess.run(
        ["sh", "-c", "{ pwd -P && cat pyproject.toml; } | cksum"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    (root / ".venv" / ".ready-demo").write_text(stamp.stdout, encoding="utf-8")
    caller.mkdir()
    done = subprocess.run(
        ["../repository/bin/demo", "--keep", "look"],
        cwd=caller,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{caller.resolve()}\n-m stepwell demo --keep look\n"


def test_what_a_killed_worker_held_fits_on_a_terminal() -> None:
    """Many steps make several lines, each short enough to stand behind the time."""
    places = ["ask_how_it_goes", "credit_bonus", "send_welcome", "open_account", "complete", None] * 3
    lines = held_text(places)
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80 - len("  123.4 s  ")
    assert " ".join(lines).startswith("It held 18 runs: 3 at ask_how_it_goes, 3 at credit_bonus")
    assert list(held_text(["complete"])) == ["It held 1 run: 1 at complete."]
    assert list(held_text([])) == ["It held 0 runs."]


def test_the_shipped_customers_are_whole() -> None:
    """Three hundred of them, each with a name and an address of its own that no mail can reach."""
    with files("stepwell.demo").joinpath("customers.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 300
    assert len({row["email"] for row in rows}) == 300
    reserved = re.compile(r"[a-z0-9.]+@(example\.(com|org|net)|\w+\.example)")
    assert [row["email"] for row in rows if not reserved.fullmatch(row["email"])] == []
    assert all(row["name"] and row["city"] and row["plan"] for row in rows)
