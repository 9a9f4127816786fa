"""What a worker's log says of runs that somebody should look at."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Run, Stepwell, Worker, Workflow, step
from tests.chaos.fleet import until


class Wordy(Workflow):
    @step
    def fine(self) -> None: ...

    @step
    def fail(self) -> None:
        raise ValueError("the till is empty: " + "9" * 500)


class Changed(Workflow):
    """Calls its step with another argument after it has slept, as a deploy in between would."""

    word = "old"

    def run(self) -> None:
        self.say(word=self.word)
        type(self).word = "new"
        self.sleep(timedelta(milliseconds=10))

    @step
    def say(self, word: str) -> None: ...


class Stuck(Workflow):
    gate = threading.Event()

    @step
    def fine(self) -> None: ...

    @step
    def wait(self) -> None:
        self.gate.wait(30)


@pytest.fixture
def well(sqlite_url: str) -> Iterator[Stepwell]:
    engine = Stepwell(sqlite_url, default=False)
    yield engine
    engine.close()


def told(caplog: pytest.LogCaptureFixture, action: str) -> Any:
    [record] = [each for each in caplog.records if getattr(each, "action", None) == action]
    return record


def drive(well: Stepwell, workflow: type[Workflow[Any]]) -> Run:
    run: Run = workflow.with_options(engine=well).start()
    with Worker(well, threads=1):
        until("it has failed", lambda: run.state == "failed")
    return run


def test_a_failed_run_is_told_with_its_error_and_its_step(
    well: Stepwell, caplog: pytest.LogCaptureFixture
) -> None:
    """The line says what went wrong and where, so that nobody has to look the run up first; a long text is cut."""
    run = drive(well, Wordy)
    record = told(caplog, "run.attention")
    assert (record.run_id, record.workflow, record.step) == (str(run.id), "Wordy", "fail")
    assert record.error == "ValueError"
    assert record.error_message.startswith("the till is empty: 999")
    assert len(record.error_message) <= 302


def test_a_run_that_does_not_fit_its_history_is_told_with_what_differs(
    well: Stepwell, caplog: pytest.LogCaptureFixture
) -> None:
    """No code of the author's raised anything, and the line tells all the same what the run's row says."""
    Changed.word = "old"
    run = drive(well, Changed)
    record = told(caplog, "run.attention")
    assert record.reason == "history_mismatch"
    assert record.error == run.info().error_class is not None
    assert record.error_message
    assert "say" in record.error_message


def test_what_still_runs_at_the_end_is_named(well: Stepwell, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever stops a worker is told which runs keep it, of which class, and in which step."""
    Stuck.gate.clear()
    run: Run = Stuck.with_options(engine=well).start()
    worker = Worker(well, threads=1, grace=timedelta())
    worker.start()
    until("its body runs", lambda: any(lease.shown is not None for lease in well.leases.held()))
    until("it is the second", lambda: run.info().current_step == "wait")
    assert not worker.stop()
    record = told(caplog, "worker.overdue")
    assert record.levelno == logging.WARNING
    assert record.bodies == f"Stuck {run.id} at wait"
    assert record.run_ids == [str(run.id)]
    Stuck.gate.set()
    assert worker.stop(timedelta(seconds=10))
