"""What run() has put into the context is its own doing, and no condition's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import StepFailed, Workflow, step
from stepwell.states import RunState
from tests.unit.execution.memory import MemoryRun
from tests.unit.execution.procedures import driven, replayed


class Reader(Workflow[None]):
    def run(self, verb: str, is_writing: bool = False) -> dict[str, Any]:
        self.work()
        self.context["mine"] = {"of": "run"}
        self.context["is_writing"] = is_writing
        getattr(self, verb)(self.is_met)
        return dict(self.context)

    def conditionally(self, condition: Any) -> None:
        self.leave_out()

    def is_met(self) -> bool:
        if self.context["is_writing"]:
            self.context["mine"]["of"] = "a condition"
        return self.context["mine"] == {"of": "run"}

    @step
    def work(self) -> None:
        self.context["done"] = True

    @step(skip_if="is_met")
    def leave_out(self) -> None: ...


@pytest.mark.parametrize("verb", ["wait_until", "continue_if", "conditionally"])
def test_a_condition_sees_what_run_has_put_into_the_context(verb: str) -> None:
    """It is not blamed for it, and it changes nothing about it, on replay neither."""
    for run in (driven(Reader, verb=verb), replayed(MemoryRun(Reader, args={"verb": verb})).drive()):
        assert run.state is RunState.COMPLETED
        assert run.memory == {"done": True, "is_writing": False, "mine": {"of": "run"}}


@pytest.mark.parametrize("verb", ["wait_until", "continue_if", "conditionally"])
def test_a_condition_that_writes_where_run_has_written_is_refused(verb: str) -> None:
    """Also deep inside a value that is not committed yet."""
    run = driven(Reader, verb=verb, is_writing=True)
    assert run.state is RunState.FAILED
    assert "Conditions are looked at, not journaled" in (run.error_message or "")


def test_a_poll_that_comes_back_sees_it_again() -> None:
    """A replay writes it anew before the condition is looked at."""

    class Polls(Workflow[None]):
        looks = 0

        def run(self) -> str:
            self.context["wanted"] = 3
            try:
                self.wait_until(self.is_enough, every=timedelta(hours=1))
            except StepFailed as failure:
                return failure.message
            return "enough"

        def is_enough(self) -> bool:
            Polls.looks += 1
            return Polls.looks == self.context["wanted"]

    run = driven(Polls)
    assert (run.result, Polls.looks) == ('"enough"', 3)
