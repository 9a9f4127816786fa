"""``async def`` steps: on the process's event loop, with everything else as usual."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, Skip, Workflow, step
from stepwell.definition.runtime import current
from stepwell.states import Outcome, Reason, RunState
from tests.integration.declared.shop import Account, Customer, Entry, Shop, story
from tests.support.driving import Driver

NOW = timedelta()
FAST = timedelta(milliseconds=50)
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
DO: dict[str, Callable[[Any], Any]] = {}


class Talk(Workflow[Customer]):
    """Its async step does what the test says; a sync one follows."""

    workflow_name = "async_steps.Talk"

    hero_optional = True

    @step(on_exception=[Retry(ConnectionError, attempts=3, wait=NOW), Skip(KeyError)])
    async def talk(self) -> Any:
        return await DO["talk"](self)

    @step
    def note(self) -> None: ...


def talk(act: Callable[[Any], Any], hero: Customer | None = None) -> Any:
    DO["talk"] = act
    return Talk.start(hero) if hero is not None else Talk.start()


def test_an_async_step_runs_and_its_result_is_recorded(driver: Driver) -> None:
    """Awaited to its end, on the loop's own thread, not on the one that drives the run."""
    threads: list[Any] = []

    async def act(self: Any) -> dict[str, int]:
        await asyncio.sleep(0)
        threads.append(threading.current_thread())
        self.context["heard"] = True
        return {"words": 3}

    run = talk(act)
    driver.drain()

    assert story(run) == ["talk success", "note success"]
    assert run.steps[0].result == {"words": 3}
    assert run.context == {"heard": True}
    assert threads[0] is not threading.current_thread()


def test_async_steps_share_one_loop(driver: Driver) -> None:
    """So that what one of them opens, such as an HTTP client, can be used by the next."""
    loops: list[Any] = []

    async def act(self: Any) -> None:
        loops.append(asyncio.get_running_loop())

    for _ in range(2):
        talk(act)
        driver.drain()

    assert loops[0] is loops[1]


def test_context_variables_reach_the_body(driver: Driver) -> None:
    """What is set around the worker's thread is seen in the step, and what the step sets stays in it."""
    seen: list[Any] = []

    async def act(self: Any) -> None:
        seen.append(tenant.get())
        tenant.set("inside")
        seen.append(await asyncio.create_task(inner()))
        seen.append(current.get() is not None)

    async def inner() -> str:
        return tenant.get()

    token = tenant.set("outside")
    talk(act)
    driver.drain()
    after = tenant.get()
    tenant.reset(token)

    assert seen == ["outside", "inside", True]
    assert after == "outside"


def test_an_error_goes_through_the_policies(driver: Driver) -> None:
    """Retried, skipped or failed, as in a sync step."""
    errors: list[Exception] = [ConnectionError(), KeyError("word")]

    async def act(self: Any) -> None:
        raise errors.pop(0)

    run = talk(act)
    driver.drain()

    assert story(run) == ["talk retried", "talk skipped", "note success"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_no_error_ends_the_loop(driver: Driver, error: BaseException) -> None:
    """``sys.exit()`` in an async step fails that step; the loop goes on, and so do the others' steps."""

    async def act(self: Any) -> None:
        raise error

    run = talk(act)
    driver.drain()
    assert (run.state, run.reason) == (RunState.FAILED, Reason.STEP_FAILED)
    assert run.info().error_class == type(error).__name__

    async def fine(self: Any) -> str:
        return "fine"

    other = talk(fine)
    driver.drain()
    assert other.state is RunState.COMPLETED


def test_no_error_of_a_task_beside_a_body_ends_the_loop(driver: Driver) -> None:
    """A task that a body has started raises what ends processes: whoever awaits it gets it, and nobody else."""

    async def leave() -> None:
        raise SystemExit(3)

    async def act(self: Any) -> str:
        task = asyncio.create_task(leave())
        await asyncio.sleep(0.05)
        return repr(task.exception())

    run = talk(act)
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert run.steps[0].result == "SystemExit(3)"


def test_a_body_that_was_cancelled_from_within_has_failed(driver: Driver) -> None:
    """A cancellation that nobody asked for is an error of the step: the run is not given back for ever."""

    async def act(self: Any) -> None:
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    run = talk(act)
    assert driver.drain() == 1

    assert (run.state, run.reason) == (RunState.FAILED, Reason.STEP_FAILED)
    assert "CancelledError" in str(run.info().error_class)


def test_a_body_that_the_worker_cancels_is_given_back(driver: Driver) -> None:
    """It may clean up, and only when it is over the run is somebody else's; no attempt is counted."""
    events: list[str] = []
    begun = threading.Event()

    async def act(self: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            events.append("cleaning up")
            await asyncio.sleep(0.05)
            events.append("clean")

    def interrupt() -> None:
        begun.wait(10)
        driver.worker._loop.cancel_all()

    run = talk(act)
    claimed = driver.claim()
    other = threading.Thread(target=interrupt)
    other.start()
    driver.activate(claimed[0])
    events.append("given back")
    other.join()

    assert events == ["cleaning up", "clean", "given back"]
    row = run.info()
    assert (row.state, row.reason) == (RunState.READY, Reason.INTERRUPTED)
    assert story(run) == []


def test_a_body_that_takes_too_long_is_ended(driver: Driver) -> None:
    """``timeout=`` cancels it, and the policies hear of it as ``StepTimedOut``."""
    ended: list[str] = []

    class Slow(Workflow[None]):
        @step(
            timeout=timedelta(milliseconds=50),
            on_exception=Retry("stepwell.StepTimedOut", attempts=2, wait=NOW),
        )
        async def talk(self) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("ended")

    run = Slow.start()
    driver.drain()

    assert run.state is RunState.FAILED
    assert story(run) == ["talk timed_out", "talk timed_out"]
    assert ended == ["ended", "ended"]
    assert run.steps[0].outcome == Outcome.TIMED_OUT


def test_a_time_out_of_the_bodys_own_is_its_own(driver: Driver) -> None:
    """``asyncio.timeout`` inside the body raises a plain TimeoutError: the author's business."""

    async def act(self: Any) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    run = talk(act)
    driver.drain()

    assert run.info().error_class == "TimeoutError"


def test_the_hero_is_there(driver: Driver, shop: Shop) -> None:
    """Loaded before the body begins; what it changes on it is saved with the step."""
    ada = shop.customer("Ada")

    async def act(self: Any) -> None:
        await asyncio.sleep(0)
        assert self.hero.name == "Ada"
        self.hero.visits += 1

    run = talk(act, ada)
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert shop.look(ada).visits == 1


def test_the_session_is_refused_on_the_loop(driver: Driver, shop: Shop) -> None:
    """It would block all other async steps, and SQLite's gate: the message says what to write instead."""

    async def act(self: Any) -> None:
        self.session.add(Entry(text="aside"))

    run = talk(act)
    driver.drain()

    assert run.state is RunState.FAILED
    assert "await self.in_session(lambda session: ...)" in str(run.info().error_message)


def test_a_lazy_load_is_refused_on_the_loop(driver: Driver, shop: Shop) -> None:
    """It is a statement like any other."""

    async def act(self: Any) -> None:
        self.hero.account.balance

    run = talk(act, shop.customer("Ada", account=Account(balance=7)))
    driver.drain()

    assert run.state is RunState.FAILED
    assert "in_session" in str(run.info().error_message)


def test_in_session_writes_with_the_step(driver: Driver, shop: Shop) -> None:
    """The function runs on the step's own thread, in its transaction, which commits with the journal entry."""
    seen: list[Any] = []

    async def act(self: Any) -> None:
        seen.append(await self.in_session(lambda session: write(session, "first")))
        seen.append(shop.ledger)
        await asyncio.sleep(0)
        await self.in_session(lambda session: write(session, "second"))

    def write(session: Any, line: str) -> Any:
        session.add(Entry(text=line))
        session.flush()
        return threading.current_thread()

    run = talk(act)
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert seen == [threading.current_thread(), []]
    assert shop.ledger == ["first", "second"]


def test_in_session_is_undone_with_the_step(driver: Driver, shop: Shop) -> None:
    """An error afterwards leaves nothing of it; one inside is raised where it is awaited."""
    attempts: list[str] = []

    async def act(self: Any) -> None:
        await self.in_session(lambda session: session.add(Entry(text="first")))
        try:
            await self.in_session(lambda session: 1 // 0)
        except ZeroDivisionError:
            attempts.append("caught")
        raise ValueError

    run = talk(act)
    driver.drain()

    assert run.state is RunState.FAILED
    assert attempts == ["caught"]
    assert shop.ledger == []


def test_other_runs_are_commanded_in_session(driver: Driver, shop: Shop) -> None:
    """Starting and commanding is writing: in the function both work, beside an open transaction too."""

    class Other(Workflow[None]):
        @step(wait=timedelta(days=1))
        def work(self) -> None: ...

    async def act(self: Any) -> None:
        await self.in_session(lambda session: session.add(Entry(text="first")))
        await self.in_session(lambda session: Other.start())
        await self.in_session(lambda session: old.cancel("changed my mind"))

    old = Other.start()
    run = talk(act)
    driver.drain()

    assert run.state is RunState.COMPLETED
    assert old.state is RunState.CANCELED
    assert driver.well.runs(Other).live().count() == 1


def test_other_runs_are_looked_at_anywhere(driver: Driver, shop: Shop) -> None:
    """Reading blocks only for a moment, and leaves the step's transaction to its own thread."""
    seen: list[Any] = []

    async def act(self: Any) -> None:
        await self.in_session(lambda session: (session.add(Entry(text="first")), session.flush()))
        seen.append(driver.well.run(self.run_id).state)

    run = talk(act)
    driver.drain()

    assert seen == [RunState.RUNNING]
    assert (run.state, shop.ledger) == (RunState.COMPLETED, ["first"])


def test_a_start_on_the_loop_is_refused_in_words(driver: Driver) -> None:
    """It would open the step's transaction on a thread that must not block."""

    async def act(self: Any) -> None:
        Talk.start()

    run = talk(act)
    driver.drain()

    assert run.state is RunState.FAILED
    assert "in_session" in str(run.info().error_message)
    assert driver.well.runs(Talk).count() == 1


def test_verbs_work_in_an_async_step(driver: Driver, shop: Shop) -> None:
    """Directly, and out of a task group."""

    async def grouped(self: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(leave(self))
            await asyncio.sleep(60)

    async def leave(self: Any) -> None:
        self.cancel("enough")

    run = talk(grouped)
    driver.drain()
    assert (run.state, run.reason) == (RunState.CANCELED, "enough")

    run = talk(leave)
    driver.drain()
    assert (run.state, run.reason) == (RunState.CANCELED, "enough")


def test_a_sync_step_that_returns_a_coroutine_is_refused(driver: Driver) -> None:
    """Nobody would ever await it."""

    async def forgotten() -> None: ...

    class Careless(Workflow[None]):
        @step
        def talk(self) -> Any:
            return forgotten()

    run = Careless.start()
    driver.drain()

    assert run.state is RunState.FAILED
    assert "returned a coroutine, which cannot be stored: it was never run" in str(run.info().error_message)


def test_a_worker_that_has_stopped_gives_async_steps_back(driver: Driver) -> None:
    """Its loop is closed: no body begins, no coroutine is left behind, and no attempt is counted."""

    async def act(self: Any) -> None: ...

    run = talk(act)
    claimed = driver.claim()
    driver.worker._loop.close()
    driver.activate(claimed[0])

    assert (run.state, run.reason) == (RunState.READY, Reason.INTERRUPTED)
    assert story(run) == []
