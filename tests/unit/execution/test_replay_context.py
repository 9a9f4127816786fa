"""Context is replayed, not read: ``run()`` sees at each point what it saw there the first time."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, StepFailed, Workflow, resumable_step, step
from stepwell.states import RunState
from tests.unit.execution.memory import MemoryRun
from tests.unit.execution.procedures import crashed_everywhere, driven, replayed

HOUR = timedelta(hours=1)


def summed(run: MemoryRun) -> dict[str, Any]:
    """What the rows' changes come to, one after the other."""
    values: dict[str, Any] = {}
    for row in run.journal:
        if row.context_delta is not None and row.position not in run.superseded:
            change = json.loads(row.context_delta)
            values.update(change["set"])
            for name in change["gone"]:
                values.pop(name, None)
    return values


def test_a_branch_is_taken_as_it_was_taken() -> None:
    """A later step that clears the flag, or empties the list, changes no decision that was made before it."""
    seen: list[Any] = []

    class OrderProcessing(Workflow[None]):
        def run(self) -> str:
            self.reserve_stock()
            seen.append(copy.deepcopy(dict(self.context)))
            if self.context.get("needs_review"):
                verdict = self.wait_for_signal("review")
                self.note(verdict)
            for item in self.context["items"]:
                self.ship(item)
            self.close()
            self.sleep(HOUR)
            return f"{self.context['verdict']}, {self.context.get('items')}"

        @step
        def reserve_stock(self) -> None:
            self.context.update(needs_review=True, items=["A", "B"])

        @step
        def note(self, verdict: str) -> None:
            self.context["verdict"] = verdict
            self.context["needs_review"] = False

        @step(key_by="item")
        def ship(self, item: str) -> None:
            self.context.setdefault("shipped", []).append(item)

        @step
        def close(self) -> None:
            del self.context["items"]

    run = replayed(MemoryRun(OrderProcessing)).drive()
    run.signal("review", "approved")
    run.drive()
    assert (run.state, run.result) == (RunState.COMPLETED, '"approved, None"')
    assert run.story == ["reserve_stock success", "note success", *["ship success"] * 2, "close success"]
    assert run.memory == {"needs_review": False, "verdict": "approved", "shipped": ["A", "B"]}
    assert len(seen) > 5
    assert all(each == {"needs_review": True, "items": ["A", "B"]} for each in seen)
    assert run.details is None


def test_what_run_writes_itself_is_written_again() -> None:
    """And stored with whatever is journaled next."""

    class Counts(Workflow[None]):
        def run(self) -> list[Any]:
            seen = []
            for number in range(3):
                self.context["n"] = self.context.get("n", 0) + 1
                self.context.setdefault("list", []).append(number)
                seen.append(self.look())
            self.context["last"] = True
            self.sleep(HOUR)
            self.context["n"] += 10
            del self.context["last"]
            return [seen, self.context["n"]]

        @step
        def look(self) -> Any:
            self.context["looks"] = self.context.get("looks", 0) + 1
            return [self.context["n"], self.context["list"]]

    for run in crashed_everywhere(lambda: MemoryRun(Counts)):
        assert run.state is RunState.COMPLETED, run.error_message
        assert json.loads(run.result) == [[[1, [0]], [2, [0, 1]], [3, [0, 1, 2]]], 13]
        assert run.memory == {"n": 13, "list": [0, 1, 2], "looks": 3}


def test_a_failing_step_undoes_its_own_changes_only() -> None:
    """What ``run()`` had written before it stays, on every pass."""
    seen: list[Any] = []

    class Fails(Workflow[None]):
        def run(self) -> Any:
            self.context["before"] = [1]
            try:
                self.bad()
            except StepFailed:
                seen.append(copy.deepcopy(dict(self.context)))
            self.context["before"].append(2)
            self.good()
            return dict(self.context)

        @step(on_exception=Retry(OSError, attempts=2, wait=HOUR))
        def bad(self) -> None:
            self.context["before"].append("bad")
            self.context["bad"] = True
            raise OSError

        @step
        def good(self) -> None:
            self.context["good"] = list(self.context["before"])

    for run in crashed_everywhere(lambda: MemoryRun(Fails)):
        assert run.memory == {"before": [1, 2], "good": [1, 2]} == json.loads(run.result)
        assert run.memory == summed(run)
    assert all(each == {"before": [1]} for each in seen)


def test_changes_that_are_recorded_more_than_once_are_all_kept() -> None:
    """Checkpoints of one row, executions of one step, looks of one wait."""
    seen: list[Any] = []

    class Long(Workflow[None]):
        def run(self) -> Any:
            self.context["begun"] = True
            self.load()
            seen.append(copy.deepcopy(dict(self.context)))
            self.context["waiting"] = 1
            self.sleep(HOUR)
            seen.append(copy.deepcopy(dict(self.context)))
            self.end()
            return dict(self.context)

        @resumable_step(max_iterations=2)
        def load(self) -> Any:
            for number in range(self.cursor.value or 0, 5):
                self.context[f"n{number}"] = True
                if number > 1:
                    self.context.pop(f"n{number - 2}", None)
                yield number + 1

        @step
        def end(self) -> None:
            self.context.pop("waiting")

    run = replayed(MemoryRun(Long)).drive()
    expected = {"begun": True, "n3": True, "n4": True}
    assert run.memory == expected == json.loads(run.result)
    assert all(each in (expected, {**expected, "waiting": 1}) for each in seen)
    assert {len(each) for each in seen} == {3, 4}


def test_a_nested_change_of_what_a_step_left_is_found() -> None:
    """Deep inside, by ``run()`` and by steps."""

    class Deep(Workflow[None]):
        def run(self) -> Any:
            self.make()
            self.context["tree"]["leaves"].append("run")
            self.grow()
            self.context["tree"]["leaves"][0] = "first"
            self.sleep(HOUR)
            return self.context["tree"]

        @step
        def make(self) -> None:
            self.context["tree"] = {"leaves": []}

        @step
        def grow(self) -> None:
            self.context["tree"]["leaves"].append("step")

    for run in crashed_everywhere(lambda: MemoryRun(Deep)):
        assert json.loads(run.result) == {"leaves": ["first", "step"]}
        assert run.memory == {"tree": {"leaves": ["first", "step"]}}


def test_what_cannot_be_stored_is_refused_before_the_next_call() -> None:
    """Deep inside a value too: the body of the next step does not run on it."""
    bodies: list[int] = []

    class Bad(Workflow[None]):
        def run(self) -> None:
            self.context["list"] = []
            self.context["list"].append(object())
            self.work()

        @step
        def work(self) -> None:
            bodies.append(1)

    run = driven(Bad)
    assert run.state is RunState.FAILED
    assert run.error_class == "stepwell.errors.Unstorable"
    assert "context['list']" in (run.error_message or "")
    assert bodies == []


def test_an_error_of_the_body_forgets_what_it_wrote_since() -> None:
    """The next pass writes it again, and once."""
    passes: list[int] = []

    class Stumbles(Workflow[None]):
        policies = [Retry(ConnectionError, attempts=3, wait=HOUR)]

        def run(self) -> Any:
            self.work()
            self.context["n"] = self.context.get("n", 0) + 1
            passes.append(1)
            if len(passes) < 3:
                raise ConnectionError
            return self.context["n"]

        @step
        def work(self) -> None: ...

    run = driven(Stumbles)
    assert (run.result, run.memory) == ("1", {"n": 1})


def test_a_call_that_is_tried_anew_keeps_the_order_of_changes() -> None:
    """A step that ran after the failure, and is passed after the new attempt, is not applied over it."""
    is_broken = [True]
    seen: list[Any] = []

    class Cleans(Workflow[None]):
        def run(self) -> Any:
            try:
                self.work()
            finally:
                self.clean()
            seen.append(self.context["state"])
            self.sleep(HOUR)
            return self.context["state"]

        @step
        def work(self) -> None:
            if is_broken:
                raise OSError
            self.context["state"] = "worked"

        @step
        def clean(self) -> None:
            self.context["state"] = "cleaned"

    run = driven(Cleans)
    assert run.state is RunState.FAILED
    is_broken.clear()
    run.resume()
    replayed(run).drive()
    assert run.state is RunState.COMPLETED
    assert json.loads(run.result) == run.memory["state"]
    assert set(seen) == {run.memory["state"]}


def test_a_step_that_undoes_what_run_wrote_undoes_it_on_replay_too() -> None:
    """Neither change is durable by then; the row says so all the same."""
    seen: list[Any] = []

    class Undoes(Workflow[None]):
        def run(self) -> Any:
            self.first()
            self.context["new"] = 1
            self.context["old"] = 1
            self.undo()
            seen.append(dict(self.context))
            self.sleep(HOUR)
            return dict(self.context)

        @step
        def first(self) -> None:
            self.context["old"] = 0

        @step
        def undo(self) -> None:
            del self.context["new"]
            self.context["old"] = 0

    for run in crashed_everywhere(lambda: MemoryRun(Undoes)):
        assert json.loads(run.result) == run.memory == {"old": 0}
    assert all(each == {"old": 0} for each in seen)


def test_what_run_has_taken_from_the_context_is_not_changed_by_a_step() -> None:
    """On replay nobody changes it; nor does run() change by it what the step has left."""

    class Takes(Workflow[None]):
        def run(self) -> Any:
            self.context["items"] = []
            items = self.context["items"]
            self.add()
            items.append("mine")
            self.add()
            return [items, self.context["items"]]

        @step
        def add(self) -> None:
            self.context["items"].append(1)

    for run in crashed_everywhere(lambda: MemoryRun(Takes)):
        assert json.loads(run.result) == [["mine"], [1, 1]]


@pytest.mark.parametrize("what", ["key", "value"])
def test_what_is_no_json_is_refused_where_it_is_said(what: str) -> None:
    """In ``run()`` as in steps: with the name, and catchable."""

    class Bad(Workflow[None]):
        def run(self) -> str:
            try:
                if what == "key":
                    self.context[1] = 2  # type: ignore[index]
                else:
                    self.context["x"] = {1, 2}
            except Exception as error:
                return type(error).__name__
            return "stored"

    assert driven(Bad).result in ('"TypeError"', '"Unstorable"')
