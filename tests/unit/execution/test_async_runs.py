"""``async def run()``: the same journal as for a plain one, with the coroutine on the loop and all else off it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from stepwell import AsyncWorkflow, Retry, RunError, StepFailed, WaitTimedOut, Workflow, step
from stepwell.definition.runtime import current
from stepwell.states import Kind, Outcome, RunState
from tests.unit.execution.memory import MemoryRun
from tests.unit.execution.procedures import crashed_everywhere, driven, replayed

HOUR = timedelta(hours=1)
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Steps:
    """Steps for both styles: plain ones and async ones."""

    bodies: list[str] = []

    @step(key_by="item")
    def ship(self, item: str) -> str:
        self.bodies.append(f"ship {item}")
        return item.upper()

    @step(on_exception=Retry(ConnectionError, attempts=3, wait=HOUR))
    async def charge(self, amount: int) -> dict[str, int]:
        await asyncio.sleep(0)
        self.bodies.append(f"charge {amount}")
        self.context["charged"] = self.context.get("charged", 0) + amount
        return {"amount": amount}

    @step
    async def fail(self) -> None:
        raise ValueError("no")

    def is_paid(self) -> bool:
        return "charged" in self.context


class Awaited(Steps, AsyncWorkflow[None]):
    async def run(self, items: list[str]) -> list[Any]:
        seen: list[Any] = [await self.ship(item) for item in items]
        self.context["shipped"] = len(seen)
        await self.sleep(HOUR)
        seen.append(await self.charge(amount=3))
        seen.append(await self.wait_until(self.is_paid))
        await self.continue_if(self.is_paid)
        await self.sleep_until(self.now + HOUR)
        try:
            await self.fail()
        except StepFailed as failure:
            seen.append(failure.step)
        try:
            await self.wait_for_signal("never", timeout=HOUR)
        except WaitTimedOut:
            seen.append("timed out")
        seen.append(await self.wait_for_signal("never", timeout=HOUR, default="late"))
        seen.append(await self.step("one-off", len, "four"))
        return [*seen, dict(self.context)]


class Plain(Steps, Workflow[None]):
    def run(self, items: list[str]) -> list[Any]:
        seen: list[Any] = [self.ship(item) for item in items]
        self.context["shipped"] = len(seen)
        self.sleep(HOUR)
        seen.append(self.charge(amount=3))
        seen.append(self.wait_until(self.is_paid))
        self.continue_if(self.is_paid)
        self.sleep_until(self.now + HOUR)
        try:
            self.fail()
        except StepFailed as failure:
            seen.append(failure.step)
        try:
            self.wait_for_signal("never", timeout=HOUR)
        except WaitTimedOut:
            seen.append("timed out")
        seen.append(self.wait_for_signal("never", timeout=HOUR, default="late"))
        seen.append(self.step("one-off", len, "four"))
        return [*seen, dict(self.context)]


def rows(run: MemoryRun) -> list[tuple[Any, ...]]:
    return [
        (row.kind, row.name, row.key, row.state, row.outcome, row.result, row.args_digest, row.context_delta)
        for row in run.journal
        if row.kind is not Kind.RECOVERY
    ]


def parked(run: MemoryRun) -> MemoryRun:
    """Driven to its end, also past the deadlines of waits for signals."""
    run.drive()
    while run.state is RunState.AWAITING:
        run.wake()
        run.drive()
    return run


def test_both_styles_write_the_same_journal() -> None:
    """Row for row: the style says how ``run()`` is written, and nothing else."""
    args = {"items": ["a", "b", "a"]}
    awaited, plain = parked(MemoryRun(Awaited, args=args)), parked(MemoryRun(Plain, args=args))

    assert awaited.state is plain.state is RunState.COMPLETED
    assert json.loads(awaited.result) == json.loads(plain.result)
    assert rows(awaited) == rows(plain)
    assert (awaited.writes, awaited.activations) == (plain.writes, plain.activations)


def test_each_step_runs_once_whatever_crashes() -> None:
    """Before and after each write: the outcome is that of the run that nothing disturbed."""
    outcomes = set()
    for run in map(parked, crashed_everywhere(lambda: MemoryRun(Awaited, args={"items": ["a", "b"]}))):
        outcomes.add((run.state, run.result, tuple(run.story)))
    assert len(outcomes) == 1


def test_a_replay_after_each_write_sees_what_the_first_pass_saw() -> None:
    """Results, errors, the context and the time."""
    run = parked(replayed(MemoryRun(Awaited, args={"items": ["a"]})))
    assert json.loads(run.result) == json.loads(parked(MemoryRun(Awaited, args={"items": ["a"]})).result)


def test_a_retried_step_parks_the_run() -> None:
    """The policy's wait ends the activation, as in a plain ``run()``."""
    errors: list[Exception] = [ConnectionError()]

    class Flaky(AsyncWorkflow[None]):
        async def run(self) -> str:
            return await self.fetch()

        @step(on_exception=Retry(ConnectionError, wait=HOUR))
        async def fetch(self) -> str:
            if errors:
                raise errors.pop()
            return "fetched"

    run = MemoryRun(Flaky)
    run.activate()
    assert run.state is RunState.WAITING
    assert run.drive().result == '"fetched"'


def test_threads_are_where_they_belong() -> None:
    """``run()`` and async bodies on the loop's; plain bodies, conditions and writes on the activation's own."""
    threads: dict[str, threading.Thread] = {}

    def note(what: str) -> None:
        threads[what] = threading.current_thread()

    class Where(AsyncWorkflow[None]):
        async def run(self) -> None:
            note("run")
            await self.plain()
            await self.later()
            await self.wait_until(self.holds)

        @step
        def plain(self) -> None:
            note("plain")

        @step
        async def later(self) -> None:
            note("later")

        def holds(self) -> bool:
            note("condition")
            return True

    run = MemoryRun(Where)
    run.at_boundary = lambda moment: note("write")
    run.drive()

    here = threading.current_thread()
    assert {what: thread is here for what, thread in threads.items()} == {
        "run": False,
        "plain": True,
        "later": False,
        "condition": True,
        "write": True,
    }
    assert threads["run"] is threads["later"]


def test_the_current_run_is_known_inside_and_not_outside() -> None:
    """What is set around the activation is seen in the coroutine; what it sets itself stays in it."""
    seen: list[Any] = []

    class Looks(AsyncWorkflow[None]):
        async def run(self) -> None:
            seen.append((current.get() is self._runtime, tenant.get()))
            tenant.set("inside")
            await self.look()
            seen.append((current.get() is self._runtime, tenant.get()))

        @step
        async def look(self) -> None:
            seen.append((current.get() is self._runtime, tenant.get()))
            tenant.set("in the step")

    token = tenant.set("outside")
    driven(Looks)
    assert seen == [(True, "outside"), (True, "outside"), (True, "inside")]
    assert (tenant.get(), current.get()) == ("outside", None)
    tenant.reset(token)


def test_the_values_that_replay_alike_are_plain() -> None:
    """They answer at once, the same at each pass."""
    seen: set[Any] = set()

    class Values(AsyncWorkflow[None]):
        async def run(self) -> None:
            await self.nothing()
            seen.add((self.now, self.random.random(), self.uuid4(), self.version))
            await self.nothing()

        @step
        def nothing(self) -> None: ...

    replayed(MemoryRun(Values)).drive()
    assert len(seen) == 1


def test_what_run_leaves_on_itself_is_seen_in_steps() -> None:
    """As in a plain ``run()``; what a step leaves there is gone with it."""

    class Leaves(AsyncWorkflow[None]):
        async def run(self) -> list[Any]:
            self.tax = 7
            return [await self.look(), self.tax]

        @step
        async def look(self) -> int:
            self.tax += 1
            return self.tax

    assert driven(Leaves).result == "[8,7]"


@pytest.mark.parametrize(
    "act",
    [
        lambda self: self.hero,
        lambda self: self.session,
        lambda self: self.skip(),
        lambda self: self.retry(),
        lambda self: self.suspend(),
        lambda self: self.cursor,
    ],
)
def test_what_belongs_to_steps_is_refused_in_run(act: Callable[[Any], Any]) -> None:
    """Also while a step of the run is under way, beside which a task of run() looks for it."""

    class Looks(AsyncWorkflow[None]):
        async def run(self) -> list[str]:
            return [await self.refused(), await self.beside()]

        async def refused(self) -> str:
            with pytest.raises(RunError) as refused:
                act(self)
            return str(refused.value)

        async def beside(self) -> str:
            task = asyncio.create_task(self.work())
            await asyncio.sleep(0.02)
            said = await self.refused()
            await task
            return said

        @step
        async def work(self) -> None:
            await asyncio.sleep(0.05)

    run = driven(Looks)
    assert run.state is RunState.COMPLETED
    assert all("step" in said for said in json.loads(run.result))


@pytest.mark.parametrize("name", ["plain", "later"])
def test_inside_a_step_neither_steps_nor_verbs_are_called(name: str) -> None:
    """A step is durable as a whole, and says so at once, awaited or not."""

    class Inside(AsyncWorkflow[None]):
        async def run(self) -> list[str]:
            return await getattr(self, name)()  # type: ignore[no-any-return]  # a list of what was said

        @step
        def plain(self) -> list[str]:
            return [self.said(lambda: self.other()), self.said(lambda: self.sleep(HOUR))]

        @step
        async def later(self) -> list[str]:
            return [self.said(lambda: self.other()), self.said(lambda: self.sleep(HOUR))]

        def said(self, act: Callable[[], Any]) -> str:
            with pytest.raises(RunError) as refused:
                act()
            return str(refused.value)

        @step
        def other(self) -> None: ...

    first, second = json.loads(driven(Inside).result)
    assert "was called from inside step" in first
    assert "not inside step" in second


def test_verbs_of_a_step_are_plain_in_it() -> None:
    """``self.pause()`` and ``self.finish()`` do not return there, so there is nothing to be awaited."""

    class Stops(AsyncWorkflow[None]):
        async def run(self) -> None:
            await self.wait_for_person()
            await self.end()

        @step
        def wait_for_person(self) -> None:
            if "asked" not in self.context:
                self.context["asked"] = True
                self.pause("look", done=True)

        @step
        async def end(self) -> None:
            self.finish("early")

    run = driven(Stops)
    assert run.is_over_as(RunState.PAUSED, "look")
    run.resume()
    assert run.drive().result == '"early"'


def test_a_pause_is_awaited_and_passed_once_it_was_resumed() -> None:
    """It is a durable call of ``run()`` like others."""

    class Pauses(AsyncWorkflow[None]):
        async def run(self) -> str:
            await self.pause("one")
            await self.pause("two")
            return "done"

    run = driven(Pauses)
    assert run.is_over_as(RunState.PAUSED, "one")
    run.resume()
    assert run.drive().is_over_as(RunState.PAUSED, "two")
    run.resume()
    assert run.drive().result == '"done"'
    assert [row.outcome for row in run.journal if row.kind is Kind.PAUSE] == [Outcome.PAUSED] * 2


def test_an_async_class_without_run_is_driven_from_top_to_bottom() -> None:
    """Its steps are those of a declared workflow."""

    class Declared(AsyncWorkflow[None]):
        @step
        def first(self) -> str:
            return "1"

        @step
        async def second(self) -> str:
            return "2"

    run = driven(Declared)
    assert (run.state, run.story) == (RunState.COMPLETED, ["first success", "second success"])
