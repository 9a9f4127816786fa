"""Where and when steps run: queues, priorities, claims of their own, time slices, workers that stop."""

from __future__ import annotations

from datetime import timedelta

from stepwell import Workflow, step
from stepwell.execution.suspension import Interrupted
from stepwell.states import Reason, RunState
from tests.unit.execution.memory import MemoryRun


class Video(Workflow[None]):
    """One of its steps belongs elsewhere."""

    queue = "light"
    priority = 50

    @step
    def upload(self) -> None: ...

    @step(queue="heavy", priority=0)
    def encode(self) -> None: ...

    @step
    def publish(self) -> None: ...


def test_a_step_runs_in_its_own_queue_and_at_its_own_priority() -> None:
    """The run is handed over before the step and handed back after it; each step is done once."""
    run = MemoryRun(Video)
    ended = run.activate()

    assert run.story == ["upload success"]
    assert ended is not None
    assert (ended.state, ended.ready_in) == (RunState.READY, "heavy")
    run.drive()
    assert run.handed_to == [("heavy", 0), ("light", 50)]
    assert run.story == ["upload success", "encode success", "publish success"]


def test_the_start_says_the_queue_and_priority_of_the_other_steps() -> None:
    """What was given to ``with_options`` holds for steps that say nothing of their own, zero too."""
    run = MemoryRun(Video, options={"queue": "urgent", "priority": 0})
    run.priority = 0
    run.drive()

    assert run.handed_to == [("heavy", 0), ("urgent", 0)]


def test_a_first_step_of_another_queue_is_handed_over_at_once() -> None:
    """Nothing of it runs where it does not belong."""

    class Heavy(Workflow[None]):
        @step(queue="heavy")
        def encode(self) -> None: ...

    run = MemoryRun(Heavy)
    run.activate()

    assert (run.state, run.queue, run.story) == (RunState.READY, "heavy", [])


def test_a_step_that_waits_is_handed_over_when_it_is_due() -> None:
    """While it waits it is nobody's work; the queue changes when there is something to do."""

    class Later(Workflow[None]):
        @step(wait=timedelta(days=1), queue="heavy")
        def encode(self) -> None: ...

    run = MemoryRun(Later)
    run.activate()
    assert (run.state, run.queue) == (RunState.WAITING, "default")

    assert run.drive().handed_to == [("heavy", 100)]
    assert run.story == ["encode success"]


def test_an_isolated_step_gets_a_claim_of_its_own() -> None:
    """It is never run right after another step; the one after it may follow at once."""
    activations = []

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            activations.append(run.activations)

        @step(isolated=True)
        def weigh(self) -> None:
            activations.append(run.activations)

        @step
        def ship(self) -> None:
            activations.append(run.activations)

    run = MemoryRun(Order)
    run.drive()

    assert activations == [1, 2, 2]


def test_an_isolated_first_step_needs_no_second_claim() -> None:
    """Its claim is fresh already."""

    class Order(Workflow[None]):
        @step(isolated=True)
        def weigh(self) -> None: ...

    assert MemoryRun(Order).drive().activations == 1


def test_a_used_up_time_slice_ends_the_activation_at_a_boundary() -> None:
    """When others should have the thread, the run goes back after its step; it always gets one."""
    run = MemoryRun(Video)
    run.should_yield = lambda: True
    run.drive()

    assert run.story == ["upload success", "encode success", "publish success"]
    assert run.activations == 3


def test_a_worker_that_drains_begins_nothing() -> None:
    """A run that was claimed and not begun goes back at once, and says why."""
    run = MemoryRun(Video)
    run.is_draining = True
    ended = run.activate()

    assert run.is_over_as(RunState.READY, Reason.INTERRUPTED)
    assert run.story == []
    assert ended is not None
    assert ended.ready_in == "light"


def test_a_worker_that_drains_ends_at_the_next_boundary() -> None:
    """The step that runs is finished and journaled; the next one is somebody else's."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            run.is_draining = True
            run.should_yield = lambda: True

        @step
        def ship(self) -> None: ...

    run = MemoryRun(Order)
    run.activate()

    assert (run.state, run.story) == (RunState.READY, ["pack success"])


def test_an_interrupted_body_counts_as_no_attempt() -> None:
    """A body that the worker stopped leaves nothing of what it wrote; then it runs from its top."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            self.context["begun"] = self.context.get("begun", 0) + 1
            self.session.append("packed")
            if run.activations == 1:
                raise Interrupted

    run = MemoryRun(Order)
    run.activate()
    assert run.is_over_as(RunState.READY, Reason.INTERRUPTED)
    assert (run.rows, run.memory, run.ledger) == ({}, {}, [])

    run.drive()
    assert [(row.attempt, row.outcome) for row in run.journal] == [(1, "success")]
    assert (run.memory, run.ledger) == ({"begun": 1}, ["packed"])


def test_a_step_that_retries_at_once_yields_too() -> None:
    """Retrying without a wait does not keep a thread from others for ever."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            if run.activations < 3:
                self.retry()

    run = MemoryRun(Order)
    run.should_yield = lambda: True
    run.drive()

    assert run.activations == 3
    assert run.story == ["pack retried", "pack retried", "pack success"]
