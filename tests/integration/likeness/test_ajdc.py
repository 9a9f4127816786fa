"""What AJ/DC's users rely on, and what they trip over: the behaviours that no other test is about."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stepwell import Workflow, step
from stepwell.testing import Workbench

HOUR = timedelta(hours=1)


def test_hooks_are_not_called_for_what_a_replay_passes(bench: Workbench) -> None:
    """Once for each attempt, however often ``run()`` is called anew."""
    heard: list[str] = []

    class Hooked(Workflow):
        def run(self) -> None:
            for _ in range(3):
                self.work()
                self.sleep(HOUR)

        @step
        def work(self) -> None: ...

        def before_step(self, step: str) -> None:
            heard.append("before")

        def after_step(self, step: str, outcome: object) -> None:
            heard.append(str(outcome))

    assert bench.run_to_end(Hooked.start()) == "completed"
    assert heard == ["before", "success"] * 3


@pytest.mark.parametrize("is_early", [True, False])
def test_a_return_ends_the_run_with_its_value(bench: Workbench, is_early: bool) -> None:
    """Also an early one; what it leaves out has no entry."""

    class Returns(Workflow):
        def run(self, is_early: bool) -> dict[str, int]:
            if is_early:
                return {"answer": 1}
            self.wait_for_signal("go", timeout=HOUR, default=None)
            return {"answer": 2}

    run = Returns.start(is_early=is_early)
    assert bench.run_to_end(run) == "completed"
    assert run.result() == {"answer": 1 if is_early else 2}
    assert len(run.steps) == (0 if is_early else 1)


def test_an_error_after_progress_is_an_error(bench: Workbench) -> None:
    """Nothing is resumed by itself: without a policy an error that repeats would go round for ever."""

    class Progresses(Workflow):
        attempts = 0

        def run(self) -> None:
            self.first()
            self.second()

        @step
        def first(self) -> None: ...

        @step
        def second(self) -> None:
            Progresses.attempts += 1
            raise ValueError("a bug")

    run = Progresses.start()
    assert bench.run_to_end(run) == "failed"
    bench.travel(10 * HOUR)
    assert bench.drain() == 0
    assert Progresses.attempts == 1


def test_a_signal_with_the_name_of_a_step_is_kept_for_its_wait(bench: Workbench) -> None:
    """In AJ/DC the step drops it when it starts."""

    class Named(Workflow):
        def run(self) -> str:
            self.review()
            answer: str = self.wait_for_signal("review")
            return answer

        @step
        def review(self) -> None: ...

    run = Named.start()
    run.signal("review", "fine")
    assert bench.run_to_end(run) == "completed"
    assert run.result() == "fine"


def test_a_run_keeps_its_id_and_its_key_through_stops(bench: Workbench) -> None:
    """Paused, resumed and retried it is the same run, for whoever has noted its id."""
    keys: list[str] = []

    class Kept(Workflow):
        def run(self) -> str:
            self.charge()
            self.pause("look")
            return str(self.run_id)

        @step
        def charge(self) -> None:
            keys.append(self.idempotency_key)
            if len(keys) == 1:
                self.retry()

    run = Kept.start()
    assert bench.run_to_end(run) == "paused"
    run.resume()
    assert bench.run_to_end(run) == "completed"
    assert run.result() == str(run.id)
    assert keys == [f"{run.id}:charge"] * 2
