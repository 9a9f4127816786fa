"""How an ``async def run()`` is left: what crosses between the loop and the activation's thread, and in which shape."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from datetime import timedelta
from typing import Any

import pytest

from stepwell import AsyncWorkflow, Retry, RunError, StepFailed, Workflow, step
from stepwell.execution import async_body
from stepwell.states import Outcome, Reason, RunState
from tests.unit.execution import memory
from tests.unit.execution.memory import MemoryRun, crash_at
from tests.unit.execution.procedures import driven

HOUR = timedelta(hours=1)
VERBS: dict[str, Callable[[Any], Any]] = {
    "sleep": lambda self: self.sleep(HOUR),
    "wait_for_signal": lambda self: self.wait_for_signal("go"),
    "continue_if": lambda self: self.continue_if(lambda: False),
    "pause": lambda self: self.pause("look"),
    "paused step": lambda self: self.pausing(),
    "retried step": lambda self: self.retried(),
    "cancel": lambda self: self.cancel("enough"),
    "finish": lambda self: self.finish([1]),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coroutines that go on after their end are cancelled at once."""
    monkeypatch.setattr(async_body, "GRACE_SECONDS", 0.05)


class Closing(AsyncWorkflow[None]):
    bodies: list[str] = []

    async def said(self, verb: str) -> None:
        answer = VERBS[verb](self)
        if answer is not None:
            await answer

    @step
    def clean_up(self) -> None:
        self.bodies.append("clean up")

    @step
    async def pausing(self) -> None:
        self.pause("in a step")

    @step(on_exception=Retry(ValueError, wait=HOUR))
    async def retried(self) -> None:
        raise ValueError


class Finally(Closing):
    async def run(self, verb: str) -> None:
        try:
            await self.said(verb)
        finally:
            await self.clean_up()


class Bare(Closing):
    async def run(self, verb: str) -> str:
        for _ in range(50):
            with suppress(BaseException):
                await self.said(verb)
            with suppress(BaseException):
                await self.clean_up()
        return "went on"


class Raising(Closing):
    async def run(self, verb: str) -> None:
        try:
            await self.said(verb)
        except BaseException:
            raise ValueError("instead") from None


class Grouped(Closing):
    async def run(self, verb: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.said(verb))
            group.create_task(asyncio.sleep(60))


class Lingering(Closing):
    async def run(self, verb: str) -> None:
        try:
            await self.said(verb)
        finally:
            await asyncio.sleep(3600)


class Deaf(Closing):
    async def run(self, verb: str) -> None:
        while True:
            with suppress(BaseException):
                await self.said(verb)
            with suppress(BaseException):
                await asyncio.sleep(3600)


class Busy(Closing):
    async def run(self, verb: str) -> None:
        while True:
            with suppress(BaseException):
                await self.said(verb)


class Simple(Closing):
    async def run(self, verb: str) -> None:
        await self.said(verb)


# A loop around what does not suspend is one that no event loop survives.
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("style", "verb"),
    [
        (style, verb)
        for style in (Finally, Bare, Raising, Grouped, Lingering, Deaf, Busy)
        for verb in VERBS
        if style is not Busy or verb not in ("cancel", "finish")
    ],
)
def test_a_stopped_activation_is_closed(
    style: type[Closing], verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing more runs and nothing is journaled, whatever the coroutine makes of it; and its thread is free again."""
    Closing.bodies.clear()
    expected, run = MemoryRun(Simple, args={"verb": verb}), MemoryRun(style, args={"verb": verb})
    expected.activate()
    with caplog.at_level(logging.WARNING):
        run.activate()

    assert Closing.bodies == []
    assert (run.state, run.reason, run.result, run.writes) == (
        expected.state,
        expected.reason,
        expected.result,
        expected.writes,
    )
    assert [row.name for row in run.journal] == [row.name for row in expected.journal]
    # What lets the end pass, in whatever wrapping, has done nothing wrong.
    swallows = style in (Bare, Raising, Deaf, Busy)
    assert [record.getMessage()[:13] for record in caplog.records] == ["run() went on"] * swallows


def test_a_lost_lease_ends_the_coroutine() -> None:
    """It reaches ``run()`` once, cannot be caught for good, and nothing is written."""
    reached: list[str] = []

    class Loses(AsyncWorkflow[None]):
        async def run(self) -> str:
            with suppress(BaseException):
                await self.work()
            with suppress(BaseException):
                await self.work()
            return "done"

        @step
        async def work(self) -> None:
            reached.append("work")
            run.token = None

    run = MemoryRun(Loses)
    assert run.activate() is None
    assert (reached, run.writes, run.result) == (["work"], 0, None)


def test_a_worker_that_dies_takes_the_coroutine_along() -> None:
    """At the write of a step's end: the next worker begins that step again."""
    bodies: list[int] = []

    class Dies(AsyncWorkflow[None]):
        async def run(self) -> str:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.work())
            return "done"

        @step
        async def work(self) -> None:
            bodies.append(1)

    run = MemoryRun(Dies)
    crash_at(run, 0, "before")
    run.drive()
    assert (run.result, len(bodies)) == ('"done"', 2)


def test_a_verb_of_the_end_is_said_when_the_coroutine_is_over() -> None:
    """``finally`` may still await what is its own; what was said stands, with the result as it was."""

    class Finishes(AsyncWorkflow[None]):
        async def run(self) -> None:
            result = ["early"]
            try:
                self.finish(result)
            finally:
                await asyncio.sleep(0.01)
                result.append("late")

    run = driven(Finishes)
    assert (run.state, run.result) == (RunState.COMPLETED, '["early"]')


def test_finish_with_what_cannot_be_stored_is_an_error_where_it_is_said() -> None:
    """``run()`` can catch it, and say something better."""

    class Finishes(AsyncWorkflow[None]):
        async def run(self) -> None:
            try:
                self.finish(object())
            except Exception:
                self.finish("better")

    assert driven(Finishes).result == '"better"'


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [ValueError("no"), StopIteration(), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_an_error_of_the_body_fails_the_run(error: BaseException) -> None:
    """Whatever it is, it ends neither the loop nor the worker's thread."""

    class Raises(AsyncWorkflow[None]):
        async def run(self) -> None:
            raise error

    class Fine(AsyncWorkflow[None]):
        async def run(self) -> str:
            return "fine"

    run = driven(Raises)
    assert (run.state, run.reason) == (RunState.FAILED, Reason.STEP_FAILED)
    assert driven(Fine).result == '"fine"'


def test_a_class_policy_retries_the_body() -> None:
    """An error outside of any step replays ``run()``, as in a plain one."""
    errors: list[Exception] = [ConnectionError()]
    bodies: list[int] = []

    class Flaky(AsyncWorkflow[None]):
        policies = [Retry(ConnectionError, wait=HOUR)]

        async def run(self) -> str:
            await self.work()
            if errors:
                raise errors.pop()
            return "done"

        @step
        def work(self) -> None:
            bodies.append(1)

    run = driven(Flaky)
    assert (run.result, bodies) == ('"done"', [1])


def test_a_recorded_error_in_a_group_is_not_retried() -> None:
    """A task group wraps it; it would be raised at each replay alike."""

    class Groups(AsyncWorkflow[None]):
        policies = [Retry(attempts=5)]

        async def run(self) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.fail())

        @step(on_exception=Retry(KeyError))
        async def fail(self) -> None:
            bodies.append(1)
            raise ValueError

    bodies: list[int] = []
    run = driven(Groups)
    assert run.state is RunState.FAILED
    assert [row.outcome for row in run.journal if row.name == "run"] == [Outcome.FAILED]


# -- one call at a time ---------------------------------------------------------------------------------------------


class Many(AsyncWorkflow[None]):
    @abstractmethod
    async def run(self) -> Any: ...

    @step(key_by="name")
    async def work(self, name: str) -> str:
        await asyncio.sleep(0.02)
        return name


def test_a_second_call_beside_one_under_way_is_refused() -> None:
    """The first one goes on to its end and is recorded; the message tells what to write."""

    class Gathers(Many):
        async def run(self) -> list[Any]:
            answers = await asyncio.gather(self.work("a"), self.work("b"), return_exceptions=True)
            return [str(answer) for answer in answers]

    run = driven(Gathers)
    first, second = json.loads(run.result)
    assert first == "a"
    assert second == (
        "step 'work' was called while step 'work' of the same run is under way: a replay goes by the order of the "
        "calls, so await one after the other. What should happen at the same time belongs into one async step."
    )
    assert run.story == ["work success"]


def test_it_is_refused_on_a_replay_as_well() -> None:
    """When the first call answers from the journal, and takes no time."""

    class Gathers(Many):
        async def run(self) -> list[Any]:
            answers = await asyncio.gather(self.work("a"), self.work("b"), return_exceptions=True)
            await self.sleep(HOUR)
            return [type(answer).__name__ for answer in answers]

    assert driven(Gathers).result == '["str","RunError"]'


@pytest.mark.parametrize(
    "act",
    [
        lambda self: self.context,
        lambda self: self.now,
        lambda self: self.random,
        lambda self: self.uuid4(),
        lambda self: self.cancel(),
        lambda self: self.finish(),
    ],
)
def test_nothing_else_of_the_run_is_touched_meanwhile(act: Callable[[Any], Any]) -> None:
    """The other thread is at it; and what came of it would depend on who is faster."""

    class Touches(Many):
        async def run(self) -> str:
            task = asyncio.create_task(self.work("a"))
            await asyncio.sleep(0.005)
            with pytest.raises(RunError, match="while step 'work' of the same run is under way"):
                act(self)
            await task
            return "done"

    assert driven(Touches).result == '"done"'


def test_other_things_may_go_on_beside_a_call() -> None:
    """What is not durable is the author's own."""

    class Beside(Many):
        async def run(self) -> list[Any]:
            task = asyncio.create_task(asyncio.sleep(0.001, "slept"))
            return [await self.work("a"), await task]

    assert driven(Beside).result == '["a","slept"]'


@pytest.mark.parametrize(
    "act", [lambda self: self.work("b"), lambda self: asyncio.create_task(self.work("b"))]
)
def test_a_call_that_is_not_awaited_fails_the_run(act: Callable[[Any], Any]) -> None:
    """Forgotten, it would silently be none."""

    class Forgets(Many):
        async def run(self) -> str:
            await self.work("a")
            self.forgotten = act(self)
            return "done"

    run = driven(Forgets)
    assert run.state is RunState.FAILED
    assert run.error_message == (
        "run() has ended without awaiting step 'work': write await in front of each durable call, and start no task "
        "with one."
    )
    assert run.story[0] == "work success"


@pytest.mark.parametrize("moment", [0, 0.005])
def test_a_call_that_is_under_way_when_run_returns_is_recorded(moment: float) -> None:
    """It has begun; the run fails all the same, since nobody waits for what it answers."""

    class Leaves(Many):
        async def run(self) -> str:
            self.task = asyncio.create_task(self.work("a"))
            await asyncio.sleep(moment)
            return "done"

    run = driven(Leaves)
    assert run.state is RunState.FAILED
    assert (run.error_message or "").startswith("run() has ended without awaiting step 'work'")
    assert run.story[0] == "work success"


def test_a_call_in_another_thread_is_refused() -> None:
    """It has no loop of the run's, and no place in its order."""

    class Threads(Many):
        async def run(self) -> list[str]:
            return [await asyncio.to_thread(self.other, act) for act in (self.durable, self.plain)]

        def durable(self) -> None:
            asyncio.run(self.work("a"))

        def plain(self) -> None:
            self.finish()

        def other(self, act: Callable[[], None]) -> str:
            with pytest.raises(RunError) as refused:
                act()
            return str(refused.value)

    for said in json.loads(driven(Threads).result):
        assert said.endswith("was called in another thread than the one of run(): call it in run() itself.")


def test_a_step_called_where_the_run_is_not_active_is_refused() -> None:
    """A bare thread, or a task with a context of its own: nobody could say where in the run's order it stands."""

    class Elsewhere(Many):
        async def run(self) -> list[str]:
            said: list[str] = []
            thread = threading.Thread(target=self.note, args=(said,))
            thread.start()
            thread.join()
            await asyncio.create_task(self.task(said), context=Context())
            return said

        async def task(self, said: list[str]) -> None:
            self.note(said)

        def note(self, said: list[str]) -> None:
            with pytest.raises(RunError) as refused:
                self.work("a")
            said.append(str(refused.value))

    run = driven(Elsewhere)
    assert run.story == []
    first, second = json.loads(run.result)
    assert first == second
    assert first.startswith("step 'work' was called where no activation of its run is active")


# -- cancellation ---------------------------------------------------------------------------------------------------


class Limited(Many):
    async def run(self) -> str:
        try:
            async with asyncio.timeout(0.005):
                await self.work("a")
        except TimeoutError:
            return await self.after()
        return "in time"

    async def after(self) -> str:
        return "too late"

    @step
    def compensate(self) -> str:
        return "compensated"


def test_a_cancelled_call_is_waited_for_and_cannot_be_passed() -> None:
    """A replay would take the other way: the run fails and says what to write instead; resumed, it goes on."""

    class Calls(Limited):
        async def after(self) -> str:
            return await self.compensate()

    class Finishes(Limited):
        async def after(self) -> str:
            self.finish("too late")

    for workflow in (Limited, Calls, Finishes):
        run = driven(workflow)
        assert run.state is RunState.FAILED
        assert run.error_message == (
            "step 'work' was cancelled while it was under way, as asyncio.timeout() does, and run() went on. A replay "
            "would pass it and take another way. Limit a step by its own timeout=, and a wait by that of the verb."
        )
        assert run.story[0] == "work success"
        run.resume()
        assert run.drive().result == '"in time"'


def test_an_error_beside_a_call_waits_for_the_call() -> None:
    """A task group cancels it: it is recorded all the same, and the error is the run's."""

    class Beside(Many):
        policies = [Retry("builtins.ExceptionGroup", wait=HOUR)]

        async def run(self) -> str:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self.work("a"))
                group.create_task(self.beside())
            return task.result()

        async def beside(self) -> None:
            if errors:
                await asyncio.sleep(0.005)
                raise errors.pop()

    errors = [ValueError()]
    run = driven(Beside)
    assert run.result == '"a"'
    assert run.story[0] == "work success"


# -- the worker stops -----------------------------------------------------------------------------------------------


def interrupted(run: MemoryRun, begun: threading.Event) -> None:
    """Activate it, and have the worker cancel what is on its loop once the run says so."""

    def interrupt() -> None:
        begun.wait(10)
        memory._LOOP.cancel_all()

    thread = threading.Thread(target=interrupt)
    thread.start()
    run.activate()
    thread.join()


@pytest.mark.timeout(30)
def test_a_run_that_waits_for_something_of_its_own_is_given_back() -> None:
    """Nothing is counted, what run() has put into the context since its last call is not kept, and it begins anew."""
    begun, passes = threading.Event(), []

    class Sleeps(AsyncWorkflow[None]):
        async def run(self) -> str:
            self.context["first"] = True
            await self.work()
            passes.append(dict(self.context))
            if len(passes) == 1:
                self.context["second"] = True
                begun.set()
                await asyncio.sleep(3600)
            return "done"

        @step
        def work(self) -> None: ...

    run = MemoryRun(Sleeps)
    interrupted(run, begun)
    assert (run.state, run.reason) == (RunState.READY, Reason.INTERRUPTED)
    assert run.memory == {"first": True}
    assert run.drive().result == '"done"'
    assert passes == [{"first": True}] * 2
    assert run.story == ["work success"]


@pytest.mark.timeout(30)
def test_an_async_step_of_it_is_interrupted_as_ever() -> None:
    """The step's body first, which may clean up, and then ``run()``: no attempt is counted."""
    begun, events = threading.Event(), []

    class Sleeps(AsyncWorkflow[None]):
        async def run(self) -> str:
            try:
                return await self.work()
            finally:
                events.append("run is over")

        @step
        async def work(self) -> str:
            if begun.is_set():
                return "done"
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0.02)
                events.append("step is over")
            return "never"

    run = MemoryRun(Sleeps)
    interrupted(run, begun)
    assert (run.state, run.reason, run.story) == (RunState.READY, Reason.INTERRUPTED, [])
    assert events == ["step is over", "run is over"]
    assert run.drive().result == '"done"'


@pytest.mark.timeout(30)
def test_a_plain_step_of_it_is_waited_for() -> None:
    """It cannot be interrupted; what it did is recorded before the run is given back."""
    begun, bodies = threading.Event(), []

    class Works(AsyncWorkflow[None]):
        async def run(self) -> str:
            await self.work()
            bodies.append("after")
            return "done"

        @step
        def work(self) -> None:
            begun.set()
            threading.Event().wait(0.3)

    run = MemoryRun(Works)
    interrupted(run, begun)
    assert (run.state, run.reason, bodies) == (RunState.READY, Reason.INTERRUPTED, [])
    assert run.story == ["work success"]
    assert run.drive().result == '"done"'


@pytest.mark.timeout(30)
def test_swallowing_the_interruption_helps_nobody() -> None:
    """The next durable call is cancelled again, and nothing is done."""
    begun, bodies = threading.Event(), []

    class Swallows(AsyncWorkflow[None]):
        async def run(self) -> str:
            with suppress(BaseException):
                begun.set()
                await asyncio.sleep(3600)
            with suppress(BaseException):
                await self.work()
            self.finish("swallowed")

        @step
        def work(self) -> None:
            bodies.append(1)

    run = MemoryRun(Swallows)
    interrupted(run, begun)
    assert (run.state, run.reason, bodies) == (RunState.READY, Reason.INTERRUPTED, [])


@pytest.mark.timeout(30)
def test_what_was_said_before_the_interruption_stands() -> None:
    """``run()`` has ended by a verb, and was only tidying up."""
    begun = threading.Event()

    class Finishes(AsyncWorkflow[None]):
        async def run(self) -> None:
            try:
                self.finish("early")
            finally:
                begun.set()
                await asyncio.sleep(3600)

    run = MemoryRun(Finishes)
    interrupted(run, begun)
    assert (run.state, run.result) == (RunState.COMPLETED, '"early"')


def test_a_task_that_run_has_left_behind_calls_nothing() -> None:
    """When the run is over, whoever still speaks for it is not heard."""
    events: list[str] = []

    class Leaves(Many):
        async def run(self) -> str:
            self.task = asyncio.create_task(self.later())
            return "done"

        async def later(self) -> None:
            await asyncio.sleep(0.05)
            try:
                await self.work("a")
            except BaseException:
                events.append("refused")
            finally:
                over.set()

    over = threading.Event()
    run = driven(Leaves)
    assert over.wait(10)
    assert (run.result, run.story, events) == ('"done"', [], ["refused"])


def test_a_plain_run_is_as_it_was() -> None:
    """A failed step that is caught, beside all this."""

    class Plain(Workflow[None]):
        def run(self) -> str:
            try:
                self.fail()
            except StepFailed as failure:
                return failure.step
            return "passed"

        @step
        async def fail(self) -> None:
            raise ValueError

    assert driven(Plain).result == '"fail"'


def test_a_wait_that_is_not_awaited_lets_nothing_happen_behind_it() -> None:
    """Nobody is paid because an ``await`` is missing in front of the approval."""
    paid = []

    class Paying(AsyncWorkflow):
        workflow_name = "async_ends.Paying"

        async def run(self) -> None:
            self.wait_for_signal("approved")  # type: ignore[unused-awaitable]  # the mistake
            await self.pay()

        @step
        def pay(self) -> None:
            paid.append(1)

    run = driven(Paying)
    assert run.state is RunState.FAILED
    assert "wait_for_signal() was called before step 'pay' and has not been awaited" in (
        run.error_message or ""
    )
    assert paid == []
