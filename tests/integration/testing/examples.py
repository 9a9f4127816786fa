"""Workflows that are worth testing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from sqlalchemy import String, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from stepwell import Backoff, Poll, Retry, Signal, Skip, Workflow, resumable_step, step
from stepwell.testing import Workbench

__all__ = [
    "DAY",
    "Base",
    "Chain",
    "Charge",
    "Import",
    "Line",
    "Month",
    "Needy",
    "Places",
    "Review",
    "Waiting",
    "lines",
    "open_ledger",
]

DAY = timedelta(days=1)


class Base(DeclarativeBase):
    """The application's tables."""


class Line(Base):
    """A line of a ledger; no two say the same."""

    __tablename__ = "testing_lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(String(60), unique=True)


def open_ledger(bench: Workbench) -> None:
    """Make the application's tables beside the runs, empty."""
    engine = bench.engine.database.engine
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)


def lines(bench: Workbench) -> list[str]:
    """What is committed."""
    with Session(bench.engine.database.engine) as session:
        return list(session.scalars(select(Line.text).order_by(Line.id)))


class Month(Workflow):
    """Ten steps in thirty days."""

    workflow_name = "testing.Month"

    @step
    def one(self) -> None: ...

    @step(wait=3 * DAY)
    def two(self) -> None: ...

    @step(wait=3 * DAY)
    def three(self) -> None: ...

    @step(wait=3 * DAY)
    def four(self) -> None: ...

    @step(wait=3 * DAY)
    def five(self) -> None: ...

    @step(wait=3 * DAY)
    def six(self) -> None: ...

    @step(wait=3 * DAY)
    def seven(self) -> None: ...

    @step(wait=4 * DAY)
    def eight(self) -> None: ...

    @step(wait=4 * DAY)
    def nine(self) -> None: ...

    @step(wait=4 * DAY)
    def ten(self) -> None:
        self.finish("thirty days")


class Charge(Workflow):
    """Calls a service, with a little patience; ``charge`` is what the service does."""

    workflow_name = "testing.Charge"
    charge: ClassVar[Callable[[str], Any]]
    calls: ClassVar[list[str]]

    @step
    def prepare(self) -> None:
        self.session.add(Line(text=f"prepared {self.args['name']}"))

    @step(on_exception=Retry(ConnectionError, attempts=3, backoff=Backoff(timedelta(minutes=1), jitter=0.5)))
    def pay(self) -> None:
        type(self).calls.append(self.idempotency_key)
        type(self).charge(self.args["name"])
        self.session.add(Line(text=f"paid {self.args['name']}"))

    @step(wait=DAY)
    def thank(self) -> None:
        self.session.add(Line(text=f"thanked {self.args['name']}"))


class Import(Workflow):
    """Goes through numbers, one line each."""

    workflow_name = "testing.Import"

    @resumable_step(checkpoint_every=1)
    def rows(self) -> None:
        for number in self.cursor.iterate(range(self.args["count"])):
            self.session.add(Line(text=f"row {number}"))

    @step
    def close(self) -> None: ...


class Review(Workflow):
    """Waits for a person, at most for a week where the class says so."""

    workflow_name = "testing.Review"

    @step
    def ask(self) -> None: ...

    @step(awaits="answer")
    def note(self, answer: str) -> None:
        self.context["answer"] = answer

    @step(awaits=Signal("second", timeout=7 * DAY, default="silence"))
    def note_second(self, answer: str) -> None:
        self.context["second"] = answer


class Waiting(Workflow):
    """Looks every hour whether something has come: it has at the third look, if it comes at all."""

    workflow_name = "testing.Waiting"
    looks: ClassVar[list[object]]

    @step
    def order(self) -> None: ...

    @step(wait_until=Poll("has_come", every=timedelta(hours=1)))
    def go(self) -> None: ...

    def has_come(self) -> object:
        self.looks.append(self)
        return self.args["comes"] and len(self.looks) == 3


class Chain(Workflow):
    """Starts another run, and goes on when that one has told it to."""

    workflow_name = "testing.Chain"

    @step
    def begin(self) -> None:
        Echo.start(to=str(self.run_id))

    @step(awaits=Signal("echo", timeout=30 * DAY))
    def hear(self, said: str) -> None:
        self.context["said"] = said


class Echo(Workflow):
    """Tells its caller after two days."""

    workflow_name = "testing.Echo"

    @step(wait=2 * DAY, queue="echoes")
    def tell(self) -> None:
        from stepwell.definition.starting import default_engine

        engine: Any = default_engine()
        engine.run(self.args["to"]).signal("echo", engine.now().isoformat())


class Places(Workflow):
    """Steps of several queues and kinds."""

    workflow_name = "testing.Places"

    @step(queue="heavy")
    def heavy(self) -> None: ...

    @step(isolated=True, priority=5)
    def alone(self) -> None: ...

    @step
    async def rest(self) -> str:
        await asyncio.sleep(0)
        return "rested"

    @step(timeout=timedelta(milliseconds=30), on_exception=Skip())
    def hurry(self) -> None:
        while True:
            pass

    @step(timeout=timedelta(milliseconds=30), on_exception=Skip())
    async def hurry_too(self) -> None:
        await asyncio.sleep(30)


class Needy(Workflow):
    """Fails."""

    workflow_name = "testing.Needy"

    @step
    def need(self) -> None:
        self._give(self.args["what"])

    def _give(self, what: str) -> None:
        raise LookupError(f"there is no {what}")
