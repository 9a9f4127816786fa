"""Generator steps: each ``yield`` is a checkpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, StepTimedOut, Workflow, resumable_step
from stepwell.states import ExecutionState, RunState
from tests.unit.execution.memory import MemoryRun
from tests.unit.execution.test_cursors import chain

AT_ONCE = timedelta()


def test_what_is_yielded_is_the_cursor() -> None:
    """It is committed with what was written before the yield, and what is returned is the result."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> Iterator[int]:
            for item in range(self.cursor.value or 0, 3):
                self.session.append(item)
                yield item + 1
                assert run.ledger[-1] == item
                assert run.row("walk").cursor == str(item + 1)
            return "all of them"

    run = MemoryRun(Steps)
    run.drive()

    assert run.ledger == [0, 1, 2]
    assert run.row("walk").result == '"all of them"'
    assert chain(run, "walk") == [(1, "success", "3", None)]


@pytest.mark.parametrize("every", [1, 2, 100])
def test_an_interrupted_generator_begins_at_its_top(every: int) -> None:
    """It reads from the cursor where it stopped; the number of items between commits changes nothing."""
    begun: list[Any] = []

    class Steps(Workflow[None]):
        @resumable_step(max_iterations=2, checkpoint_every=every)
        def walk(self) -> Iterator[int]:
            begun.append(self.cursor.value)
            for item in range(self.cursor.value or 0, 5):
                self.session.append(item)
                yield item + 1

    run = MemoryRun(Steps).drive()

    assert begun == [None, 2, 4]
    assert run.ledger == [0, 1, 2, 3, 4]
    assert [row[1:3] for row in chain(run, "walk")] == [
        ("continued", "2"),
        ("continued", "4"),
        ("success", "5"),
    ]


def test_what_a_closed_generator_writes_is_undone() -> None:
    """Its ``finally`` runs when it is stopped at a yield, and nothing of it is stored."""
    closed: list[Any] = []

    class Steps(Workflow[None]):
        @resumable_step(max_iterations=1)
        def walk(self) -> Iterator[int]:
            try:
                for item in range(self.cursor.value or 0, 2):
                    self.session.append(item)
                    self.context["last"] = item
                    yield item + 1
            finally:
                closed.append(self.cursor.value)
                self.session.append("closed")
                self.context["last"] = "closed"
                if self.cursor.value == 2:
                    self.session.remove("closed")
                    del self.context["last"]

    run = MemoryRun(Steps)
    run.activate()
    run.drive()

    assert closed == [1, 2, 2]
    assert run.ledger == [0, 1]
    assert run.state is RunState.COMPLETED


def test_a_generator_that_raises_while_it_is_closed_stays_stopped(caplog: pytest.LogCaptureFixture) -> None:
    """The checkpoint is durable already: the error is told in the log and changes nothing."""

    class Steps(Workflow[None]):
        @resumable_step(max_iterations=1)
        def walk(self) -> Iterator[int]:
            start = self.cursor.value or 0
            try:
                if start < 2:
                    yield start + 1
            finally:
                if start < 1:
                    raise ValueError("on the way out")

    with caplog.at_level(logging.WARNING):
        run = MemoryRun(Steps).drive()

    assert run.state is RunState.COMPLETED
    assert [row[1] for row in chain(run, "walk")] == ["continued", "continued", "success"]
    assert "a step raised while it was stopped at a yield" in caplog.text


def test_a_generator_that_yields_while_it_is_closed_stays_stopped() -> None:
    """What Python makes of that is an error too."""

    class Steps(Workflow[None]):
        @resumable_step(max_iterations=1)
        def walk(self) -> Iterator[int]:
            try:
                if not self.cursor.resumed:
                    yield 1
            finally:
                if not self.cursor.resumed:
                    yield 2

    assert MemoryRun(Steps).drive().row("walk").cursor == "1"


def test_an_error_undoes_what_came_after_the_last_yield() -> None:
    """The retry begins behind it."""
    failures = iter([ConnectionError()])

    class Steps(Workflow[None]):
        @resumable_step(on_exception=Retry(wait=AT_ONCE))
        def walk(self) -> Iterator[int]:
            for item in range(self.cursor.value or 0, 3):
                self.session.append(item)
                if item == 1:
                    for failure in failures:
                        raise failure
                yield item + 1

    run = MemoryRun(Steps).drive()

    assert run.ledger == [0, 1, 2]
    assert [row[1:3] for row in chain(run, "walk")] == [("retried", "1"), ("success", "3")]


@pytest.mark.parametrize("verb", ["skip", "finish", "cancel", "suspend", "pause"])
def test_a_generator_may_say_verbs(verb: str) -> None:
    """They mean what they mean in other steps; with ``checkpoint_every`` too, the cursor goes with the writes."""

    class Steps(Workflow[None]):
        @resumable_step(checkpoint_every=100)
        def walk(self) -> Iterator[int]:
            for item in range(self.cursor.value or 0, 3):
                self.session.append(item)
                yield item + 1
                if item == 1:
                    getattr(self, verb)()

    run = MemoryRun(Steps)
    run.activate()

    first = chain(run, "walk")[0]
    assert run.ledger[:2] == ([] if verb == "pause" else [0, 1])
    assert first[2] == (None if verb == "pause" else "2")
    if verb == "suspend":
        assert run.drive().ledger == [0, 1, 2]


def test_a_lost_lease_closes_the_generator() -> None:
    """At the next yield; it is not asked for another item, and what its way out writes is nobody's."""
    seen: list[Any] = []

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> Iterator[int]:
            try:
                for item in range(4):
                    seen.append(item)
                    self.session.append(item)
                    if item == 1:
                        run.token = None
                    yield item + 1
            finally:
                self.session.append("closed")

    run = MemoryRun(Steps)
    assert run.activate() is None

    assert seen == [0, 1]
    assert run.ledger == [0]


def test_a_value_that_cannot_be_stored_is_an_error_at_its_yield() -> None:
    """The items before it are kept."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> Iterator[Any]:
            self.session.append(1)
            yield 1
            yield object()

    run = MemoryRun(Steps).drive()

    assert (run.state, run.ledger) == (RunState.FAILED, [1])
    assert run.error_message is not None
    assert "cursor of step 'walk' cannot be stored" in run.error_message


def test_the_time_of_a_generator_is_that_of_its_bodies_parts() -> None:
    """``timeout=`` is counted over all yields; what a checkpoint takes is not the body's time."""

    class Steps(Workflow[None]):
        @resumable_step(
            timeout=timedelta(hours=2), on_exception=Retry(StepTimedOut, attempts=2, wait=AT_ONCE)
        )
        def walk(self) -> Iterator[int]:
            for item in range(self.cursor.value or 0, 4):
                run.clock.travel(timedelta(hours=1))
                yield item + 1

    run = MemoryRun(Steps)
    run.drive()

    assert [row[1:3] for row in chain(run, "walk")] == [("timed_out", "2"), ("timed_out", "4")]
    assert run.error_message == "the body was ended at a yield (timeout 2:00:00)"


# -- async ---------------------------------------------------------------------------------------------------------


def test_async_generators_alike() -> None:
    """The body runs on the loop, each checkpoint on the step's own thread."""

    class Steps(Workflow[None]):
        @resumable_step(max_iterations=2)
        async def walk(self) -> AsyncIterator[int]:
            for item in range(self.cursor.value or 0, 5):
                await asyncio.sleep(0)
                await self.in_session(lambda session, item=item: session.append(item))
                yield item + 1

    run = MemoryRun(Steps).drive()

    assert run.ledger == [0, 1, 2, 3, 4]
    assert [row[1:3] for row in chain(run, "walk")] == [
        ("continued", "2"),
        ("continued", "4"),
        ("success", "5"),
    ]
    assert run.row("walk").result == "null"


def test_a_closed_async_generator_leaves_nothing() -> None:
    """Its ``finally`` runs on the loop when it is stopped, and what it writes is undone."""
    closed: list[Any] = []

    class Steps(Workflow[None]):
        @resumable_step(max_iterations=1)
        async def walk(self) -> AsyncIterator[int]:
            if self.cursor.resumed:
                return
            try:
                yield 1
            finally:
                closed.append(self.cursor.value)
                await self.in_session(lambda session: session.append("closed"))

    run = MemoryRun(Steps).drive()

    assert closed == [1]
    assert run.ledger == []
    assert run.state is RunState.COMPLETED


def test_an_async_generator_is_ended_by_its_timeout() -> None:
    """In the middle of an item; the items before it are kept."""

    class Steps(Workflow[None]):
        @resumable_step(timeout=timedelta(seconds=0.05))
        async def walk(self) -> AsyncIterator[int]:
            await self.in_session(lambda session: session.append(1))
            yield 1
            await self.in_session(lambda session: session.append(2))
            await asyncio.sleep(60)
            yield 2

    run = MemoryRun(Steps).drive()

    assert run.state is RunState.FAILED
    assert run.error_class == "stepwell.errors.StepTimedOut"
    assert run.ledger == [1]
    assert run.row("walk").state is ExecutionState.FAILED
