"""``stepwell worker`` as a process: what it says, and how it ends."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.acceptance.shop import Shop, finish, read_until


@pytest.fixture
def shop(tmp_path: Path, sqlite_url: str) -> Shop:
    return Shop.open(tmp_path, sqlite_url)


@pytest.fixture
def started(shop: Shop) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that a test leaves behind are killed."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def work_on(
    shop: Shop, started: list[subprocess.Popen[str]], seconds: float, *options: str, writes: bool = False
) -> subprocess.Popen[str]:
    """Start a slow run and a worker, and come back when its first step is under way."""
    shop.python(f"Slow.start(seconds={seconds}, writes={writes})")
    process = shop.start("worker", *options)
    started.append(process)
    assert process.stdout is not None
    read_until(process.stdout.readline, "at work")
    return process


def states(shop: Shop) -> list[tuple[str, str | None]]:
    return [(run.state, run.reason) for run in shop.runs().values()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_step_end_and_gives_the_run_back(
    shop: Shop, started: list[subprocess.Popen[str]], number: int
) -> None:
    """The step that runs is finished and recorded, the next is not begun, and the exit code is 0."""
    process = work_on(shop, started, 1)
    code, _, err = finish(process, number)
    assert code == 0, err
    [run] = shop.runs().values()
    assert (run.state, run.current_step) == ("ready", "rest")


def test_a_second_signal_stops_at_once(shop: Shop, started: list[subprocess.Popen[str]]) -> None:
    """Nobody waits for a long step twice: the run is given back as interrupted, and the exit code is 1."""
    process = work_on(shop, started, 60)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)  # two signals in one instant would count as one
    began = time.monotonic()
    code, _, _ = finish(process)
    assert (code, time.monotonic() - began < 5) == (1, True)
    assert states(shop) == [("ready", "interrupted")]


def test_the_grace_period_ends_a_long_step(shop: Shop, started: list[subprocess.Popen[str]]) -> None:
    """A step that outlasts the grace period is left, its run given back; that is a proper stop: 0."""
    process = work_on(shop, started, 60, "--grace", "0.2")
    code, _, _ = finish(process)
    assert code == 0
    assert states(shop) == [("ready", "interrupted")]


def test_a_step_that_holds_the_write_lock_cannot_hold_up_a_stop(
    shop: Shop, started: list[subprocess.Popen[str]]
) -> None:
    """Beside it SQLite lets nothing be given back: the process ends, and what it wrote is undone."""
    file = make_url(shop.url).database
    assert file is not None
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE stock (pieces INTEGER)")
        connection.execute("INSERT INTO stock VALUES (7)")
    process = work_on(shop, started, 60, "--grace", "0.2", writes=True)
    began = time.monotonic()
    code, _, _ = finish(process)
    assert (code, time.monotonic() - began < 15) == (0, True)
    assert connection.execute("SELECT pieces FROM stock").fetchall() == [(7,)]
    connection.close()
    assert states(shop)[0][0] == "running"  # until its lease has run out


def test_a_signal_during_the_start_stops_the_worker_gracefully(shop: Shop) -> None:
    """A deploy that stops a worker in its first moment neither kills it nor is overheard."""
    code = """
import os, signal
from stepwell import Worker
class Early(Worker):
    def start(self):
        os.kill(os.getpid(), signal.SIGTERM)
        super().start()
Early(well).run()
print("stopped")
"""
    assert shop.python(code) == "stopped"


def test_a_signal_before_the_start_is_a_stop(shop: Shop, started: list[subprocess.Popen[str]]) -> None:
    """Whatever the moment, SIGTERM ends the command with exit code 0."""
    process = shop.start("worker")
    started.append(process)
    assert process.stderr is not None
    read_until(process.stderr.readline, "this worker drives runs")
    code, _, err = finish(process)
    assert code == 0, err


def test_a_log_line_is_a_record_with_its_facts(shop: Shop, started: list[subprocess.Popen[str]]) -> None:
    """Text for people has each fact as ``name=value``; JSON for machines has one object a line, in UTC."""
    process = work_on(shop, started, 0.1, "--name", "worker one", "--queue", "default")
    code, _, text = finish(process)
    assert code == 0
    first, *_, last = text.splitlines()
    assert 'queues=default  threads=16  workflows="A workflow whose name' in first
    assert 'action=worker.stop  worker="worker one"' in last
    process = work_on(shop, started, 0.1, "--log-format", "json", "--log-level", "info")
    code, _, lines = finish(process)
    records = [json.loads(line) for line in lines.splitlines()]
    assert [record["action"] for record in records] == ["worker.configure", "worker.start", "worker.stop"]
    assert records[0]["threads"] == 16
    assert all(record["time"].endswith("Z") for record in records)


def test_a_run_that_stops_is_in_the_log(shop: Shop, started: list[subprocess.Popen[str]]) -> None:
    """Who watches the log learns which run has failed, at which step and with what error; no argument is told."""
    run_id = shop.python("print(Broken.start(text='the till is empty').id)")
    process = shop.start("worker", "--log-format", "json")
    started.append(process)
    assert process.stderr is not None
    record = json.loads(read_until(process.stderr.readline, "run.attention"))
    assert (record["level"], record["run_id"], record["state"]) == ("warning", run_id, "failed")
    assert (record["step"], record["error"]) == ("fail", "ValueError")
    assert record["error_message"] == "the till is empty"
    assert "args" not in record
    assert finish(process)[0] == 0


def test_an_applications_own_logging_is_left_alone(shop: Shop, started: list[subprocess.Popen[str]]) -> None:
    """Who has set up logging keeps it, unless a format is asked for."""
    code = (
        "import logging\nlogging.basicConfig(level='INFO', format='MINE %(message)s')\nfrom shop import *\n"
    )
    (shop.folder / "logged.py").write_text(code, encoding="utf-8")
    process = shop.start("-A", "logged:well", "worker")
    started.append(process)
    assert process.stderr is not None
    assert read_until(process.stderr.readline, "worker started").startswith("MINE worker started worker=")
    assert finish(process)[0] == 0


def test_a_worker_takes_from_its_queues_only(shop: Shop, started: list[subprocess.Popen[str]]) -> None:
    """What stands in another queue waits for another worker."""
    shop.python("Order.with_options(queue='other').start(); Order.with_options(queue='mail').start()")
    process = shop.start("worker", "--queue", "mail", "--queue", "letters")
    started.append(process)
    while ("waiting", "timer") not in states(shop):
        time.sleep(0.05)
    assert finish(process)[0] == 0
    assert {run.queue: run.state for run in shop.runs().values()} == {"other": "ready", "mail": "waiting"}


@pytest.mark.parametrize("name", ["", " ", "mail "])
def test_a_queue_that_no_run_can_be_in_is_refused(shop: Shop, name: str) -> None:
    """An empty variable in a unit file must not make a worker that waits for nothing for ever."""
    done = shop.run("worker", "-q", "default", "-q", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"a name must not be empty, nor begin or end with a space; got {name!r}" in done.stderr


def test_a_worker_without_workflows_says_so(shop: Shop, started: list[subprocess.Popen[str]]) -> None:
    """An application that forgets to import its classes puts off every run: the log says so."""
    code = "import os\nfrom stepwell import Stepwell\nwell = Stepwell(os.environ['SHOP_DATABASE'])\n"
    (shop.folder / "bare.py").write_text(code, encoding="utf-8")
    process = shop.start("-A", "bare:well", "worker")
    started.append(process)
    assert process.stderr is not None
    assert "no workflow class is loaded" in process.stderr.readline()
    assert finish(process)[0] == 0
