"""Runs without an end: each begins a new journal from time to time, and nothing gets lost on the way."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from stepwell import RunAlreadyExists, RunCanceled, StepFailed, Unstorable, Workflow, WrongArguments, step
from stepwell.execution import replay
from stepwell.states import Reason, RunState
from stepwell.testing import CrashPoint, Workbench
from tests.integration.town import Person, Town

AT_ONCE = timedelta()
HOUR = timedelta(hours=1)


class Loop(Workflow):
    """Reads a signal in each round."""

    workflow_name = "over.Loop"
    unique_by = "name"

    def run(self, name: str, turn: int = 0, turns: int = 3) -> Any:
        self.context["seen"] = self.context.get("seen", 0) + 1
        said = self.wait_for_signal("go")
        self.context["said"] = [*self.context.get("said", []), said]
        self.step("note", lambda: turn)
        if turn + 1 < turns:
            self.start_over(name=name, turn=turn + 1, turns=turns)
        return [self.context["seen"], self.context["said"]]


class Forgetful(Workflow):
    """Goes on with a context of its own making."""

    workflow_name = "over.Forgetful"

    def run(self, turn: int = 0) -> Any:
        if turn == 0:
            self.context["big"] = "x" * 100
            self.start_over(turn=1, context={})
        if turn == 1:
            assert dict(self.context) == {}
            self.start_over(turn=2, context={"a": [1]})
        return dict(self.context)


def chain(bench: Workbench) -> list[Any]:
    return bench.engine.runs().oldest().infos()


def test_a_run_that_starts_over_goes_on_under_its_identity(bench: Workbench) -> None:
    """Signals, context and identity go over; the result of the first run is that of the last."""
    run = Loop.start("a")
    for number in range(3):
        run.signal("go", number)
    bench.drain()
    assert run.result(AT_ONCE) == [3, [0, 1, 2]]
    first, second, third = chain(bench)
    assert (first.state, first.reason) == (RunState.COMPLETED, Reason.CONTINUED)
    assert [second.continues_from, third.continues_from] == [first.id, second.id]
    assert run.successor is not None
    assert run.successor.id == second.id
    assert [len(each.steps) for each in bench.engine.runs().oldest()] == [2, 3, 3]
    assert "it was started over, and run" in run.explain()


def test_the_identity_is_never_free_in_between(bench: Workbench) -> None:
    """Another start is refused while any run of the chain is open, and not afterwards."""
    run = Loop.start("a", turns=2)
    run.signal("go", 0)
    bench.drain()
    with pytest.raises(RunAlreadyExists):
        Loop.start("a")
    run.signal("go", 1)
    bench.drain()
    assert run.result(AT_ONCE) == [2, [0, 1]]
    Loop.start("a")


def test_a_context_of_its_own_can_be_given(bench: Workbench) -> None:
    """``context={}`` forgets what was; another mapping takes its place."""
    run = Forgetful.start()
    bench.drain()
    assert run.result(AT_ONCE) == {"a": [1]}


def test_what_was_said_about_the_start_goes_over(bench: Workbench) -> None:
    """Queue, priority and key are those of the first start; its instant is not."""
    run = Loop.with_options(key="by hand", priority=7, at=HOUR).start("a", turns=2)
    bench.travel(HOUR)
    run.signal("go", 0)
    bench.drain()
    first, second = chain(bench)
    assert (second.key, second.priority, second.queue) == (first.key, 7, "default")
    assert second.state == RunState.AWAITING


def test_a_signal_to_a_run_that_was_started_over_goes_to_its_successor(bench: Workbench) -> None:
    """Whoever keeps the first run's id reaches the one that goes on."""
    run = Loop.start("a")
    for number in range(3):
        assert run.signal("go", number, idempotency_key=str(number))
        bench.drain()
    assert run.result(AT_ONCE) == [3, [0, 1, 2]]


def test_a_signal_of_a_transaction_that_was_open_goes_over(bench: Workbench) -> None:
    """It was sent to a run that has been started over by the time it is committed."""
    if bench.engine.database.dialect.has_one_writer:
        pytest.skip("nobody else writes while a transaction is open")
    run = Loop.start("a", turns=2)
    bench.drain()
    with Session(bench.engine.database.engine) as session:
        run.signal("go", "late", session=session)
        run.signal("go", "early")
        bench.drain()
        assert run.reason == Reason.CONTINUED
        session.commit()
    bench.drain()
    assert run.result(AT_ONCE) == [2, ["early", "late"]]


def test_the_sweep_of_a_worker_forwards_what_its_sender_could_not(bench: Workbench) -> None:
    """The sender died between its commit and the wake."""
    if bench.engine.database.dialect.has_one_writer:
        pytest.skip("nobody else writes while a transaction is open")
    run = Loop.start("a", turns=2)
    bench.drain()
    with bench.engine.database.engine.connect() as connection:
        run.signal("go", "late", connection=connection)
        run.signal("go", "early")
        bench.drain()
        connection.commit()
    bench.travel(timedelta(seconds=2))
    bench.drain()
    assert run.result(AT_ONCE) == [2, ["early", "late"]]


def test_a_stop_that_was_asked_for_comes_before_starting_over(bench: Workbench) -> None:
    """An endless run can be canceled at any moment: no request gets lost at the seam."""

    class Endless(Workflow):
        workflow_name = "over.Endless"

        def run(self, turn: int = 0) -> None:
            if turn == 3:
                self.step("ask", lambda: bench.engine.run(self.run_id).cancel("enough"))
            self.start_over(turn=turn + 1)

    run = Endless.start()
    bench.drain()
    with pytest.raises(RunCanceled, match="enough"):
        run.result(AT_ONCE)
    assert len(chain(bench)) == 4


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_SETTLE, CrashPoint.AFTER_SETTLE])
def test_a_worker_that_dies_at_the_seam_leaves_one_run_open(bench: Workbench, point: CrashPoint) -> None:
    """The end and the start are one transaction: both, or none and then again."""
    run = Loop.start("a", turns=2)
    bench.drain()
    run.signal("go", 0)
    with bench.crash_at(point):
        bench.drain()
    # The lease runs out, and then the delay of a recovery.
    for _ in range(2):
        bench.travel(HOUR)
        bench.drain()
    assert len(chain(bench)) == 2
    run.signal("go", 1)
    bench.travel(HOUR)
    bench.drain()
    assert run.result(AT_ONCE) == [2, [0, 1]]


def test_a_call_waits_for_the_last_of_a_chain(bench: Workbench) -> None:
    """The parent of a run that starts over hears of its end, and not of the seams."""

    class Parent(Workflow):
        workflow_name = "over.Parent"

        def run(self) -> Any:
            return self.call(Loop, "a")

    run = Parent.start()
    bench.drain()
    first = next(row for row in chain(bench) if row.parent_id == run.id)
    for number in range(3):
        assert run.state is RunState.AWAITING
        bench.engine.run(first.id).signal("go", number)
        bench.drain()
    assert run.result(AT_ONCE) == [3, [0, 1, 2]]
    assert [row.parent_id for row in chain(bench)] == [None, run.id, run.id, run.id]


def test_the_parent_of_a_chain_cancels_its_last_run(bench: Workbench) -> None:
    """The successor is the child from then on."""

    class Parent(Workflow):
        workflow_name = "over.CanceledParent"

        def run(self) -> Any:
            return self.call(Loop, "a")

    run = Parent.start()
    bench.drain()
    bench.engine.run(next(row.id for row in chain(bench) if row.parent_id)).signal("go", 0)
    bench.drain()
    run.cancel()
    bench.drain()
    assert [row.state for row in chain(bench)] == ["canceled", "completed", "canceled"]


class Misled(Workflow):
    workflow_name = "over.Misled"

    def run(self, how: str) -> Any:
        try:
            if how == "args":
                self.start_over(stranger=1)
            if how == "value":
                self.start_over(how=object())
            self.start_over(how=how, context={"a": object()})
        except (WrongArguments, Unstorable) as error:
            return type(error).__name__


@pytest.mark.parametrize(
    ("how", "told"), [("args", "WrongArguments"), ("value", "Unstorable"), ("context", "Unstorable")]
)
def test_what_cannot_be_handed_over_is_refused(bench: Workbench, how: str, told: str) -> None:
    """The run goes on, or fails, as its author likes."""
    run = Misled.start(how)
    bench.drain()
    assert run.result(AT_ONCE) == told


def test_starting_over_is_for_the_body_of_run(bench: Workbench) -> None:
    """In a step it is an error that says so."""

    class Wrong(Workflow):
        workflow_name = "over.Wrong"

        def run(self) -> Any:
            try:
                self.inner()
            except StepFailed as error:
                return error.message

        @step
        def inner(self) -> None:
            self.start_over()

    run = Wrong.start()
    bench.drain()
    assert "start_over() works in the body of run(), not inside step 'inner'" in run.result(AT_ONCE)


def test_a_hero_goes_over(town: Town) -> None:
    """The successor is about the same record."""

    class Living(Workflow[Person]):
        workflow_name = "over.Living"

        def run(self, turn: int = 0) -> Any:
            if turn < 2:
                self.start_over(turn=turn + 1)
            return self.name()

        @step
        def name(self) -> Any:
            return self.hero.name

    person = town.person("Mill")
    with Workbench(town.well, raise_errors=False) as bench:
        run = Living.start(person)
        bench.drain()
        assert run.result(AT_ONCE) == "Mill"
        assert bench.engine.runs(Living).for_hero(person).count() == 3


def test_a_long_journal_is_warned_of(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once per activation, with the run's name."""
    monkeypatch.setattr(replay, "_LONG", 3)

    class Long(Workflow):
        workflow_name = "over.Long"

        def run(self) -> None:
            for number in range(5):
                self.step("note", int, number)

    run = Long.start()
    with caplog.at_level(logging.WARNING):
        bench.drain()
    (record,) = [each for each in caplog.records if getattr(each, "action", "") == "run.long_journal"]
    assert record.__dict__["run_id"] == str(run.id)
    assert record.__dict__["entries"] == 5
