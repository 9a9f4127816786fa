"""Code of a careful user: every line type-checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar, assert_type

from stepwell import AsyncWorkflow, Run
from stepwell.definition.cursor import Cursor
from stepwell.definition.launching import Launcher
from stepwell.definition.plan import Plan
from stepwell.definition.resumable import resumable_step
from stepwell.definition.starting import Call
from stepwell.definition.steps import BoundStep, Step, cancel_if, removed_step, step
from stepwell.definition.waits import Poll, Signal
from stepwell.definition.workflow import Workflow
from stepwell.policies import Cancel, Pause, Retry, Skip, handles


class User:
    toured = False
    name = "Ada"


class Admin(User): ...


class RateLimited(Exception):
    retry_after = timedelta(seconds=30)


class Onboarding(Workflow[User]):
    version = 2
    queue = "mail"
    policies = [Retry(ConnectionError, attempts=5), Pause("smtplib.SMTPException")]
    unique_by = ("hero", "campaign")
    unique_for = "ever"
    on_conflict = "skip"

    @cancel_if
    def deactivated(self) -> bool:
        return self.hero.toured

    @handles(RateLimited)
    def slow_down(self, error: RateLimited) -> None:
        self.retry(wait=error.retry_after)

    @step
    def send_welcome(self) -> str:
        return f"Welcome, {self.hero.name}"

    @step(
        wait=timedelta(days=2), skip_if=lambda self: self.hero.toured, on_exception=[Skip(), Cancel(OSError)]
    )
    def remind_of_tour(self) -> None: ...

    removed_step("send_postcard")

    @step(wait_until=datetime(2030, 1, 1, tzinfo=UTC), before="remind_of_tour", after=None)
    async def ask(self) -> int:
        return 3

    @step(after=send_welcome, skip_if="deactivated", queue="slow", priority=0, isolated=True)
    def complete(self, *, note: str = "") -> bool:
        return True


class Order(Workflow):
    unique_by = "order_id"

    def run(self, order_id: str) -> str:
        assert_type(self.hero, None)
        first = self.ship(order_id)
        assert_type(first, str)
        assert_type(self.fetch("url"), bytes)
        assert_type(self.step("size", len, "four"), int)
        assert_type(self.step("later", later, 3), bytes)
        self.sleep(timedelta(1), name="a day")
        self.pause("look")
        return first

    @step(key_by="item", on_exception=Retry())
    def ship(self, item: str, size: int = 1) -> str:
        return item

    @step
    async def fetch(self, url: str) -> bytes:
        return b""

    @step
    def stop(self) -> str:
        self.finish({"early": True})


class Delivery(AsyncWorkflow[User]):
    async def run(self, order_id: str) -> str:
        first = await self.ship(order_id)
        assert_type(first, str)
        assert_type(await self.fetch("url"), bytes)
        assert_type(await self.ship.with_options(timeout=None)("item"), str)
        assert_type(await self.step("size", len, "four"), int)
        assert_type(await self.step("later", later, 3), bytes)
        assert_type(await self.sleep(timedelta(1), name="a day"), None)
        await self.pause("look")
        await self.continue_if("is_paid")
        task = asyncio.create_task(self.ship("item", size=2))
        assert_type(task, asyncio.Task[str])
        assert_type(self.now, datetime)
        assert_type(self.hero, User)
        self.finish(first)

    @step(key_by="item", on_exception=Retry())
    def ship(self, item: str, size: int = 1) -> str:
        if size > 3:
            self.pause("too large")
        return item

    @step
    async def fetch(self, url: str) -> bytes:
        return b""


async def later(size: int) -> bytes:
    return b""


class Import(Workflow[User]):
    deadline = timedelta(days=3)
    deadline_includes_waits = False

    def is_paid(self) -> bool:
        return True

    def before_step(self, step: str) -> None:
        self.logger.info(step)

    @contextmanager
    def around_step(self, step: str) -> Iterator[None]:
        yield

    def on_finish(self, result: str) -> None:
        super().on_finish(result)

    def on_fail(self, error: BaseException) -> None: ...

    @step(awaits=Signal("review", timeout=timedelta(days=3), default="expired"), wait=timedelta(hours=1))
    def review(self, verdict: str) -> str:
        return verdict

    @step(awaits="go", gate=None)
    async def go(self) -> None: ...

    @step(gate="is_paid", wait_until=datetime(2030, 1, 1, tzinfo=UTC))
    def ship(self) -> None: ...

    @step(wait_until=Poll(lambda self: self.is_paid(), every=timedelta(minutes=5), default=None))
    def close(self) -> None: ...

    @resumable_step
    def count(self) -> int:
        assert_type(self.cursor, Cursor)
        for item in self.cursor.iterate(["a", "b"]):
            assert_type(item, str)
        for batch in self.cursor.batches([1, 2], size=100):
            assert_type(batch, Sequence[int])
        self.cursor.set(self.cursor.value or 0)
        self.cursor.advance(2)
        self.cursor.checkpoint()
        return 5

    @resumable_step(
        max_iterations=1_000, max_runtime=timedelta(minutes=5), checkpoint_every=100, queue="slow"
    )
    def rows(self, upto: int = 3) -> Generator[int, None, str]:
        yield from range(upto)
        return "done"

    @resumable_step
    def lines(self) -> Iterator[int]:
        yield 1

    @resumable_step()
    async def fetch(self) -> bytes:
        return b""

    @resumable_step
    async def pages(self) -> AsyncIterator[int]:
        yield 1

    @resumable_step(max_iterations=None, awaits="later")
    def skip_ahead(self, payload: object) -> int:
        self.cursor.skip_to(5, wait=timedelta(minutes=1))


class Special(Order):
    @step
    def ship(self, item: str, size: int = 1) -> str:
        return super().ship(item, size=size)


H = TypeVar("H")


class Base(Workflow[H], Generic[H]):
    @step
    def introduce(self) -> H:
        return self.hero


class OfUsers(Base[User]): ...


class Ahead(Workflow["Later | None"]):
    @step
    def look(self) -> str:
        return self.hero.name if self.hero else ""


class Later:
    name = ""


user = User()
importing = Import(user)
assert_type(importing.review("yes"), str)
assert_type(importing.go(), None)
assert_type(importing.count(), int)
assert_type(importing.rows(upto=5), str)
assert_type(importing.lines(), None)
assert_type(importing.fetch(), bytes)
assert_type(importing.pages(), None)
assert_type(Import.rows(importing, 5), str)
assert_type(Import.lines, Step[Import, [], None])
onboarding = Onboarding(user, campaign="May")
assert_type(onboarding.hero, User)
assert_type(onboarding.send_welcome(), str)
assert_type(onboarding.remind_of_tour(), None)
assert_type(onboarding.ask(), int)
assert_type(onboarding.complete(note="x"), bool)
assert_type(onboarding.slow_down(RateLimited()), None)
assert_type(Onboarding.send_welcome, Step[Onboarding, [], str])
assert_type(onboarding.send_welcome, BoundStep[[], str])
assert_type(Onboarding.send_welcome(onboarding), str)
assert_type(Onboarding.plan, Plan)
assert_type(OfUsers(user).introduce(), User)
ship: Callable[[str], str] = Order().ship

assert_type(Onboarding.start(user), Run)
Onboarding.start(Admin(), campaign="May")
assert_type(Delivery.start(user, order_id="7"), Run)
Onboarding.start(hero=user)
Ahead.start(None)
Order.start(order_id="7")
assert_type(Order.start_many({"order_id": each} for each in "abc"), list[Run])
assert_type(Onboarding.with_args(user), Call)
launcher = Onboarding.with_options(key="x", at=timedelta(days=1), on_conflict="replace", same_args=False)
assert_type(launcher, Launcher[User])
assert_type(launcher.start(user, campaign="May"), Run)
Order.with_options(queue="slow").start(order_id="7")
