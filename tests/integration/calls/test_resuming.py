"""Going on with runs whose ``run()`` has failed or is taken back: what counts, and what is done again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, RunError, Workflow, step
from stepwell.states import RunState
from stepwell.testing import Workbench

AT_ONCE = timedelta()
HOUR = timedelta(hours=1)
DONE: list[str] = []
BROKEN: set[str] = set()


@pytest.fixture(autouse=True)
def _forget() -> None:
    DONE.clear()
    BROKEN.clear()


class Order(Workflow):
    """Steps, a wait and a signal, of which some are broken."""

    workflow_name = "resuming.Order"
    policies = [Retry(KeyError, attempts=2, wait=AT_ONCE)]

    def run(self) -> Any:
        self.reserve()
        self.context["at"] = "charged"
        self.charge()
        self.sleep(HOUR, name="rest")
        verdict = self.wait_for_signal("review", timeout=HOUR)
        return [self.ship(verdict), dict(self.context)]

    @step
    def reserve(self) -> None:
        self._do("reserve")

    @step
    def charge(self) -> None:
        self._do("charge")
        self.context["charged"] = self.context.get("charged", 0) + 1

    @step
    def ship(self, verdict: str) -> str:
        self._do("ship")
        return verdict

    def _do(self, name: str) -> None:
        DONE.append(self.idempotency_key.partition(":")[2])
        if name in BROKEN:
            raise KeyError(name)


def finish(bench: Workbench, run: Any) -> Any:
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    run.signal("review", "fine")
    bench.drain()
    return run.result(AT_ONCE)


def test_the_call_whose_error_left_run_is_made_once_more(bench: Workbench) -> None:
    """Its row counts no more, and its attempts are counted anew; what came before it stays."""
    BROKEN.add("charge")
    run = Order.start()
    bench.drain()
    assert run.state is RunState.FAILED
    assert DONE == ["reserve", "charge", "charge"]
    run.resume()
    bench.drain()
    assert run.state is RunState.FAILED
    assert DONE == ["reserve", "charge", "charge", "charge", "charge"]
    BROKEN.clear()
    run.resume()
    assert finish(bench, run) == ["fine", {"at": "charged", "charged": 1}]
    assert [row.name for row in run.steps if row.superseded_at] == ["charge", "charge"]


def test_a_wait_that_ran_out_begins_anew(bench: Workbench) -> None:
    """It is the wait whose error left ``run()``: the signal that came meanwhile is read."""
    run = Order.start()
    bench.drain()
    for _ in range(2):
        bench.travel(HOUR)
        bench.drain()
    assert run.state is RunState.FAILED
    assert run.info().error_class == "stepwell.errors.WaitTimedOut"
    run.signal("review", "late")
    run.resume()
    bench.drain()
    assert run.result(AT_ONCE)[0] == "late"
    assert DONE == ["reserve", "charge", "ship"]


def test_an_error_of_run_itself_supersedes_nothing(bench: Workbench) -> None:
    """It is replayed once more, and no call is made again."""

    class Broken(Workflow):
        workflow_name = "resuming.Broken"

        def run(self) -> str:
            self.step("note", DONE.append, "note")
            if "run" in BROKEN:
                raise ValueError("no")
            return "fine"

    BROKEN.add("run")
    run = Broken.start()
    bench.drain()
    assert run.state is RunState.FAILED
    BROKEN.clear()
    run.resume()
    bench.drain()
    assert run.result(AT_ONCE) == "fine"
    assert DONE == ["note"]


def test_an_earlier_failure_is_not_taken_back_again(bench: Workbench) -> None:
    """Only the last failure of the run is looked at: the call that was repaired keeps its answer."""
    BROKEN.add("charge")
    run = Order.start()
    bench.drain()
    BROKEN.clear()
    run.resume()
    bench.drain()
    run.pause()
    run.resume()
    assert finish(bench, run)[0] == "fine"
    assert DONE.count("charge") == 3


@pytest.mark.parametrize(
    ("name", "again"),
    [("reserve", ["reserve", "charge", "ship"]), ("charge", ["charge", "ship"]), ("ship", ["ship"])],
)
def test_a_run_is_taken_back_to_a_step(bench: Workbench, name: str, again: list[str]) -> None:
    """From its first row on all is done again, the waits among it; the context is what is left of it."""
    BROKEN.add("ship")
    run = Order.start()
    bench.drain()
    bench.travel(HOUR)
    run.signal("review", "fine")
    bench.drain()
    assert run.state is RunState.FAILED
    BROKEN.clear()
    DONE.clear()
    run.resume(from_step=name)
    assert run.current_step == name
    if name == "ship":
        bench.drain()
        assert run.result(AT_ONCE) == ["fine", {"at": "charged", "charged": 1}]
    else:
        assert finish(bench, run) == ["fine", {"at": "charged", "charged": 1}]
    assert again == DONE


def test_a_run_is_taken_back_to_a_wait(bench: Workbench) -> None:
    """A sleep begins anew, and a signal is waited for anew: what was read stays read."""
    BROKEN.add("ship")
    run = Order.start()
    bench.drain()
    bench.travel(HOUR)
    run.signal("review", "fine")
    bench.drain()
    BROKEN.clear()
    run.resume(from_step="rest")
    bench.drain()
    assert run.state is RunState.WAITING
    bench.travel(HOUR)
    bench.drain()
    assert run.info().state == "awaiting"
    run.signal("review", "again")
    bench.drain()
    assert run.result(AT_ONCE)[0] == "again"


def test_a_run_that_is_taken_back_keeps_its_keys_unless_told_otherwise(bench: Workbench) -> None:
    """No second charge, except on purpose; steps before that keep theirs."""
    BROKEN.add("ship")
    run = Order.start()
    bench.drain()
    bench.travel(HOUR)
    run.signal("review", "fine")
    bench.drain()
    BROKEN.clear()
    DONE.clear()
    run.resume(from_step="charge", new_keys=True)
    finish(bench, run)
    assert DONE == ["charge:2", "ship:2"]


def test_run_is_not_taken_back_to_what_it_has_not_come_to(bench: Workbench) -> None:
    """The message says what is recorded."""
    run = Order.start()
    bench.drain()
    run.pause()
    with pytest.raises(RunError, match=r"no step or wait 'ship' yet.* come to reserve, charge, rest\."):
        run.resume(from_step="ship")


def test_what_was_called_is_canceled_when_its_caller_is_taken_back(bench: Workbench) -> None:
    """It is called anew where the run comes there again."""

    class Child(Workflow):
        workflow_name = "resuming.Child"
        unique_by = "number"

        def run(self, number: int) -> int:
            self.sleep(HOUR)
            return number

    class Parent(Workflow):
        workflow_name = "resuming.Parent"

        def run(self) -> Any:
            self.step("first", DONE.append, "first")
            return self.call(Child, 7)

    run = Parent.start()
    bench.drain()
    run.pause()
    run.resume(from_step="first")
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    assert run.result(AT_ONCE) == 7
    assert DONE == ["first", "first"]
    assert [row.state for row in bench.engine.runs(Child).oldest().infos()] == ["canceled", "completed"]
