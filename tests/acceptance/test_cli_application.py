"""Which engine a command works with, and what it says when there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.shop import Shop


@pytest.fixture
def shop(tmp_path: Path, sqlite_url: str) -> Shop:
    return Shop.open(tmp_path, sqlite_url)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("nowhere.app:well", "there is no module 'nowhere'"),
        ("shop:wall", "shop has no 'wall'"),
        ("shop:number", "shop:number is an int"),
        ("shop", "'shop' names no engine: write module:attribute"),
        (
            "shop.py:well",
            "there is no module 'shop.py': -A takes a module's name and no file. Write shop:well.",
        ),
        (
            "./src/app.py:well",
            "./src/app.py is a path: -A takes a module's name and no file. Write src.app:well.",
        ),
        ("careless:well", "careless cannot be imported: it needs the module 'not_installed'"),
    ],
)
def test_an_application_that_cannot_be_loaded_is_named_in_one_line(
    shop: Shop, target: str, expected: str
) -> None:
    """A wrong ``-A`` is a wrong use: exit code 2, and one line that says what is missing."""
    (shop.folder / "careless.py").write_text("import not_installed\n", encoding="utf-8")
    done = shop.run("-A", target, "runs", "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {expected}")
    assert done.stderr.count("\n") == 1


def test_an_error_in_the_applications_own_code_shows_where(shop: Shop) -> None:
    """A module that raises while it is imported is the author's to mend: a traceback says where."""
    (shop.folder / "faulty.py").write_text("well = 1 / 0\n", encoding="utf-8")
    done = shop.run("-A", "faulty:well", "runs", "list")
    assert done.returncode == 1
    assert "faulty.py" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_a_wrong_definition_is_told_in_one_line(shop: Shop) -> None:
    """A class that breaks a rule says which class, step and rule: an application that cannot be loaded."""
    code = "from stepwell import *\nclass W(Workflow):\n    @step(wait=3)\n    def late(self): ...\n"
    (shop.folder / "wrong.py").write_text(code, encoding="utf-8")
    done = shop.run("-A", "wrong:well", "runs", "list")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: W.late: wait")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("-A", "shop:well", "runs", "list"),
        ("runs", "-A", "shop:well", "list"),
        ("runs", "list", "-A", "shop:make_well"),
    ],
)
def test_the_application_can_be_named_before_or_after_the_command(
    shop: Shop, arguments: tuple[str, ...]
) -> None:
    """Nobody needs to remember where ``-A`` stands; the attribute may be a function, too."""
    done = shop.run(*arguments, STEPWELL_APP="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "No runs.\n", "")


def test_without_an_application_the_command_asks_for_one(shop: Shop) -> None:
    """A command that needs an engine says how to name it, with exit code 2."""
    done = shop.run("runs", "list", STEPWELL_APP="")
    assert done.returncode == 2
    assert "Give -A module:engine, or set STEPWELL_APP" in done.stderr


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_database_can_be_named_before_or_after_the_command(shop: Shop, place: int) -> None:
    """As with ``-A``: nobody needs to remember where it stands."""
    words = ["db", "check"]
    words[place:place] = ["--database", shop.url]
    done = shop.run(*words, STEPWELL_APP="")
    assert (done.returncode, done.stderr) == (0, "")
    assert "the tables have revision" in done.stdout


def test_a_worker_needs_more_than_a_database(shop: Shop) -> None:
    """A database in front of a command that needs the application's classes is refused, not passed over."""
    done = shop.run("--database", shop.url, "worker")
    assert done.returncode == 2
    assert "this needs the application's classes: give -A instead of --database" in done.stderr


def test_a_database_stands_in_for_an_application(shop: Shop) -> None:
    """Runs can be looked at where the code is not: the URL is enough, and beats STEPWELL_APP."""
    done = shop.run("runs", "list", "--database", shop.url, STEPWELL_APP="nowhere:at_all")
    assert (done.returncode, done.stdout) == (0, "No runs.\n")
    both = shop.run("-A", "shop:well", "runs", "list", "--database", shop.url)
    assert both.returncode == 2
    assert "give either -A or --database" in both.stderr


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("oracle://host/name", "oracle"),
        ("what is this", "is no database URL"),
        ("postgresql://127.0.0.1:1/shop", "cannot be opened"),
        ("sqlite:////nowhere/at/all/shop.db", "there is no database file"),
    ],
)
def test_a_database_out_of_reach_is_one_line(shop: Shop, url: str, expected: str) -> None:
    """What cannot be reached or is not supported ends with one line and a failure, no traceback."""
    done = shop.run("runs", "list", "--database", url)
    assert done.returncode in (1, 3)
    assert done.stderr.startswith("Error: ")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_its_libraries_the_command_line_says_what_to_install(missing: str) -> None:
    """The core needs neither click nor rich; who calls ``stepwell`` without them learns the extra's name."""
    code = f"import sys; sys.modules[{missing!r}] = None; from stepwell.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=Shop(Path(), "").environment(),
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: the command line needs {missing}, which is not installed. Run: pip install 'stepwell[cli]'\n"
    )
