"""``stepwell runs``: what people see, what machines get, and what the commands do."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.acceptance.shop import Shop, finish
from tests.databases import PostgreSQL

HOSTILE = "[bold]not markup[/bold] \x1b[31mred\x1b[0m \u202eturned\r\nnext \x9b2J :smile: end"


@pytest.fixture
def shop(tmp_path: Path, sqlite_url: str) -> Shop:
    return Shop.open(tmp_path, sqlite_url)


def start(shop: Shop, code: str) -> list[str]:
    """Start runs, and answer their ids."""
    return shop.python(f"for run in {code}: print(run.id)").split()


def documents(shop: Shop, *arguments: str) -> list[dict[str, object]]:
    """What ``runs list --json`` answers."""
    done = shop.run("runs", "list", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    listed: list[dict[str, object]] = json.loads(done.stdout)
    return listed


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_list_fits_the_terminal_and_keeps_ids_whole(shop: Shop, columns: int) -> None:
    """No line is longer than the terminal, and each id can be copied; other columns make room."""
    ids = start(
        shop,
        "Order.start_many([{'n': 1}, {'n': 2}])"
        " + [Wordy.start(), Order.with_options(key='Ключ 鍵 ' * 20, queue='q' * 100).start()]",
    )
    done = shop.run("runs", "list", columns=columns)
    lines = done.stdout.splitlines()
    assert max(cell_len(line) for line in lines) <= columns
    assert [line.split()[0] for line in lines[1:]] == ids[::-1]
    assert ("QUEUE" in lines[0]) == (columns == 200)
    assert "reserve" in lines[1]


def test_a_list_can_be_narrowed(shop: Shop) -> None:
    """Workflow, state, attention, step and limit each choose what they say, the newest first."""
    first, second = start(shop, "Order.start_many([{}, {}])")
    [third] = start(shop, "[Broken.start(text='x')]")
    shop.python(f"well.run('{first}').pause('a break')")
    assert [run["id"] for run in documents(shop)] == [third, second, first]
    assert [run["id"] for run in documents(shop, "--workflow", "Order")] == [second, first]
    assert [run["id"] for run in documents(shop, "--attention")] == [first]
    assert [run["id"] for run in documents(shop, "--state", "ready", "--state", "failed")] == [third, second]
    assert [run["id"] for run in documents(shop, "--step", "fail")] == [third]
    assert [run["id"] for run in documents(shop, "--limit", "1")] == [third]
    assert documents(shop, "--workflow", "Slow") == []
    assert "--limit shows more" in shop.run("runs", "list", "--limit", "2").stdout
    assert shop.run("runs", "list", "--attention", "--state", "ready").returncode == 2


@pytest.mark.parametrize(
    ("name", "options", "advice"),
    [
        ("Ordr", (), "Did you mean 'Order'?"),
        ("Zebra", ("--json",), "The application has A workflow whose name goes on"),
    ],
)
def test_a_workflow_that_nobody_knows_is_no_empty_list(
    shop: Shop, name: str, options: tuple[str, ...], advice: str
) -> None:
    """A misspelt name must not look like good news; one that is known, or has runs, may have none that fit."""
    done = shop.run("runs", "list", "--workflow", name, *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: there is no workflow {name!r}, and no run of one. {advice}")
    assert shop.run("runs", "list", "--workflow", "Order").stdout == "No runs.\n"
    start(shop, "[Order.start()]")
    elsewhere = ("runs", "list", "--database", shop.url, "--workflow")
    assert shop.run(*elsewhere, "Order", "--attention", STEPWELL_APP="").stdout == "No runs.\n"
    assert "only names that runs have are known" in shop.run(*elsewhere, name, STEPWELL_APP="").stderr


def test_json_is_one_document_with_utc_instants(shop: Shop) -> None:
    """Standard output is one document; instants are ISO 8601 in UTC, stored values are structures."""
    [run_id] = start(shop, "[Order.with_options(key='k').start(pieces=[1, 2])]")
    document = json.loads(shop.run("runs", "show", run_id, "--json").stdout)
    created = datetime.fromisoformat(document["created_at"])
    assert document["created_at"].endswith("Z")
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60
    assert (document["id"], document["state"], document["args"]) == (run_id, "ready", {"pieces": [1, 2]})
    assert document["journal"] == []
    assert run_id in document["explanation"]


def test_show_tells_where_a_run_stands_and_how_it_got_there(shop: Shop) -> None:
    """One page: the explanation, the facts, each attempt with its outcome and error, in 80 columns."""
    [run_id] = start(shop, "[Broken.start(text='the printer is on fire')]")
    shop.drain()
    done = shop.run("runs", "show", run_id)
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    assert f"Run {run_id} of Broken failed at step 'fail'" in words
    assert '{"text":"the printer is on fire"}' in words.replace('": "', '":"')
    assert "1 fail 1 failed" in words
    assert "the printer" in words.partition("OUTCOME")[2]
    assert "The step has failed once, with ValueError" in words
    table = done.stdout.partition("#  ")[2].splitlines()
    assert max(map(len, table)) <= 80


def test_show_tells_what_kind_of_wait_it_is(shop: Shop) -> None:
    """Each wait of the journal has its kind: a timer, a signal by its name, a gate, a poll."""
    (shop.folder / "open").touch()
    order, review = start(shop, "[Order.start(), Review.start()]")
    shop.drain(until=["awaiting"])
    assert re.search(
        r"remind  +1  scheduled .* timer until \d\d-\d\d", shop.run("runs", "show", order).stdout
    )
    assert re.search(
        r"decide  +1  scheduled .* signal 'verdict' until \d\d-\d\d",
        shop.run("runs", "show", review, columns=100).stdout,
    )
    (shop.folder / "open").unlink()
    shop.run("runs", "signal", review, "verdict", "--payload", "7")
    shop.drain(until=["awaiting"])
    assert re.search(r"enter  +1  scheduled .* gate\n", shop.run("runs", "show", review).stdout)
    (shop.folder / "open").touch()
    shop.run("runs", "wake", review)
    shop.drain(until=["waiting"])
    shown = shop.run("runs", "show", review, columns=100).stdout
    assert re.search(r"decide  +1  success .* signal 'verdict'\n", shown)
    assert re.search(r"settle  +1  scheduled .* poll, next look at \d\d-\d\d", shown)


def test_show_tells_who_gave_a_command_and_where_to(shop: Shop) -> None:
    """Not only to machines: who resumed a run, from which state and which step, and what counts no more."""
    [run_id] = start(shop, "[Broken.start(text='x')]")
    shop.drain()
    shop.run("runs", "resume", run_id, "--by", "carol", "--from-step", "fail", "--new-keys")
    words = " ".join(shop.run("runs", "show", run_id).stdout.split())
    assert "superseded, ValueError: x" in words
    assert "(resume) 1 success" in words
    assert "by carol, while failed, from step 'fail', with new keys" in words


def test_show_names_the_calls_that_are_no_longer_reached(shop: Shop) -> None:
    """Whoever looks at a run whose code has changed under it sees which recorded call answers nothing any more."""
    [run_id] = start(shop, "[Delivery.start()]")
    shop.drain(until=["waiting"])
    (shop.folder / "new").touch()
    shop.run("runs", "reschedule", run_id)
    shop.drain()
    shown = shop.run("runs", "show", run_id, columns=100).stdout
    assert 'recorded, but no longer reached by the code: pack["b"]' in shown
    assert re.search(r'pack\["b"\] +1  success', shown)
    document = json.loads(shop.run("runs", "show", run_id, "--json").stdout)
    assert document["details"] == {"orphans": ['pack["b"]']}


def test_show_tells_which_signals_nobody_has_read(shop: Shop) -> None:
    """People read it in the explanation, machines as names with their numbers, also when the run is over."""
    [run_id] = start(shop, "[Order.start()]")
    for name in ("hurry", "hurry", "stop"):
        shop.run("runs", "signal", run_id, name)
    shop.run("runs", "cancel", run_id)
    words = " ".join(shop.run("runs", "show", run_id).stdout.split())
    assert "Signals that were never read: 'hurry' (2), 'stop'." in words
    document = json.loads(shop.run("runs", "show", run_id, "--json").stdout)
    assert document["unread_signals"] == {"hurry": 2, "stop": 1}
    assert document["details"] == {"unread_signals": 3}


def test_a_command_that_changes_nothing_says_what_would(shop: Shop) -> None:
    """A run that goes on by itself, one that is over, and one that is asked for something stronger: each in words."""
    order, review = start(shop, "[Order.start(), Review.start()]")
    assert shop.run("runs", "resume", order).stdout.endswith(
        "  nothing to resume: it is ready, and waits for a worker\n"
    )
    (shop.folder / "open").touch()
    shop.drain(until=["awaiting"])
    both = shop.run("runs", "resume", order, review).stdout.splitlines()
    assert both[0].endswith("  nothing to resume: it is waiting (timer); `reschedule` moves the instant")
    assert both[1].endswith("  nothing to resume: it is awaiting (signal); `signal` sends what it waits for")
    shop.run("runs", "cancel", order)
    assert shop.run("runs", "cancel", order).stdout.endswith("  nothing to do: it is canceled already\n")


def test_a_weaker_command_yields_to_the_request_that_stands(shop: Shop) -> None:
    """Who wants to pause a run that is to be canceled learns that it will be, and that the command was not needed."""
    [run_id] = start(shop, "[Slow.start(seconds=60)]")
    worker = shop.start("worker")
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "at work\n"
        assert "asked to cancel: a worker does that" in shop.run("runs", "cancel", run_id).stdout
        for verb in ("pause", "skip", "resume"):
            said = shop.run("runs", verb, run_id).stdout
            assert said.endswith("  nothing to do: it is asked to cancel, and heeds that first\n")
    finally:
        finish(worker, signal.SIGKILL)


def test_commands_take_a_run_through_its_states(shop: Shop) -> None:
    """Pause, resume, skip and cancel do what they say, tell it in a line, and leave a note of who it was."""
    [run_id] = start(shop, "[Order.start()]")
    shop.drain(until=["waiting"])
    steps = [
        (("pause", run_id, "--reason", "a break", "--by", "carol"), "paused", "paused"),
        (("pause", run_id), "nothing to do: it is paused already", "paused"),
        (("resume", run_id, "--by", "carol"), "resumed", "ready"),
        (("skip", run_id), "step skipped", "ready"),
        (("cancel", run_id, "--reason", "sold out"), "canceled", "canceled"),
    ]
    for arguments, said, state in steps:
        done = shop.run("runs", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{run_id}  {said}")
        assert shop.runs()[run_id].state == state
    document = json.loads(shop.run("runs", "show", run_id, "--json").stdout)
    assert document["reason"] == "sold out"
    assert {"by": "carol", "from": "paused"} in [row["details"] for row in document["journal"]]


def test_a_command_that_cannot_be_done_fails_and_the_others_are_done(shop: Shop) -> None:
    """Exit code 1 says that something is left; each failure is a line, the other runs are done."""
    first, second, third = start(shop, "Order.start_many([{}, {}, {}])")
    shop.python(f"well.run('{second}').cancel()")
    unknown = "00000000-0000-7000-8000-000000000000"
    done = shop.run("runs", "pause", first, second, unknown, third)
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()] == [first, third]
    invalid, missing = done.stderr.splitlines()
    assert invalid.startswith(f"Error: run {second} is canceled: it cannot pause. pause works while")
    assert missing.startswith(f"Error: there is no run {unknown}")
    again = json.loads(shop.run("runs", "resume", first, second, "--json").stdout)
    assert [(answer["run"], answer["answer"]) for answer in again] == [(first, "done"), (second, None)]


def test_the_beginning_of_an_id_is_enough_if_it_is_unique(shop: Shop) -> None:
    """A beginning that fits one run means that run; one that fits several, or none, touches nothing."""
    ids = start(shop, "Order.start_many([{}, {}, {}])")
    common = ids[0][: next(i for i in range(36) if len({run_id[i] for run_id in ids}) > 1)]
    unique = ids[1][: len(common) + 6]
    ambiguous = shop.run("runs", "cancel", common)
    assert ambiguous.returncode == 1
    assert "is not unique: it fits" in ambiguous.stderr
    assert (
        shop.run("runs", "cancel", "f" * 12).stderr
        == "Error: there is no run whose id begins with ffffffffffff.\n"
    )
    assert "too short" in shop.run("runs", "cancel", ids[0][:3]).stderr
    assert "is no run id" in shop.run("runs", "cancel", "hello").stderr
    assert {run.state for run in shop.runs().values()} == {"ready"}
    assert shop.run("runs", "cancel", unique.upper()).returncode == 0
    assert shop.runs()[ids[1]].state == "canceled"


def test_nothing_in_a_run_steers_the_terminal(shop: Shop) -> None:
    """Reasons and error texts are text: markup means nothing, control characters become escapes."""
    [broken] = start(shop, f"[Broken.start(text={HOSTILE!r})]")
    shop.drain()
    [paused] = start(shop, "[Order.start()]")
    assert shop.run("runs", "pause", paused, "--reason", HOSTILE).returncode == 0
    outputs = [
        shop.run("runs", "list", columns=400),
        shop.run("runs", "show", broken, columns=400),
        shop.run("runs", "show", paused, columns=400),
        shop.run("runs", "list", "--json"),
    ]
    for done in outputs:
        assert done.returncode == 0, done.stderr
        assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(done.stdout + done.stderr)
        assert "[bold]not markup[/bold]" in done.stdout
        assert ":smile: end" in done.stdout
    assert r"\x1b[31mred" in outputs[1].stdout
    assert r"\u202eturned" in outputs[2].stdout
    assert documents(shop)[0]["reason"] == HOSTILE


def test_a_reader_that_goes_away_ends_the_command_quietly(shop: Shop) -> None:
    """Nothing is complained about, and the exit code is that of a closed pipe, however much was to come."""
    start(shop, "Order.start_many([{}] * 3000)")
    for limit, lines in ((1, 0), (0, 1)):
        process = shop.start("runs", "list", "--limit", str(limit))
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline().startswith("RUN")
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (141, "")


def test_output_in_an_encoding_without_the_characters_is_escaped(shop: Shop) -> None:
    """A terminal that cannot show a character gets an escape, not a traceback."""
    start(shop, "[Order.with_options(key='鍵').start()]")
    done = shop.run("runs", "list", columns=200, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u9375" in done.stdout


@pytest.fixture
def empty_postgresql_url(postgresql: PostgreSQL) -> Iterator[str]:
    with postgresql.database(tables=False) as url:
        yield url


@pytest.mark.servers
def test_the_whole_way_on_postgresql(tmp_path: Path, empty_postgresql_url: str) -> None:
    """Make the tables, start, work, look, act: the same commands on a server."""
    shop = Shop.open(tmp_path, empty_postgresql_url)
    assert shop.run("db", "check").returncode == 3
    assert shop.run("db", "upgrade").returncode == 0
    assert shop.run("db", "check").returncode == 0
    first, second = start(shop, "Order.start_many([{}, {}])")
    shop.drain(until=["waiting"])
    assert [run["state"] for run in documents(shop, "--step", "remind")] == ["waiting"] * 2
    assert shop.run("runs", "skip", first).returncode == 0
    assert shop.run("runs", "cancel", second[:30]).returncode == 0
    shop.drain()
    assert [run.state for run in shop.runs().values()] == ["completed", "canceled"]
    assert "completed" in shop.run("runs", "show", first).stdout
    watched = shop.run("runs", "watch", first, second)
    assert (watched.returncode, watched.stderr) == (1, "")
    assert [line.split()[2] for line in watched.stdout.splitlines()] == ["completed", "canceled"]
    shown = shop.run("runs", "list", "--database", empty_postgresql_url, STEPWELL_APP="")
    assert (shown.returncode, shown.stderr) == (0, "")
