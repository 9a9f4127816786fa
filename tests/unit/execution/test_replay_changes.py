"""A context that is changed from outside: ``run()`` sees it from one place on, the same on every pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from stepwell import Poll, Retry, Workflow, resumable_step, step
from stepwell.execution.attempts import BESIDE
from stepwell.requests import CONTEXT_MAIL
from stepwell.states import Kind, RunState
from tests.unit.execution.memory import Crash, MemoryJournal, MemoryRun
from tests.unit.execution.procedures import driven, replayed
from tests.unit.execution.test_replay_crashes import CRASHES, PROGRAMS, Act, Journey

HOUR = timedelta(hours=1)


def test_it_is_seen_from_where_it_was_taken_up() -> None:
    """Not before it, on no pass."""
    seen: list[Any] = []

    class Looks(Workflow[None]):
        def run(self) -> None:
            seen.append(("start", self.context.get("x")))
            self.work()
            seen.append(("worked", self.context.get("x")))
            self.pause()
            self.work()
            seen.append(("worked again", self.context.get("x")))
            self.sleep(HOUR)

        @step
        def work(self) -> None: ...

    run = driven(Looks)
    run.change(x=1)
    run.resume()
    replayed(run).drive()
    assert run.state is RunState.COMPLETED
    assert run.memory == {"x": 1}
    assert set(seen) == {("start", None), ("worked", None), ("worked again", 1)}


def test_what_is_there_before_the_run_begins_is_seen_from_its_first_line() -> None:
    """On every pass, and in the order in which it came."""
    seen: list[Any] = []

    class Looks(Workflow[None]):
        def run(self) -> Any:
            seen.append(dict(self.context))
            self.work()
            return dict(self.context)

        @step
        def work(self) -> None:
            self.context["y"] = self.context["x"] + 1

    run = MemoryRun(Looks)
    run.change(x=1)
    run.change("x")
    run.change(x=2)
    replayed(run).drive()
    assert set(map(str, seen)) == {"{'x': 2}"}
    assert json.loads(run.result) == run.memory == {"x": 2, "y": 3}
    assert [row.name for row in run.journal if row.kind is Kind.CONTEXT] == ["start"] * 3


def test_the_journal_tells_who_has_changed_what() -> None:
    """In a row of its own."""

    class Looks(Workflow[None]):
        def run(self) -> None:
            self.sleep(HOUR)

    run = MemoryRun(Looks)
    run.activate()
    run.change("gone", x=1)
    run.drive()
    (row,) = [row for row in run.journal if row.kind is Kind.CONTEXT]
    assert (row.name, json.loads(row.details or "")) == ("update", {"by": "ops"})
    assert json.loads(row.context_delta or "") == {"set": {"x": 1}, "gone": ["gone"]}


WAITS: dict[str, Callable[[Any], Any]] = {
    "sleep": lambda self: self.sleep(HOUR),
    "sleep_until": lambda self: self.sleep_until(lambda: self.args["at"]),
    "signal": lambda self: self.wait_for_signal("go", timeout=HOUR, default=None),
    "poll": lambda self: self.wait_until(lambda: self.context.get("x"), every=HOUR),
    "gate": lambda self: self.continue_if(lambda: self.context.get("x")),
    "retry": lambda self: self.fails_once(),
    "suspended": lambda self: self.suspends(),
    "repeat": lambda self: self.repeat(self.tick, every=HOUR, until=lambda: self.context.get("x", 0) > 1),
}


class Waits(Workflow[None]):
    """Waits in one way, for about an hour; knows what it saw before and after."""

    wait: Any
    seen: list[Any]

    def run(self, at: Any) -> Any:
        self.context["mine"] = "before"
        self.context["both"] = "before"
        WAITS[self.wait](self)
        self.seen.append(dict(self.context))
        self.context["both"] = "after"
        self.work()
        return dict(self.context)

    @step
    def work(self) -> None: ...

    @step(on_exception=Retry(attempts=2, wait=HOUR))
    def fails_once(self) -> None:
        if "x" not in self.context:
            raise OSError
        self.context["x"] += 1

    @resumable_step
    def suspends(self) -> None:
        if self.cursor.value is None:
            self.context["part"] = 1
            self.cursor.set(1)
            self.suspend(wait=HOUR)
        self.context["x"] += 1

    def tick(self) -> None:
        self.context["ticks"] = self.context.get("ticks", 0) + 1
        if "x" in self.context:
            self.context["x"] += 1


@pytest.mark.parametrize("wait", WAITS)
def test_it_is_seen_behind_the_wait_during_which_it_came(wait: str) -> None:
    """The wait's row is older than the change, and ends after it: what it ends with comes last."""
    kept: list[Any] = []

    class Here(Waits):
        pass

    Here.wait, Here.seen = wait, kept
    run = MemoryRun(Here)
    run.args = {"at": run.clock.now() + HOUR}
    run.activate()
    run.clock.travel(HOUR / 2)
    run.change(x=1, both="outside")
    if replayed(run).drive().state is RunState.AWAITING:
        run.wake()
        run.drive()
    assert run.state is RunState.COMPLETED, run.error_message
    assert len(kept) > 1
    own = {"retry": 2, "suspended": 2, "repeat": 2}.get(wait, 1)
    assert {(each["x"], each["both"], each["mine"]) for each in kept} == {(own, "outside", "before")}
    assert json.loads(run.result) == run.memory
    assert (run.memory["x"], run.memory["both"]) == (own, "after")


def test_two_changes_around_a_checkpoint_stay_in_their_order() -> None:
    """Each row holds what came from outside before it ended, and no more."""
    kept: list[Any] = []

    class Long(Workflow[None]):
        def run(self) -> Any:
            self.long()
            kept.append(dict(self.context))
            self.sleep(HOUR)
            return dict(self.context)

        @resumable_step(max_iterations=1)
        def long(self) -> Iterator[int]:
            for number in range(self.cursor.value or 0, 4):
                self.context["x"] = self.context.get("x", 0) + 1
                yield number + 1

    run = MemoryRun(Long)
    places = count()

    def change_with_each_other_write(moment: str) -> None:
        if moment == "with" and (place := next(places)) % 2 and place < 8:
            run.change(x=100 * place)

    run.at_boundary = change_with_each_other_write
    run.activate()
    replayed(run).drive()
    assert sum(row.kind is Kind.CONTEXT for row in run.journal) > 2
    assert len(kept) > 1
    assert {each["x"] for each in kept} == {run.memory["x"]}
    assert json.loads(run.result) == run.memory


def test_a_rewind_leaves_the_change_where_it_was() -> None:
    """The wait that held it counts no more; the change does."""

    class Waits(Workflow[None]):
        def run(self) -> Any:
            self.first()
            self.sleep(HOUR)
            self.context["seen"] = self.context.get("x")
            self.fails()
            return dict(self.context)

        @step
        def first(self) -> None: ...

        @step
        def fails(self) -> None:
            if is_broken:
                raise OSError

    is_broken = [True]
    run = MemoryRun(Waits)
    run.activate()
    run.change(x=1)
    run.drive()
    assert run.state is RunState.FAILED
    is_broken.clear()
    run.superseded |= {row.position for row in run.journal if row.kind in (Kind.TIMER, Kind.STEP)}
    run.superseded -= {1}
    run.resume()
    replayed(run).drive()
    assert json.loads(run.result) == run.memory == {"x": 1, "seen": 1}


def test_a_declared_step_sees_it() -> None:
    """From the next boundary on, and where the step waits for it."""

    class Declared(Workflow[None]):
        @step
        def first(self) -> None:
            self.context["a"] = 1

        @step(wait_until=Poll(lambda self: self.context.get("x"), every=HOUR))
        def second(self) -> None:
            self.context["a"] += self.context["x"]

        @step(gate=lambda self: self.context.get("y"))
        def third(self) -> None:
            self.finish(dict(self.context))

    run = MemoryRun(Declared)
    run.activate()
    run.change(x=1)
    run.wake()
    run.activate()
    assert run.state is RunState.AWAITING
    run.change("x", y=1)
    assert run.state is RunState.READY
    run.drive()
    assert json.loads(run.result) == run.memory == {"a": 2, "y": 1}


def test_whoever_gets_no_mail_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever was woken looks once in each activation."""

    class Plain(Workflow[None]):
        def run(self) -> None:
            for _ in range(3):
                self.work()
            self.wait_for_signal("go")
            for _ in range(3):
                self.work()

        @step
        def work(self) -> None: ...

    looks: list[str] = []
    look = MemoryJournal.unread_signal

    def counted(journal: MemoryJournal, name: str) -> Any:
        looks.append(name)
        return look(journal, name)

    monkeypatch.setattr(MemoryJournal, "unread_signal", counted)
    run = MemoryRun(Plain)
    run.activate()
    assert looks == ["go"]
    run.signal("go")
    looks.clear()
    run.drive()
    assert run.state is RunState.COMPLETED
    assert looks == [CONTEXT_MAIL, "go"]


class Watching(Journey):
    """Knows what each line of ``run()`` saw, on every pass; its commands are signals and changes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.left = list(self.commands)
        self.views: dict[int, set[str]] = {}

    def saw(self, number: int, context: dict[str, Any]) -> None:
        # Before run() has called anything, nothing is recorded of what it saw.
        if any(row.kind not in BESIDE for row in self.run.journal):
            self.views.setdefault(number, set()).add(json.dumps(context, sort_keys=True))

    def at_boundary(self, moment: str) -> None:
        number = self.boundaries[moment]
        self.boundaries[moment] += 1
        if moment == "with":
            self.command()
        if (number, moment) in self.crashes:
            self.died += 1
            raise Crash

    def command(self) -> None:
        while self.left and self.run.row_count() >= self.left[0][0]:
            place, verb = self.left.pop(0)
            match verb:
                case "signal":
                    self.run.signal("go", verb)
                case "set":
                    self.run.change(step0="outside", run1=place, list=["outside", place])
                case "delete":
                    self.run.change("list", "step1", items=[place])


COMMANDED = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from(["set", "delete", "signal"])), min_size=1, max_size=5
).map(lambda commands: tuple(sorted(commands)))


@settings(max_examples=150)
@given(program=PROGRAMS, crashes=CRASHES, commands=COMMANDED)
def test_every_line_sees_the_same_on_every_pass(
    program: tuple[Act, ...], crashes: frozenset[tuple[int, str]], commands: tuple[tuple[int, str], ...]
) -> None:
    """Whatever comes from outside at whatever moment, and wherever workers die."""
    program = tuple(act for act in program if act.kind != "pause")
    journey = Watching(program, crashes, commands).go()
    run = journey.run
    taken = sum(row.kind is Kind.CONTEXT for row in run.journal)
    event(f"{taken} changes, {journey.died} crashes, {run.state}")

    assert {number: views for number, views in journey.views.items() if len(views) > 1} == {}
    calls = [row.position for row in run.journal if row.kind not in BESIDE]
    is_late = any(row.kind is Kind.CONTEXT and row.position > max(calls, default=0) for row in run.journal)
    if run.state is RunState.COMPLETED and program and not is_late:
        assert json.loads(run.result)[-1][0] == run.memory
