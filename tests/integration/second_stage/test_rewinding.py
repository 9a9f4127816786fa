"""``resume(from_step=)``: a person has steps run again, or left out, and the history tells."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    InvalidTransition,
    Retry,
    Run,
    RunError,
    Signal,
    Stepwell,
    Workflow,
    removed_step,
    resumable_step,
    step,
)
from stepwell.states import RunState
from tests.integration.second_stage.warehouse import Line, Warehouse
from tests.support.driving import Driver

HOUR = timedelta(hours=1)
DO: dict[str, Callable[[Any], Any]] = {}


class Order(Workflow):
    """Four steps, each of which notes its key."""

    workflow_name = "rewinding.Order"

    @step
    def check(self) -> None:
        self.note("check")

    @step(awaits=Signal("paid"))
    def pay(self, payment: Any) -> None:
        self.note("pay", payment)

    weigh = removed_step("weigh")

    @resumable_step(max_iterations=2)
    def pack(self) -> None:
        for item in self.cursor.iterate(range(3)):
            self.note(f"pack {item}")

    @step(on_exception=Retry(ConnectionError, attempts=2, wait=timedelta()))
    def ship(self) -> None:
        self.note("ship")
        DO.get("ship", lambda self: None)(self)

    def note(self, what: str, more: Any = "") -> None:
        notes.append((what, self.idempotency_key.removeprefix(str(self.run_id)), more))
        self.session.add(Line(text=f"{what} {next(numbers)}"))


notes: list[Any] = []
numbers = itertools.count()


@pytest.fixture(autouse=True)
def _nothing_to_do() -> None:
    DO.clear()
    notes.clear()


@pytest.fixture
def failed(driver: Driver) -> Run:
    """A run that has failed at its last step."""

    def fail(self: Any) -> None:
        raise ValueError("no van")

    DO["ship"] = fail
    run = Order.start()
    run.signal("paid", "first")
    driver.drain()
    assert run.state is RunState.FAILED
    assert [note[0] for note in notes] == ["check", "pay", "pack 0", "pack 1", "pack 2", "ship"]
    notes.clear()
    DO.clear()
    return run


def names(run: Run, *, counting: bool) -> list[tuple[int, str, str | None]]:
    return [
        (row.position, row.name, row.outcome)
        for row in run.steps
        if (row.superseded_at is None) is counting and row.kind != "signal"
    ]


def test_a_rewind_runs_the_steps_again(driver: Driver, failed: Run) -> None:
    """From the one that was named; what is recorded of them stays in the history and answers nothing."""
    assert failed.resume(from_step="pack", by="Ada") == "done"
    assert failed.current_step == "pack"
    driver.drain()

    assert failed.state is RunState.COMPLETED
    assert [note[0] for note in notes] == ["pack 0", "pack 1", "pack 2", "ship"]
    assert names(failed, counting=False) == [
        (4, "pack", "continued"),
        (5, "pack", "success"),
        (6, "ship", "failed"),
    ]
    assert names(failed, counting=True) == [
        (1, "check", "success"),
        (3, "pay", "success"),
        (7, "resume", "success"),
        (8, "pack", "continued"),
        (9, "pack", "success"),
        (10, "ship", "success"),
    ]
    details = failed.steps[6].details
    assert details == {"by": "Ada", "from": "failed", "from_step": "pack", "new_keys": False}


def test_the_step_that_failed_may_be_named(driver: Driver, failed: Run) -> None:
    """A rewind to where the run stands is a resume."""
    failed.resume(from_step="ship")
    driver.drain()

    assert [note[0] for note in notes] == ["ship"]


def test_a_step_ahead_may_be_named(driver: Driver, failed: Run) -> None:
    """What lies between is left out, and leaves no row open."""
    failed.resume(from_step="check")
    driver.drain()
    assert failed.state is RunState.AWAITING
    failed.pause()
    notes.clear()
    failed.resume(from_step="ship")
    driver.drain()

    assert failed.state is RunState.COMPLETED
    assert [note[0] for note in notes] == ["ship"]
    assert not any(row.outcome is None for row in failed.steps)


def test_a_rewound_step_waits_for_a_new_signal(driver: Driver, failed: Run) -> None:
    """The one that it has read answers nothing any more."""
    failed.resume(from_step="pay")
    driver.drain()
    assert failed.state is RunState.AWAITING
    failed.signal("paid", "second")
    driver.drain()

    assert failed.state is RunState.COMPLETED
    assert notes[0][::2] == ("pay", "second")


def test_keys_stay_unless_new_ones_are_wanted(driver: Driver, failed: Run) -> None:
    """A service that charges once per key does not charge again; with ``new_keys=True`` it does, from there on."""
    DO["ship"] = lambda self: self.pause()
    seen: list[dict[str, str]] = []

    def rewind(step: str, **options: Any) -> None:
        notes.clear()
        failed.resume(from_step=step, **options)
        driver.drain()
        seen.append({note[0]: note[1] for note in notes})

    rewind("pack")
    rewind("ship", new_keys=True)
    rewind("pack")
    rewind("pack", new_keys=True)
    rewind("pack")

    assert [each.get("pack 0") for each in seen] == [":pack", None, ":pack", ":pack:2", ":pack:2"]
    assert [each["ship"] for each in seen] == [":ship", ":ship:2", ":ship:2", ":ship:3", ":ship:3"]


def test_attempts_are_counted_anew(driver: Driver, failed: Run) -> None:
    """Also those of the steps that run again."""

    def fail(self: Any) -> None:
        raise ConnectionError

    DO["ship"] = fail
    failed.resume(from_step="ship")
    driver.drain()

    assert [row.attempt for row in failed.steps if row.name == "ship" and row.superseded_at is None] == [1, 2]


def test_a_cursor_is_forgotten(driver: Driver, house: Warehouse) -> None:
    """A resumable step that runs again begins at its beginning."""
    run = Order.start()
    run.signal("paid")
    driver.drain()
    assert run.state is RunState.COMPLETED

    class Walk(Workflow):
        workflow_name = "rewinding.Walk"

        @resumable_step
        def walk(self) -> None:
            for item in self.cursor.iterate(range(4)):
                notes.append(item)
                if item == 2 and not self.cursor.resumed and len(notes) < 50:
                    notes.extend([None] * 50)
                    self.pause()

    notes.clear()
    walk = Walk.start()
    driver.drain()
    assert walk.steps[0].cursor == 2
    notes.clear()
    walk.resume(from_step="walk")
    driver.drain()
    assert notes[:3] == [0, 1, 2]


@pytest.mark.parametrize("state", ["awaiting", "completed", "canceled"])
def test_only_a_run_that_has_stopped_is_rewound(driver: Driver, state: str) -> None:
    """One that is live goes its way, and one that is over is over."""
    run = Order.start()
    if state == "completed":
        run.signal("paid")
    driver.drain()
    if state == "canceled":
        run.cancel()
    assert run.state == state
    with pytest.raises(InvalidTransition, match=r"cannot resume"):
        run.resume(from_step="check")

    assert len(run.steps) == len([row for row in run.steps if row.superseded_at is None])


@pytest.mark.parametrize("name", ["nowhere", "weigh", ""])
def test_a_step_that_is_not_there_is_refused(failed: Run, name: str) -> None:
    """A mistyped name changes nothing: neither does that of a step that is gone."""
    with pytest.raises(
        RunError, match=rf"has no step '{name}' to go on from; it has check, pay, pack, ship\."
    ):
        failed.resume(from_step=name)

    assert failed.state is RunState.FAILED


def test_new_keys_go_with_a_step(failed: Run) -> None:
    """They are made for the steps that run again."""
    with pytest.raises(RunError, match="say from which"):
        failed.resume(new_keys=True)


def test_a_process_without_the_class_believes_the_name(
    driver: Driver, failed: Run, well: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that only has the database may rewind too."""
    from stepwell.errors import UnknownWorkflow

    def unknown(name: str) -> Any:
        raise UnknownWorkflow(name)

    with monkeypatch.context() as patch:
        patch.setattr("stepwell.engine.run.find_workflow", unknown)
        failed.resume(from_step="ship")
    driver.drain()

    assert failed.state is RunState.COMPLETED


def test_what_was_written_stays(driver: Driver, failed: Run, house: Warehouse) -> None:
    """A rewind undoes nothing: the steps that run again write again."""
    before = house.count()
    failed.resume(from_step="pack")
    driver.drain()

    assert house.count() == before + 4
