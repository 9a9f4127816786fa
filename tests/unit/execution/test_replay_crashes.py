"""Random programs: a worker that dies anywhere changes nothing but how often a body that was not recorded has run.

A program is a list of things that ``run()`` does. What a step does at an attempt follows from how many of its attempts
are durable, so an undisturbed run and one whose worker dies do the same.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from stepwell import Pause, Retry, Skip, StepFailed, WaitTimedOut, Workflow, resumable_step, step
from stepwell.states import TERMINAL, Kind, Outcome, RunState
from tests.unit.execution.memory import Crash, MemoryRun

HOUR = timedelta(hours=1)
MOST_RESUMES = 8
ACTS = ["ok", "ok", "error", "fatal", "later", "skip", "pause", "pause done", "stop"]
_BESIDE = (Kind.COMMAND, Kind.RECOVERY)
# A cancel that is asked for just before such a row ends the run with it, or, after a crash, before it.
_STOPS = (Kind.BODY, Kind.PAUSE)
# What run() itself changed is stored with the next row; there is none when the run is given back, stopped or over.
_WITH_A_ROW = (RunState.RUNNING, RunState.WAITING, RunState.AWAITING)


class Fatal(Exception):
    """No policy is for it."""


class Stop(Exception):
    """A policy pauses the run for it."""


@dataclass(frozen=True)
class Act:
    """One thing that ``run()`` does.

    Attributes:
        kind: Which.
        acts: What a step does, attempt by attempt.
        change: What it changes in the context.
        is_caught: Its failure is caught.
        hours: How long it waits.
    """

    kind: str
    acts: tuple[str, ...] = ("ok",) * 3
    change: str = ""
    is_caught: bool = True
    hours: int = 1


KINDS = [
    "step",
    "step",
    "step",
    "named",
    "plain",
    "long",
    "sleep",
    "signal",
    "poll",
    "gate",
    "write",
    "pause",
    "stumble",
]
PROGRAMS = st.lists(
    st.builds(
        Act,
        kind=st.sampled_from(KINDS),
        acts=st.tuples(*[st.sampled_from(ACTS)] * 3),
        change=st.sampled_from(["", "set", "append", "delete"]),
        is_caught=st.sampled_from([True, True, False]),
        hours=st.integers(0, 2),
    ),
    min_size=1,
    max_size=6,
).map(tuple)
CRASHES = st.frozensets(
    st.tuples(st.integers(0, 15), st.sampled_from(["before", "after"])), min_size=1, max_size=4
)
COMMANDED = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from(["pause", "resume", "cancel", "skip", "signal"])), max_size=4
).map(lambda commands: tuple(sorted(commands)))


class Program(Workflow[None]):
    """Does what its journey says."""

    policies = [Retry(ConnectionError, attempts=3, wait=HOUR)]
    journey: Journey

    def run(self) -> list[Any]:
        answers: list[Any] = []
        for number, act in enumerate(self.journey.program):
            try:
                answers.append(getattr(self, f"do_{act.kind}")(number, act, answers))
            except (StepFailed, WaitTimedOut) as failure:
                if not act.is_caught:
                    raise
                answers.append(f"{type(failure).__name__} {failure}")
            # Whatever is seen must be seen again.
            self.journey.saw(number, dict(self.context))
            answers.append([copy.deepcopy(dict(self.context)), self.now.isoformat(), str(self.uuid4())])
        return answers

    def do_step(self, number: int, act: Act, answers: list[Any]) -> Any:
        return self.keyed(number, len(json.dumps(answers)))

    def do_named(self, number: int, act: Act, answers: list[Any]) -> Any:
        return self.step(f"named{number}", self.named, number, seen=answers[-2:-1])

    def do_plain(self, number: int, act: Act, answers: list[Any]) -> Any:
        return self.plain()

    def do_long(self, number: int, act: Act, answers: list[Any]) -> Any:
        return self.long(number)

    def do_sleep(self, number: int, act: Act, answers: list[Any]) -> None:
        self.sleep(act.hours * HOUR)

    def do_signal(self, number: int, act: Act, answers: list[Any]) -> Any:
        if act.change == "set":
            return self.wait_for_signal("go", timeout=act.hours * HOUR, default="late")
        return self.wait_for_signal("go", timeout=act.hours * HOUR)

    def do_poll(self, number: int, act: Act, answers: list[Any]) -> Any:
        at = self.journey.run.began_at + 3 * act.hours * HOUR
        return self.wait_until(lambda: self.journey.run.clock.now() >= at, every=HOUR, timeout=4 * HOUR)

    def do_gate(self, number: int, act: Act, answers: list[Any]) -> None:
        self.continue_if(lambda: act.hours or self.journey.run.wakeups)

    def do_write(self, number: int, act: Act, answers: list[Any]) -> None:
        changed(self, act, number, "run")

    def do_pause(self, number: int, act: Act, answers: list[Any]) -> None:
        self.pause(f"pause {number}")

    def do_stumble(self, number: int, act: Act, answers: list[Any]) -> None:
        changed(self, act, number, "run")
        if self.journey.stumbled() <= number:
            raise ConnectionError

    @step(
        key_by="number",
        on_exception=[Retry(ValueError, attempts=2, wait=HOUR), Skip(KeyError), Pause(Stop)],
    )
    def keyed(self, number: int, total: int) -> Any:
        return [self.journey.act(self, number, "keyed", str(number)), total]

    def named(self, number: int, seen: list[Any]) -> Any:
        answer = self.journey.act(self, number, f"named{number}", None)
        seen.append("mine")
        return [answer, seen]

    @step
    def plain(self) -> int:
        self.session.append("plain")
        self.context["plain"] = self.context.get("plain", 0) + 1
        return self.context["plain"]

    @resumable_step(key_by="number", max_iterations=2)
    def long(self, number: int) -> Iterator[int]:
        for item in range(self.cursor.value or 0, 3):
            self.session.append(["long", number, item])
            self.context["items"] = [*self.context.get("items", []), item]
            yield item + 1


def changed(workflow: Any, act: Act, number: int, who: str) -> None:
    match act.change:
        case "set":
            workflow.context[f"{who}{number}"] = number
        case "append":
            workflow.context.setdefault("list", []).append([who, number])
        case "delete":
            workflow.context.pop("list", None)


class Durable(MemoryRun):
    """A run that knows when it began."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.began_at = self.clock.now()

    def row_count(self) -> int:
        """How many rows are durable that a run without trouble has too."""
        return sum(is_certain(row) for row in self.journal)


@dataclass
class Journey:
    """A run of a program, with what comes from outside."""

    program: tuple[Act, ...]
    crashes: frozenset[tuple[int, str]] = frozenset()
    commands: tuple[tuple[int, str], ...] = ()
    run: Any = None
    effects: Counter[Any] = field(default_factory=Counter)
    died: int = 0
    boundaries: Counter[str] = field(default_factory=Counter)
    wrong: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = list(self.commands)
        if any(act.kind == "stumble" for act in self.program):
            # What is asked for just before run() raises is honoured after that, or, after a crash, before it.
            self.left = [(place, verb) for place, verb in self.left if verb in ("skip", "signal")]
        self.run = Durable(type("Journey", (Program,), {"journey": self, "__module__": __name__}))
        self.run.at_boundary = self.at_boundary

    def act(self, workflow: Any, number: int, name: str, key: str | None) -> str:
        """The body of a step."""
        attempt = sum(
            (row.name, row.key) == (name, key) and row.outcome not in (None, Outcome.LOST)
            for row in self.run.journal
        )
        act = self.program[number]
        self.effects[number, attempt] += 1
        workflow.session.append([number, attempt])
        changed(workflow, act, number, "step")
        match act.acts[attempt] if attempt < len(act.acts) else "ok":
            case "error":
                raise ValueError("error")
            case "fatal":
                raise Fatal("fatal")
            case "stop":
                raise Stop("stop")
            case "later":
                workflow.retry(HOUR)
            case "skip" | "pause" as verb:
                getattr(workflow, verb)()
            case "pause done":
                workflow.pause(done=True)
        return f"step {number} at {attempt}"

    def saw(self, number: int, context: dict[str, Any]) -> None:
        """What ``run()`` saw behind this act."""

    def stumbled(self) -> int:
        """How often ``run()`` itself has raised."""
        return sum(row.kind is Kind.BODY and row.outcome is Outcome.RETRIED for row in self.run.journal)

    def at_boundary(self, moment: str) -> None:
        number = self.boundaries[moment]
        self.boundaries[moment] += 1
        if moment == "with":
            self.command()
        if moment == "after" and self.run.state in _WITH_A_ROW and summed(self.run) != self.run.memory:
            self.wrong.append((number, summed(self.run), self.run.memory))
        if (number, moment) in self.crashes:
            self.died += 1
            raise Crash

    def command(self) -> None:
        while self.left and self.run.row_count() >= self.left[0][0]:
            verb = self.left.pop(0)[1]
            self.run.signal("go", verb) if verb == "signal" else getattr(self.run, verb)()

    def go(self) -> Journey:
        """To the end: what stops is resumed, what waits is woken, a few times."""
        run = self.run
        for _ in range(MOST_RESUMES):
            run.drive()
            if run.state in TERMINAL:
                return self
            if run.state is not RunState.AWAITING:
                run.resume()
            elif run.wake_at is not None:
                run.wake()
            else:
                run.nudge()
        self.run.at_boundary = lambda moment: None
        run.drive()
        if run.state not in TERMINAL:
            run.cancel("enough")
        return self

    @property
    def end(self) -> dict[str, Any]:
        """Where it came to, as far as anybody can see."""
        run = self.run
        return {
            "state": run.state,
            "reason": run.reason,
            "error": run.error_message,
            "result": None if run.result is None else without_ids(run.result),
            # What run() itself has written since the last row is there when the cancel is honoured, or not yet.
            "context": run.memory if run.state is RunState.COMPLETED else None,
            "ledger": run.ledger,
            "time": run.clock.now(),
            "rows": [
                (
                    row.kind,
                    row.name,
                    row.key,
                    row.state,
                    row.outcome,
                    row.attempt,
                    row.args_digest,
                    row.result,
                )
                for row in run.journal
                if is_certain(row) and not (run.state is RunState.CANCELED and row.kind in _STOPS)
            ],
        }


def is_certain(row: Any) -> bool:
    """A run without trouble has this row too. Where a long step is interrupted depends on where it began."""
    if row.kind in _BESIDE or row.outcome is Outcome.LOST:
        return False
    return row.name != "long" or row.outcome is Outcome.SUCCESS


def without_ids(result: str) -> Any:
    """The UUIDs are each run's own."""
    return [each[:2] if isinstance(each, list) and len(each) == 3 else each for each in json.loads(result)]


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


@settings(max_examples=60)
@given(program=PROGRAMS, crashes=CRASHES, commands=COMMANDED)
def test_crashes_change_no_end(
    program: tuple[Act, ...], crashes: frozenset[tuple[int, str]], commands: tuple[tuple[int, str], ...]
) -> None:
    """Same rows with the same results, same context, same committed writes, at the same time."""
    undisturbed = Journey(program, commands=commands).go()
    lost = Journey(program, crashes, commands).go()
    event(f"{lost.died} crashes, {undisturbed.run.state}")

    assert lost.end == undisturbed.end
    assert lost.wrong == undisturbed.wrong == []
    assert sum(lost.effects.values()) <= sum(undisturbed.effects.values()) + lost.died


@settings(max_examples=8)
@given(program=PROGRAMS)
def test_a_crash_at_every_single_place(program: tuple[Act, ...]) -> None:
    """Not only where chance puts it: before and after each durable write, one after the other."""
    undisturbed = Journey(program).go()
    for place in range(undisturbed.run.writes):
        for moment in ("before", "after"):
            lost = Journey(program, frozenset({(place, moment)})).go()
            assert lost.end == undisturbed.end
            assert sum(lost.effects.values()) <= sum(undisturbed.effects.values()) + 1


@settings(max_examples=30)
@given(program=PROGRAMS, commands=COMMANDED)
def test_a_worker_that_dies_after_each_write_changes_no_end(
    program: tuple[Act, ...], commands: tuple[tuple[int, str], ...]
) -> None:
    """Everything before it is passed each time; no body runs twice, and each committed write is there once."""
    everywhere = frozenset((place, "after") for place in range(400))
    undisturbed = Journey(program, commands=commands).go()
    lost = Journey(program, everywhere, commands).go()

    assert lost.end == undisturbed.end
    assert lost.effects == undisturbed.effects
    positions = [row.position for row in lost.run.journal]
    assert positions == sorted(set(positions))
