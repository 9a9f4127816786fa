"""Children about records: ``run()`` knows these as references, and hands them on as heroes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from stepwell import Child, StepFailed, Workflow, step
from stepwell.testing import Workbench
from tests.integration.town import Person, Town

AT_ONCE = timedelta()


class Greeting(Workflow[Person]):
    """One open run for each person."""

    workflow_name = "records.Greeting"

    def run(self, word: str = "Hello") -> Any:
        self.sleep(timedelta(hours=1))
        return f"{word} {self.name()}"

    @step
    def name(self) -> str:
        return self.hero.name


class Care(Workflow[Person]):
    """Calls a child about its own hero, which a step has answered."""

    workflow_name = "records.Care"

    def run(self) -> Any:
        person = self.subject()
        return self.call(Greeting, person, word="Good morning")

    @step
    def subject(self) -> Person:
        return self.hero


class Invitation(Workflow):
    """Calls a child about a record among its arguments."""

    workflow_name = "records.Invitation"

    def run(self, guest: Person) -> Any:
        try:
            return self.call(Greeting, guest)
        except StepFailed as error:
            return error.error_class


class Visit(Workflow[Person]):
    """A declared one, whose arguments for the child are made from its hero."""

    workflow_name = "records.Visit"

    @step(awaits=Child(Greeting, lambda self: {"hero": self.hero, "word": f"Dear {self.hero.name},"}))
    def tell(self, greeting: str) -> None:
        self.finish(greeting)


def test_a_reference_is_as_good_as_the_record(town: Town) -> None:
    """The child is about the record, and its identity is the same as if it had been started with it."""
    ada, bob = town.person("Ada"), town.person("Bob")
    with Workbench(town.well, raise_errors=False) as bench:
        runs = [Care.start(ada), Invitation.start(guest=bob)]
        bench.drain()
        assert bench.engine.runs(Greeting).for_hero(ada).count() == 1
        late = Invitation.start(guest=ada)
        bench.drain()
        assert late.result(AT_ONCE) == "stepwell.errors.RunAlreadyExists"
        bench.travel(timedelta(hours=1))
        bench.drain()
        assert [run.result(AT_ONCE) for run in runs] == ["Good morning Ada", "Hello Bob"]


def test_a_declared_step_makes_its_childs_arguments_of_its_hero(town: Town) -> None:
    """They are asked for as a condition is: read, and nothing written."""
    ada = town.person("Ada")
    with Workbench(town.well, raise_errors=False) as bench:
        run = Visit.start(ada)
        bench.drain()
        bench.travel(timedelta(hours=1))
        bench.drain()
        assert run.result(AT_ONCE) == "Dear Ada, Ada"
