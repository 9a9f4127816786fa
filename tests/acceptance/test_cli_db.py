"""``stepwell db``: the tables are made, printed and checked."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.acceptance.shop import Shop


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database file that is not there yet."""
    return tmp_path / "shop.db"


@pytest.fixture
def shop(tmp_path: Path, file: Path) -> Shop:
    return Shop.open(tmp_path, f"sqlite:///{file}")


@pytest.mark.parametrize("command", [("db", "check"), ("runs", "list"), ("worker",)])
def test_without_tables_a_command_says_what_to_run(shop: Shop, file: Path, command: tuple[str, ...]) -> None:
    """Exit code 3 is for missing or old tables, whoever meets them; looking makes no empty database file."""
    done = shop.run(*command)
    assert (done.returncode, done.stdout) == (3, "")
    assert "stepwell db upgrade" in done.stderr.splitlines()[-1]
    assert not file.exists()
    file.touch()
    again = shop.run(*command)
    assert again.returncode == 3
    assert "has no tables of Stepwell: run `stepwell db upgrade`" in again.stderr


def test_an_upgrade_makes_the_tables_and_can_be_repeated(shop: Shop) -> None:
    """The first time it says what it applied, the second time that there was nothing to do."""
    first = shop.run("db", "upgrade")
    assert (first.returncode, first.stderr) == (0, "")
    assert ": applied 0001" in first.stdout
    assert ": nothing to do" in shop.run("db", "upgrade").stdout
    assert json.loads(shop.run("db", "upgrade", "--json").stdout)["applied"] == []
    assert shop.run("db", "check").returncode == 0


def test_an_old_schema_is_told_to_machines_too(shop: Shop, file: Path) -> None:
    """The document says how the tables stand, with exit code 3."""
    file.touch()
    done = shop.run("db", "check", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"], document["revision"]) == (3, "missing", None)
    assert document["needs"]


def test_tables_of_a_newer_library_are_worth_a_note(shop: Shop, file: Path) -> None:
    """During a deploy the processes of the version before go on: a note, and exit code 0."""
    shop.run("db", "upgrade")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE stepwell_schema_version SET version_num = '9999'")
    connection.close()
    done = shop.run("db", "check")
    assert done.returncode == 0
    assert "Note: " in done.stdout
    assert "9999" in done.stdout
    assert shop.run("runs", "list").returncode == 0


def test_the_printed_statements_make_the_tables(shop: Shop, file: Path) -> None:
    """What ``db sql`` prints can be handed to somebody else; nothing is connected for it."""
    done = shop.run("db", "sql")
    assert (done.returncode, done.stderr) == (0, "")
    assert not file.exists()
    connection = sqlite3.connect(file)
    connection.executescript(done.stdout)
    connection.close()
    assert shop.run("db", "check").returncode == 0
    server = shop.run("db", "sql", "--database", "postgresql://nowhere/shop", STEPWELL_APP="")
    assert server.returncode == 0
    assert "fillfactor" in server.stdout


def test_a_journal_without_its_run_fails_the_check(shop: Shop, file: Path) -> None:
    """Rows that somebody deleted by hand leave orphans, which nothing else would tell."""
    shop.run("db", "upgrade")
    shop.python("Order.start()")
    with sqlite3.connect(file) as connection:
        connection.execute(
            "INSERT INTO stepwell_step_executions (run_id, position, name, kind, attempt, state)"
            " SELECT id, 1, 'reserve', 'step', 1, 'completed' FROM stepwell_runs"
        )
        connection.execute("DELETE FROM stepwell_runs")
    connection.close()
    done = shop.run("db", "check")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: 1 journal entry and 0 signals belong to runs that are gone")
    assert json.loads(shop.run("db", "check", "--json").stdout)["orphans"]["executions"] == 1


def test_a_password_is_never_shown(shop: Shop) -> None:
    """Messages name the database without its password."""
    done = shop.run("db", "upgrade", "--database", "postgresql://me:secret@127.0.0.1:1/shop", STEPWELL_APP="")
    assert done.returncode == 1
    assert "secret" not in done.stdout + done.stderr
