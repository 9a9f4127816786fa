"""Queue and priority of a run, through all that befalls it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from stepwell import Retry, Run, RunState, Stepwell, Workflow, resumable_step, step
from stepwell.definition.starting import default_engine
from tests.support.driving import Driver

HOUR = timedelta(hours=1)
QUEUES = ("of the class", "of the start", "of the step")


def place(run: Run) -> tuple[str, int]:
    row = run.info()
    return row.queue, row.priority


class Order(Workflow):
    """Steps of each kind; one has a queue of its own, one a priority."""

    workflow_name = "places.Order"
    queue = "of the class"
    priority = 7
    seen: list[Any] = []

    def _look(self) -> None:
        self.seen.append(place(default_engine().run(self.run_id)))  # type: ignore[attr-defined]

    @step(on_exception=Retry(attempts=2, wait=HOUR))
    def ring_up(self) -> None:
        self._look()
        if len(self.seen) == 1:
            raise ConnectionError

    @step(queue="of the step")
    def print_it(self) -> None:
        self._look()
        self.pause("look", done=True)

    @step(awaits="go", priority=3)
    def urgent(self) -> None:
        self._look()

    @resumable_step(max_iterations=1)
    def rows(self) -> None:
        for _ in self.cursor.iterate(range(2)):
            self._look()


class Special(Order):
    """Says one of the two otherwise."""

    workflow_name = "places.Special"
    queue = "of the start"


def through_all(well: Stepwell, run: Run) -> list[Any]:
    """Where each body ran: after a start, a pause, a delay, a stop, a signal, an interruption."""
    Order.seen.clear()
    with Driver(well, QUEUES) as driver:
        driver.drain()
        run.pause()
        run.resume()
        driver.finish(run)
        assert run.state is RunState.PAUSED, run.explain()
        run.resume()
        driver.drain()
        run.signal("go")
        driver.drain()
    assert run.state is RunState.COMPLETED, run.explain()
    return list(Order.seen)


def test_a_run_keeps_its_place_whatever_befalls_it(well: Stepwell) -> None:
    """What the start said holds for every attempt and every execution, unless the step says otherwise."""
    seen = through_all(well, Order.with_options(queue="of the start", priority=5).start())

    start = ("of the start", 5)
    assert seen == [start, start, ("of the step", 5), ("of the start", 3), start, start]


def test_without_a_word_of_the_start_the_class_says_it(well: Stepwell) -> None:
    """A subclass says what it wants otherwise, and inherits the rest."""
    seen = through_all(well, Special.start())

    usual = ("of the start", 7)
    assert seen == [usual, usual, ("of the step", 7), ("of the start", 3), usual, usual]
