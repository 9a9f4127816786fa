"""A failed assertion says what is the case, and shows how it came to that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import Workflow, step
from stepwell.testing import Workbench
from tests.integration.testing.examples import Charge, Month, Review, open_ledger


@pytest.fixture
def paid(stepwell: Workbench) -> Any:
    """A run whose second step needed three attempts."""
    open_ledger(stepwell)
    Charge.calls = []

    def third_time_lucky(name: str) -> None:
        if len(Charge.calls) < 3:
            raise ConnectionError(f"no line\nfor {name}")

    Charge.charge = third_time_lucky
    run = Charge.start(name="Ada")
    stepwell.run_to_end(run)
    return run


def message_of(assertion: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assertion(*arguments, **named)
    return str(caught.value)


def test_what_is_the_case_passes(paid: Any, stepwell: Workbench) -> None:
    """True statements raise nothing; a step's entry is answered, the latest one."""
    stepwell.assert_state(paid, "completed")
    stepwell.assert_steps(paid, "prepare", "pay", "thank")
    assert stepwell.assert_step(paid, "pay").attempt == 3
    assert stepwell.assert_step(paid, "pay", outcome="retried").attempt == 2
    assert stepwell.assert_step(paid, "pay", outcome="retried", attempt=1).attempt == 1


def test_a_wrong_state_is_told_with_the_history(paid: Any, stepwell: Workbench) -> None:
    """The message has both states and the timeline."""
    message = message_of(stepwell.assert_state, paid, "failed")
    assert message.startswith("the run is completed, not failed.\n")
    assert message.endswith(stepwell.timeline(paid))


def test_a_wrong_reason_is_told(stepwell: Workbench) -> None:
    """A state alone may not be enough."""
    run = Month.start()
    stepwell.drain()
    stepwell.assert_state(run, "waiting", reason="timer")
    message = message_of(stepwell.assert_state, run, "waiting", reason="retry")
    assert message.startswith("the run is waiting for the reason 'timer', not 'retry'.\n")


def test_wrong_steps_are_told(paid: Any, stepwell: Workbench) -> None:
    """Missing ones, too many, and another order are all wrong."""
    for names in [("prepare", "pay"), ("prepare", "thank", "pay"), ("prepare", "pay", "thank", "bye"), ()]:
        message = message_of(stepwell.assert_steps, paid, *names)
        wanted = ", ".join(names) or "nothing"
        assert message.startswith(f"prepare, pay, thank succeeded, not {wanted}.\n")


def test_a_step_that_ended_otherwise_is_told(paid: Any, stepwell: Workbench) -> None:
    """The message has all outcomes that the step has had."""
    message = message_of(stepwell.assert_step, paid, "pay", outcome="skipped")
    assert message.startswith(
        "no attempt at step 'pay' has ended with skipped: it has retried, retried, success.\n"
    )
    message = message_of(stepwell.assert_step, paid, "pay", attempt=2)
    assert message.startswith("attempt 2 at step 'pay' has not ended with success: ")
    message = message_of(stepwell.assert_step, paid, "refund")
    assert message.startswith("no attempt at step 'refund' has ended with success: it has nothing.\n")


def test_unknown_words_are_refused(paid: Any, stepwell: Workbench) -> None:
    """A misspelt state or outcome is an error of the test, not a failed assertion."""
    with pytest.raises(ValueError, match="done"):
        stepwell.assert_state(paid, "done")
    with pytest.raises(ValueError, match="good"):
        stepwell.assert_step(paid, "pay", outcome="good")


def test_the_timeline_is_a_line_for_each_entry() -> None:
    """How long after the start, what, how it ended; waits and errors included, each on one line."""
    with Workbench(start=datetime(2030, 6, 1, 12, tzinfo=UTC)) as bench:
        open_ledger(bench)
        Charge.calls = []

        def never(name: str) -> None:
            raise ConnectionError(f"no line\nfor {name}")

        Charge.charge = never
        run = Charge.start(name="Ada")
        bench.run_next_step(run)
        bench.run_next_step(run)
        assert bench.timeline(run).splitlines() == [
            f"Run {run.id} of testing.Charge waits at step 'pay' until 2030-06-01T12:01:00+00:00 "
            "(the delay before a retry); run.reschedule() moves it. The step has failed once, with "
            "ConnectionError: no line",
            "for Ada",
            "    +0d 00:00:00  prepare  success",
            "    +0d 00:00:00  pay      retried  ConnectionError: no line for Ada",
            "                  pay      scheduled for +0d 00:01:00  attempt 2",
        ]


def test_the_timeline_names_waits_for_signals(stepwell: Workbench) -> None:
    """An entry that is no step says what it is, and a run without history says that."""
    run = Review.start()
    assert stepwell.timeline(run).splitlines()[1:] == ["  (nothing has happened yet)"]
    stepwell.drain()
    stepwell.travel(timedelta(days=2, hours=3))
    run.signal("answer", "yes")
    stepwell.drain()
    assert stepwell.timeline(run).splitlines()[1:] == [
        "    +0d 00:00:00  ask                          success",
        "    +2d 03:00:00  note (signal answer)         success",
        "    +2d 03:00:00  note                         success",
        "                  note_second (signal second)  scheduled for +9d 03:00:00",
    ]


def test_the_timeline_tells_calls_of_run_apart(stepwell: Workbench) -> None:
    """By what their key names, and by their number; a tick by its place in the grid."""

    class Calls(Workflow):
        def run(self) -> None:
            for name in ("a", "b", "a"):
                self.work(name)
            for _ in range(2):
                self.sleep(timedelta(hours=1))
            self.repeat(self.tick, every=timedelta(hours=1), until=lambda: "ticked" in self.context)

        @step(key_by="name")
        def work(self, name: str) -> None: ...

        @step
        def tick(self) -> None:
            self.context["ticked"] = True

    run = Calls.start()
    assert stepwell.run_to_end(run) == "completed"
    assert [line[18:].split("  ")[0] for line in stepwell.timeline(run).splitlines()[1:]] == [
        'work["a"]',
        'work["b"]',
        'work["a"]#2',
        "sleep (timer)",
        "sleep#2 (timer)",
        "tick (tick 1)",
        "tick (tick 2)",
        "tick (repeat)",
    ]
