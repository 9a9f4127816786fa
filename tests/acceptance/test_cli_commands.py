"""``stepwell runs signal``, ``wake``, ``reschedule`` and ``resume --from-step``: what they do and what they say."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.acceptance.shop import Shop


@pytest.fixture
def shop(tmp_path: Path, sqlite_url: str) -> Shop:
    return Shop.open(tmp_path, sqlite_url)


def start(shop: Shop, workflow: str, until: str, number: int = 1) -> list[str]:
    """Start runs of a workflow, let a worker drive them until they are in a state, and answer their ids."""
    ids = shop.python(f"for run in {workflow}.start_many([{{}}] * {number}): print(run.id)").split()
    shop.drain(until=[until])
    return ids


def test_a_signal_reaches_the_step_that_awaits_it(shop: Shop) -> None:
    """Several runs at once, with a payload; the step receives what was typed as JSON."""
    ids = start(shop, "Review", "awaiting", 2)
    done = shop.run("runs", "signal", *ids, "verdict", "--payload", '{"approved": true}')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"{run_id}  signal 'verdict' sent\n" for run_id in ids)
    shop.drain(until=["awaiting"])
    contexts = [json.loads(row.context or "{}") for row in shop.runs().values()]
    assert contexts == [{"verdict": {"approved": True}}] * 2


def test_a_signal_that_nobody_awaits_is_kept_and_said_to_be(shop: Shop) -> None:
    """A misspelt name shows at once, and not when somebody asks why the run still waits."""
    [run_id] = start(shop, "Review", "awaiting")
    sent = f"{run_id}  signal 'verdikt' sent; no step"
    done = shop.run("runs", "signal", run_id, "verdikt")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{sent} of Review awaits it (its steps await verdict), so it is kept\n"
    done = shop.run("runs", "signal", run_id, "verdikt", "--database", shop.url, STEPWELL_APP="")
    assert done.stdout == f"{sent} awaits it just now, so it is kept\n"
    assert "Unread signals: 'verdikt'" in shop.run("runs", "show", run_id, columns=300).stdout


def test_a_signal_counts_once_for_each_key(shop: Shop) -> None:
    """Of several with one key the first one counts, and the others are no failure."""
    [run_id] = start(shop, "Review", "awaiting")
    send = ("runs", "signal", run_id, "verdict", "--idempotency-key", "mail-7", "--json")
    answers = [json.loads(shop.run(*send).stdout)[0]["answer"] for _ in range(2)]
    assert answers == ["done", "unchanged"]
    assert "was sent before with this key" in shop.run(*send[:-1]).stdout


def test_a_signal_to_a_run_that_is_over_fails_and_the_others_are_sent(shop: Shop) -> None:
    """Nobody would read it: exit code 1, one line, and the rest is done."""
    first, second = start(shop, "Review", "awaiting", 2)
    shop.run("runs", "cancel", first)
    done = shop.run("runs", "signal", first, second, "verdict")
    assert done.returncode == 1
    assert done.stdout.startswith(second)
    assert done.stderr == f"Error: run {first} is canceled: it is over and reads no signals any more.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("signal", "RUN", "verdict", "--payload", "approved"), "is no JSON"),
        (("signal", "RUN", ""), "a name must not be empty"),
        (("signal", "RUN", "verdict", "--idempotency-key", ""), "a name must not be empty"),
        (("signal", "verdict"), "Missing argument 'RUN...'"),
        (("reschedule", "RUN", "--in", "10"), "is no duration"),
        (("reschedule", "RUN", "--at", "2030-01-01T08:00"), "has no time zone"),
        (("reschedule", "RUN", "--in", "1m", "--at", "2030-01-01T08:00Z"), "give either --at or --in"),
        (("resume", "RUN", "--new-keys"), "say from which, --from-step"),
        (("signal", "RUN", "go", '{"a": 1}'), "looks like a payload, which --payload takes"),
    ],
)
def test_what_makes_no_sense_touches_nothing(shop: Shop, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, with what to write instead, before any run is looked at."""
    done = shop.run("runs", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_wake_lets_a_run_look_at_its_gate(shop: Shop) -> None:
    """Who has opened the gate wakes the run; one that waits for nothing of the kind is left as it is."""
    [run_id] = start(shop, "Review", "awaiting")
    [order] = start(shop, "Order", "waiting")
    shop.run("runs", "signal", run_id, "verdict")
    shop.drain(until=["awaiting"])
    assert shop.runs()[run_id].current_step == "enter"
    (shop.folder / "open").touch()
    done = shop.run("runs", "wake", run_id, order)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"{run_id}  woken: it looks again\n"
        f"{order}  nothing to do: it is waiting, and waits for nothing that wakes it\n"
    )
    shop.drain(until=["waiting"])
    assert shop.runs()[run_id].current_step == "settle"
    shop.run("runs", "cancel", order)
    again = shop.run("runs", "wake", order, "--json")
    assert json.loads(again.stdout) == [{"run": order, "answer": "unchanged", "error": None}]
    assert shop.run("runs", "wake", order).stdout == f"{order}  nothing to do: it is canceled\n"


def test_a_skip_that_is_said_again_is_about_the_same_step(shop: Shop) -> None:
    """As long as no worker has done it: the second one says so, and leaves nothing else out."""
    [order] = start(shop, "Order", "waiting")
    assert shop.run("runs", "skip", order).stdout == f"{order}  step skipped\n"
    step = shop.runs()[order].current_step
    again = shop.run("runs", "skip", order)
    assert again.stdout == f"{order}  nothing to do: it is asked to skip {step!r} already\n"


def test_a_wait_is_moved_to_an_instant_a_while_ahead_or_now(shop: Shop) -> None:
    """The new instant is said and stored; moved to now, the run goes on."""
    [run_id] = start(shop, "Order", "waiting")
    done = shop.run("runs", "reschedule", run_id, "--at", "2030-03-01T10:00:00+02:00")
    assert (done.returncode, done.stdout) == (0, f"{run_id}  rescheduled to 2030-03-01 08:00:00 UTC\n")
    assert shop.runs()[run_id].wake_at == datetime(2030, 3, 1, 8, tzinfo=UTC)
    assert shop.run("runs", "reschedule", run_id, "--in", "1h30m").returncode == 0
    wake_at = shop.runs()[run_id].wake_at
    assert wake_at is not None
    assert timedelta(minutes=89) < wake_at - datetime.now(UTC) < timedelta(minutes=91)
    assert shop.run("runs", "reschedule", run_id).stdout == f"{run_id}  rescheduled: it is due now\n"
    shop.drain()
    assert shop.runs()[run_id].state == "completed"
    over = shop.run("runs", "reschedule", run_id, "--json")
    assert over.returncode == 1
    assert "is completed: it cannot reschedule" in json.loads(over.stdout)[0]["error"]


def test_a_run_goes_on_from_an_earlier_step(shop: Shop) -> None:
    """What came after it counts no more; a step that the class does not have is refused by its name."""
    [run_id] = start(shop, "Order", "waiting")
    shop.run("runs", "pause", run_id)
    unknown = shop.run("runs", "resume", run_id, "--from-step", "reserv")
    assert unknown.returncode == 1
    assert "has no step 'reserv' to go on from; it has reserve, remind, close" in unknown.stderr
    done = shop.run("runs", "resume", run_id, "--from-step", "reserve")
    assert (done.returncode, done.stdout) == (0, f"{run_id}  resumed from step 'reserve'\n")
    shop.drain(until=["waiting"])
    journal = json.loads(shop.run("runs", "show", run_id, "--json").stdout)["journal"]
    counting = [row["name"] for row in journal if row["kind"] == "step" and row["superseded_at"] is None]
    assert counting == ["reserve", "remind"]
