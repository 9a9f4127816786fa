"""What a step answers: recorded before anybody sees it, and refused where it cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from stepwell import Pause, Retry, Skip, Workflow, step
from stepwell.states import Reason, RunState
from tests.unit.execution.memory import MemoryRun


def answering(make: Callable[[], Any], **options: Any) -> type[Workflow[None]]:
    """A workflow whose first step answers what ``make`` makes."""

    class Order(Workflow[None]):
        @step(**options)
        def pack(self) -> Any:
            self.context["packed"] = True
            self.session.append("packed")
            return make()

        @step
        def ship(self) -> None: ...

    return Order


async def never() -> None:
    """A coroutine function that a sync step calls by mistake."""


def numbers() -> Any:
    """A generator."""
    yield 1


async def ticks() -> Any:
    """An asynchronous generator."""
    yield 1


class Loop:
    """Something that no codec knows."""


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "an object": Loop,
    "deep inside": lambda: {"lines": [1, {"price": Loop()}]},
    "naive": lambda: datetime(2026, 3, 1),
    "not a number": lambda: float("nan"),
    "coroutine": lambda: never(),
    "generator": lambda: numbers(),
    "async generator": lambda: ticks(),
    "function": lambda: never,
}


@pytest.mark.parametrize("what", UNSTORABLE)
def test_what_cannot_be_stored_fails_the_step(what: str) -> None:
    """The step's result is named, nothing that the step wrote is kept, and the run waits for a person."""
    run = MemoryRun(answering(UNSTORABLE[what])).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.story == ["pack failed"]
    assert "step 'pack'" in str(run.error_message)
    assert (run.memory, run.ledger) == ({}, [])


def test_the_message_has_the_path() -> None:
    """In a large value one is led to the place."""
    run = MemoryRun(answering(UNSTORABLE["deep inside"])).drive()
    assert "result['lines'][1]['price']" in str(run.error_message)


@pytest.mark.parametrize("what", ["coroutine", "generator"])
def test_a_coroutine_is_refused_in_words(what: str) -> None:
    """A sync step that calls an async function forgot to await it; the message says so and nothing leaks."""
    run = MemoryRun(answering(UNSTORABLE[what])).drive()

    assert f"returned a {what}" in str(run.error_message)
    assert "never run" in str(run.error_message)


@pytest.mark.parametrize("policy", [Retry(attempts=9, wait=timedelta()), Skip(), Pause(), Retry(TypeError)])
def test_what_cannot_be_stored_is_not_retried(policy: Any) -> None:
    """No policy absorbs it: the body is wrong, and running it again changes nothing."""
    calls = []

    def make() -> Any:
        calls.append(1)
        return Loop()

    run = MemoryRun(answering(make, on_exception=policy)).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert len(calls) == 1


def test_a_result_over_the_limit_fails_the_step() -> None:
    """The limit is in bytes of the encoded result; the message says how large it was."""
    fits = MemoryRun(answering(lambda: "x" * 98), result_limit=100).drive()
    assert fits.is_over_as(RunState.COMPLETED)

    run = MemoryRun(answering(lambda: "x" * 99), result_limit=100).drive()
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert "101 bytes" in str(run.error_message)


def test_an_async_step_is_awaited_and_its_result_recorded() -> None:
    """An ``async def`` step is a step like any other."""

    class Order(Workflow[None]):
        @step
        async def pack(self) -> int:
            await asyncio.sleep(0)
            self.context["packed"] = True
            return 3

    run = MemoryRun(Order).drive()

    assert run.journal[0].result == "3"
    assert run.memory == {"packed": True}


def test_an_error_of_an_async_step_is_an_error_of_the_step() -> None:
    """It goes through the policies, as that of a sync one does."""

    class Order(Workflow[None]):
        @step(on_exception=Retry(attempts=2, wait=timedelta()))
        async def pack(self) -> int:
            await asyncio.sleep(0)
            raise ConnectionError("gone")

    run = MemoryRun(Order).drive()

    assert run.story == ["pack retried", "pack failed"]
    assert run.error_class == "ConnectionError"


def test_a_step_that_answers_nothing_has_null_as_its_result() -> None:
    """None is a result too."""
    run = MemoryRun(answering(lambda: None)).drive()
    assert [row.result for row in run.journal] == ["null", "null"]


def test_a_corrected_step_can_be_resumed() -> None:
    """Nothing is lost by a result that could not be stored: mended and resumed, the run goes on."""
    answers: list[Any] = [Loop(), "fine"]
    run = MemoryRun(answering(lambda: answers.pop(0))).drive()
    run.resume()
    run.drive()

    assert run.story == ["pack failed", "pack success", "ship success"]
    assert run.ledger == ["packed"]
