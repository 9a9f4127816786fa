"""The road of a declared workflow: from top to bottom, each step once, each recorded before the next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stepwell import RunError, Workflow, removed_step, step
from stepwell.definition.runtime import current
from stepwell.execution.linear import LinearDriver
from stepwell.states import ExecutionState, Kind, Outcome, RunState
from tests.unit.execution.memory import Crash, MemoryRun, crash_at


@dataclass(frozen=True)
class Parcel:
    """Something that a step may answer."""

    label: str
    weight: int


@dataclass
class Box:
    """An argument that can be changed in place."""

    contents: list[str]


def test_steps_run_in_their_order_in_one_activation() -> None:
    """Steps that are due at once follow one another in one activation, and then the run is completed."""
    seen = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            seen.append("pack")

        @step
        def ship(self) -> None:
            seen.append("ship")

        @step
        def bill(self) -> None:
            seen.append("bill")

    run = MemoryRun(Order)
    ended = run.activate()

    assert seen == ["pack", "ship", "bill"]
    assert run.is_over_as(RunState.COMPLETED)
    assert ended is not None
    assert ended.steps == 3
    assert run.story == ["pack success", "ship success", "bill success"]
    assert [row.position for row in run.journal] == [1, 2, 3]
    assert run.writes == 4


def test_the_current_step_moves_with_the_journal_entry() -> None:
    """The very write that records a step makes the run stand at the next one, and past the last at none."""
    stands = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None: ...

        @step
        def ship(self) -> None: ...

    run = MemoryRun(Order)
    run.at_boundary = lambda moment: (
        moment == "with" or stands.append((moment, len(run.rows), run.current_step))
    )
    run.activate()

    assert stands == [
        ("before", 0, "pack"),
        ("after", 1, "ship"),
        ("before", 1, "ship"),
        ("after", 2, None),
        ("before", 2, None),
        ("after", 2, None),
    ]


def test_what_a_step_returns_is_recorded_encoded() -> None:
    """A result of any storable type can be read back from the journal as the value that it was."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> Parcel:
            return Parcel("a\x00b\ud800", 2**70)

        @step
        def ship(self) -> tuple[int, ...]:
            return (1, 2)

    run = MemoryRun(Order).drive()

    results = [run.codec.loads(row.result or "", what="result") for row in run.journal]
    assert results == [Parcel("a\x00b\ud800", 2**70), (1, 2)]


def test_a_finished_step_is_not_run_again_after_a_crash() -> None:
    """A worker that dies after a step's write leaves nothing of that step to be done."""
    seen: list[str] = []
    run = MemoryRun(two_steps(seen))
    crash_at(run, 0, "after")
    run.drive()

    assert seen == ["pack", "ship"]
    assert run.is_over_as(RunState.COMPLETED)


def test_a_step_whose_write_did_not_come_is_run_again() -> None:
    """A worker that dies before a step's write leaves the step to be done again."""
    seen: list[str] = []
    run = MemoryRun(two_steps(seen))
    crash_at(run, 0, "before")
    run.drive()

    assert seen == ["pack", "pack", "ship"]
    assert [row.kind for row in run.journal] == [Kind.RECOVERY, Kind.STEP, Kind.STEP]


def test_an_instance_lives_for_one_attempt() -> None:
    """What a step leaves on ``self`` is not there in the next one, as it would not be after a restart."""
    found = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            self.parcel = "made here"

        @step
        def ship(self) -> None:
            found.append(getattr(self, "parcel", None))

    MemoryRun(Order).drive()

    assert found == [None]


def test_what_a_step_does_to_the_arguments_is_not_seen_by_the_next() -> None:
    """A step that changes an argument in place changes its own copy, as it would after a restart."""
    found = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            self.args["items"].append("extra")
            self.args["address"]["city"] = "Ulm"
            self.args["tags"].add("urgent")
            self.args["box"].contents.append("extra")

        @step
        def ship(self) -> None:
            found.append(dict(self.args))

    args = {"items": ["lamp"], "address": {}, "tags": {"new"}, "box": Box(["lamp"])}
    MemoryRun(Order, args=args).drive()

    assert found == [{"items": ["lamp"], "address": {}, "tags": {"new"}, "box": Box(["lamp"])}]


def test_arguments_are_read_only() -> None:
    """``self.args`` is the arguments of the start, and nothing to write to."""
    refused = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            try:
                self.args["n"] = 2  # type: ignore[index]
            except TypeError as error:
                refused.append(str(error))

    MemoryRun(Order, args={"n": 1}).drive()

    assert len(refused) == 1


def test_a_run_parked_on_a_removed_step_goes_on_with_the_next() -> None:
    """A gravestone is noted as skipped where the run stands on it, and passed over where it does not."""
    seen = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            seen.append("pack")

        removed_step("insure")

        @step
        def ship(self) -> None:
            seen.append("ship")

    run = MemoryRun(Order).drive()
    assert run.story == ["pack success", "ship success"]

    stranded = MemoryRun(Order)
    stranded.current_step = "insure"
    stranded.drive()
    assert stranded.story == ["insure skipped", "ship success"]
    assert stranded.is_over_as(RunState.COMPLETED)


def test_a_scheduled_step_that_was_removed_ends_its_row() -> None:
    """The row that announced a step is finished when its gravestone is met: nothing stays scheduled."""

    class Before(Workflow[None]):
        workflow_name = "Order"

        @step(wait=timedelta(days=1))
        def insure(self) -> None: ...

        @step
        def ship(self) -> None: ...

    run = MemoryRun(Before)
    run.activate()

    class After(Workflow[None]):
        workflow_name = "Order"
        removed_step("insure")

        @step
        def ship(self) -> None: ...

    run.workflow = After
    run.drive()

    assert run.story == ["insure skipped", "ship success"]
    assert [row.state for row in run.journal] == [ExecutionState.SKIPPED, ExecutionState.COMPLETED]


def test_a_run_on_the_gravestone_of_its_last_step_is_completed() -> None:
    """There is nothing after it: the run has done its work."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None: ...

        removed_step("ship")

    run = MemoryRun(Order)
    run.current_step = "ship"
    assert run.drive().is_over_as(RunState.COMPLETED)


def test_an_unknown_step_is_never_taken_for_the_end() -> None:
    """A driver on a step that its plan never had raises, and writes nothing."""
    run = MemoryRun(two_steps([]))
    run.current_step = "nowhere"

    with pytest.raises(LookupError, match="nowhere"):
        run.activate()
    assert run.writes == 0


def test_a_step_called_from_a_step_is_refused() -> None:
    """A step is durable as a whole: calling another one in it says to move the shared code."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            self.ship()

        @step
        def ship(self) -> None: ...

    run = MemoryRun(Order).drive()

    assert run.state is RunState.FAILED
    assert "step 'ship' was called from inside step 'pack'" in str(run.error_message)
    assert "ordinary method" in str(run.error_message)


def test_the_overridden_step_is_a_part_of_the_override() -> None:
    """``super().pack()`` runs plainly: it is no step of the subclass."""
    seen = []

    class Base(Workflow[None]):
        @step
        def pack(self) -> str:
            seen.append("base")
            return "packed"

    class Special(Base):
        @step
        def pack(self) -> str:
            return super().pack() + " with care"

    run = MemoryRun(Special).drive()

    assert seen == ["base"]
    assert run.journal[0].result == '"packed with care"'


def test_identity_of_an_attempt() -> None:
    """A step knows its run and has one idempotency key for all its attempts; other steps have others."""
    keys: list[Any] = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            keys.append((self.run_id, self.idempotency_key))
            if len(keys) < 3:
                self.retry()

        @step
        def ship(self) -> None:
            keys.append((self.run_id, self.idempotency_key))

    run = MemoryRun(Order).drive()

    assert len(set(keys[:3])) == 1
    assert {run_id for run_id, _ in keys} == {run.id}
    assert keys[3][1] != keys[0][1]


def test_the_logger_of_a_step_names_it(caplog: pytest.LogCaptureFixture) -> None:
    """What a step logs carries run, workflow and step."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            self.logger.warning("packing")

    run = MemoryRun(Order).drive()

    record: Any = caplog.records[0]
    assert (record.run_id, record.workflow, record.step) == (str(run.id), "Order", "pack")


def test_nothing_is_current_after_an_activation() -> None:
    """An activation leaves its thread as it found it, whatever the steps did."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            raise ValueError

    MemoryRun(Order).drive()

    assert current.get() is None


def test_session_and_hero_belong_into_steps() -> None:
    """Outside an attempt a runtime has neither: what it answered there would not be journaled."""
    kept: list[Any] = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            kept.append(self)

    MemoryRun(Order).drive()

    with pytest.raises(RunError, match="inside a step only"):
        kept[0].session
    with pytest.raises(RunError, match="inside a step only"):
        kept[0].hero


def test_progress_is_told_to_the_journal() -> None:
    """``self.progress`` hands on how far the body has come."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            self.progress(3, 10)

    run = MemoryRun(Order).drive()

    assert run.progress == (3, 10)


def test_a_running_body_is_shown_as_the_row_that_its_end_takes() -> None:
    """What a heartbeat makes visible has the position, name and attempt of the row that finishes it."""
    shown: list[Any] = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            shown.append(run.shown)
            if len(shown) == 1:
                self.retry()

    run = MemoryRun(Order)
    run.drive()

    assert [(row.position, row.attempt, row.state) for row in shown] == [
        (1, 1, ExecutionState.IN_PROGRESS),
        (2, 2, ExecutionState.IN_PROGRESS),
    ]
    assert run.shown is None


def test_a_body_that_was_visible_when_its_worker_died_is_run_again() -> None:
    """The visible row becomes ``lost``; the next attempt gets a row of its own, and no attempt is counted."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            if not run.rows:
                assert run.shown is not None
                run.rows[1] = run.shown  # as a heartbeat writes it
                crash_at(run, 0, "before")

    run = MemoryRun(Order)
    run.drive()

    assert run.story == ["pack lost", "pack success"]
    assert [row.attempt for row in run.journal] == [1, 1]


def test_a_lost_lease_ends_the_activation_without_a_word() -> None:
    """Once another has the run, this activation writes nothing more and runs no further body."""
    seen = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            seen.append("pack")
            run.token = None

        @step
        def ship(self) -> None:
            seen.append("ship")

    run = MemoryRun(Order)

    assert run.activate() is None
    assert seen == ["pack"]
    assert run.rows == {}


def test_the_lease_is_asked_for_before_each_body() -> None:
    """A lease that is known to be lost keeps the next body from beginning."""
    seen = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            seen.append("pack")

        @step
        def ship(self) -> None:
            seen.append("ship")

    run = MemoryRun(Order)

    def lose(moment: str) -> None:
        if moment == "after":
            run.token = None

    run.at_boundary = lose

    assert run.activate() is None
    assert seen == ["pack"]
    assert run.story == ["pack success"]


def test_a_driver_has_one_public_verb() -> None:
    """What a worker needs of a driver is ``drive``."""
    assert [name for name in vars(LinearDriver) if not name.startswith("_")] == ["drive"]


def two_steps(seen: list[str]) -> type[Workflow[None]]:
    """A workflow of two steps that say when they run."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            seen.append("pack")

        @step
        def ship(self) -> None:
            seen.append("ship")

    return Order


def test_the_worker_dies_between_the_last_step_and_the_end() -> None:
    """All steps are done and the run is not yet over: the next worker completes it and runs nothing."""
    seen: list[str] = []
    run = MemoryRun(two_steps(seen))
    crash_at(run, 2, "before")

    with pytest.raises(Crash):
        run.activate()
    run.lose_worker()
    run.drive()

    assert seen == ["pack", "ship"]
    assert run.is_over_as(RunState.COMPLETED)
    assert run.journal[-1].outcome == Outcome.LOST
