"""Code of a careful user: every line type-checks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar, assert_type

from stepwell import Run
from stepwell.definition.launching import Launcher
from stepwell.definition.plan import Plan
from stepwell.definition.starting import Call
from stepwell.definition.steps import BoundStep, Step, cancel_if, removed_step, step
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
Onboarding.start(hero=user)
Ahead.start(None)
Order.start(order_id="7")
assert_type(Order.start_many({"order_id": each} for each in "abc"), list[Run])
assert_type(Onboarding.with_args(user), Call)
launcher = Onboarding.with_options(key="x", at=timedelta(days=1), on_conflict="replace", same_args=False)
assert_type(launcher, Launcher[User])
assert_type(launcher.start(user, campaign="May"), Run)
Order.with_options(queue="slow").start(order_id="7")
