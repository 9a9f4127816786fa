"""Code of a careless user: each line that says so has exactly the error that is promised."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from stepwell.definition.async_workflow import AsyncWorkflow
from stepwell.definition.resumable import resumable_step
from stepwell.definition.steps import step
from stepwell.definition.waits import Poll, Signal
from stepwell.definition.workflow import Workflow
from stepwell.policies import Backoff, Retry


class User: ...


class Company: ...


class Onboarding(Workflow[User]):
    @step
    def greet(self, greeting: str = "Hello") -> str:
        return greeting

    @step
    async def fetch(self) -> bytes:
        return b""

    @step(wait=30)  # E: call-overload
    def hurry(self) -> None: ...

    @step(on_error=Retry())  # E: call-overload
    def stumble(self) -> None: ...

    @step(after=5)  # E: call-overload
    def follow(self) -> None: ...

    @step(awaits=5)  # E: call-overload
    def listen(self) -> None: ...

    @step(max_iterations=5)  # E: call-overload
    def work(self) -> None: ...

    @resumable_step(max_runtime=60)  # E: call-overload
    def hurry_on(self) -> None: ...

    @resumable_step(checkpoint_evry=5)  # E: call-overload
    def stumble_on(self) -> None: ...

    @resumable_step
    def count(self, upto: int = 3) -> Iterator[int]:
        yield upto
        self.cursor.set()  # E: call-arg
        self.cursor.value = 5  # E: misc
        self.cursor.batches([1], 100)  # E: call-overload

    def before_step(self) -> None: ...  # E: override

    def on_pause(self, reason: int) -> None: ...  # E: override


class Delivery(AsyncWorkflow):
    async def run(self) -> None:
        self.ship("a")  # E: unused-coroutine
        self.sleep(timedelta(1))  # E: unused-coroutine
        self.ship("a").upper()  # E: attr-defined
        await self.ship(5)  # E: arg-type
        await self.sleep(30)  # E: arg-type
        await self.sleep(timedelta(1), nme="x")  # E: call-arg
        await self.step("size", len, 4)  # E: call-overload

    @step
    def ship(self, item: str) -> str:
        return item


class Plainly(Workflow):
    def run(self) -> None:
        self.sleep(30)  # E: arg-type


class Report(Workflow):
    version = "2"  # E: assignment
    deadline = 30  # E: assignment
    on_conflict = "ignore"  # E: assignment
    policies = Retry()  # E: assignment

    @step
    def write(self) -> None:
        self.hero.name  # E: attr-defined
        self.pause("why", True)  # E: call-arg


onboarding = Onboarding(User())
onboarding.greet(5)  # E: arg-type
onboarding.greet(salutation="Hi")  # E: call-arg
length: int = onboarding.greet()  # E: assignment
text: str = onboarding.fetch()  # E: assignment
items: list[int] = onboarding.count()  # E: assignment
onboarding.count("5")  # E: arg-type
Signal()  # E: call-arg
Signal("review", 3)  # E: arg-type
Poll("is_paid")  # E: call-arg
Poll("is_paid", every=5)  # E: arg-type
Onboarding.greet("Hello")  # E: arg-type
Onboarding(Company())  # E: arg-type
Onboarding.start(Company())  # E: arg-type
Onboarding.start()  # E: call-arg
Onboarding.with_options(key="x").start(Company())  # E: arg-type
Onboarding.with_options(quue="x")  # E: call-arg
Onboarding.with_options(at=5)  # E: arg-type
Retry(ValueError, attempts="5")  # E: arg-type
Retry(ValueError, then="retry")  # E: arg-type
Retry(wait=timedelta(1), backoff=Backoff(base=2))  # E: arg-type
