"""Wherever the worker dies, and whatever people ask, a run reaches the end that it would have reached.

Workflows, crashes and commands are made up by hypothesis. What a body does depends on what is durable alone,
as it does for an author whose bodies can be repeated: so the journal of a run that was lost again and again
must read like that of a run that was never lost, lost attempts left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from stepwell import Backoff, Retry, Skip, Workflow, cancel_if, handles, step
from stepwell.states import TERMINAL, Kind, Outcome, RunState
from tests.unit.execution.memory import Crash, MemoryRun

HOUR = timedelta(hours=1)
MOST_RESUMES = 6

ACTS = [
    "ok",
    "error",
    "fatal",
    "limited",
    "retry",
    "later",
    "skip",
    "pause",
    "pause done",
    "cancel",
    "finish",
]
COMMANDS = ["pause", "resume", "cancel", "skip"]


class Fatal(Exception):
    """No policy is for it."""


class Limited(Exception):
    """The class's handler is for it."""


@dataclass(frozen=True)
class Leg:
    """A step: its options, what it does attempt by attempt, and how it changes the context."""

    name: str
    acts: tuple[str, ...]
    change: str
    wait: timedelta | None
    moves: bool
    skips: bool
    queue: str | None
    isolated: bool
    shows: bool
    delay: timedelta


@dataclass(frozen=True)
class Fate:
    """What comes from outside: crashes by the count of writes, commands by the count of finished rows."""

    crashes: frozenset[tuple[int, str]] = frozenset()
    commands: tuple[tuple[int, str], ...] = ()


def legs(number: int) -> st.SearchStrategy[Leg]:
    """A step with this number in its name."""
    return st.builds(
        Leg,
        name=st.just(f"leg{number}"),
        acts=st.tuples(*[st.sampled_from(ACTS)] * 3),
        change=st.sampled_from(["", "set", "append", "delete"]),
        wait=st.sampled_from([None, None, HOUR]),
        moves=st.booleans(),
        skips=st.sampled_from([False, False, False, True]),
        queue=st.sampled_from([None, None, "heavy"]),
        isolated=st.booleans(),
        shows=st.booleans(),
        delay=st.sampled_from([timedelta(), HOUR]),
    )


ROADS = st.integers(1, 4).flatmap(lambda size: st.tuples(*(legs(number) for number in range(size))))
CRASHES = st.frozensets(
    st.tuples(st.integers(0, 12), st.sampled_from(["before", "after"])), min_size=1, max_size=4
)
COMMANDED = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(COMMANDS)), max_size=3).map(tuple)


def workflow_of(road: tuple[Leg, ...], journey: Journey) -> type[Workflow[None]]:
    """A class that walks this road."""

    class Road(Workflow[None]):
        @cancel_if
        def called_off(self) -> bool:
            return self.context.get("called off", False)

        @handles(Limited)
        def slow_down(self, error: Limited) -> None:
            self.retry(HOUR if journey.run.row_count() % 2 else None)

        for leg in road:

            @step(
                name=leg.name,
                wait=None if leg.moves else leg.wait,
                wait_until=journey.appointment(leg) if leg.moves and leg.wait else None,
                skip_if=leg.skips,
                queue=leg.queue,
                isolated=leg.isolated,
                on_exception=[
                    Retry(ValueError, attempts=3, backoff=Backoff(leg.delay, cap=2 * HOUR, jitter=0))
                    if leg.delay
                    else Retry(ValueError, attempts=3, wait=leg.delay),
                    Skip(KeyError),
                ],
            )
            def walk(self, leg: Leg = leg) -> str:
                return journey.walk(self, leg)

    return Road


@dataclass
class Journey:
    """A run on a road, with its fate."""

    road: tuple[Leg, ...]
    fate: Fate
    run: Any = None
    bodies: int = 0
    crashes: int = 0
    boundaries: Counter[str] = field(default_factory=Counter)
    commands: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.commands = list(self.fate.commands)
        self.run = Durable(workflow_of(self.road, self))
        self.run.at_boundary = self.at_boundary

    def appointment(self, leg: Leg) -> Any:
        """An instant that moves once, when the run has parked for it."""

        def at(workflow: Any) -> Any:
            rows = [row for row in self.run.journal if row.name == leg.name]
            later = any(row.scheduled_for is not None for row in rows)
            return self.run.began_at + (3 * HOUR if later else HOUR)

        return at

    def walk(self, workflow: Any, leg: Leg) -> str:
        """The body: what it does follows from how many attempts are durable."""
        self.bodies += 1
        attempt = sum(
            row.name == leg.name and row.kind is Kind.STEP and row.outcome not in (None, Outcome.LOST)
            for row in self.run.journal
        )
        if leg.shows:
            self.run.show()
        workflow.session.append((leg.name, attempt))
        if leg.change == "set":
            workflow.context[leg.name] = attempt
        elif leg.change == "append":
            workflow.context.setdefault("list", []).append([leg.name, attempt])
        elif leg.change == "delete":
            workflow.context.pop("list", None)
        self.act(workflow, leg.acts[attempt] if attempt < len(leg.acts) else "ok")
        return f"{leg.name} done"

    def act(self, workflow: Any, act: str) -> None:
        match act:
            case "error":
                raise ValueError(act)
            case "fatal":
                raise Fatal(act)
            case "limited":
                raise Limited(act)
            case "retry":
                workflow.retry()
            case "later":
                workflow.retry(HOUR)
            case "skip" | "cancel" | "finish" | "pause":
                getattr(workflow, act)()
            case "pause done":
                workflow.pause(done=True)

    def at_boundary(self, moment: str) -> None:
        number = self.boundaries[moment]
        self.boundaries[moment] += 1
        if moment == "with":
            # Told by the answer to this write: with a crash and without it is known at the same place.
            self.command()
        if (number, moment) in self.fate.crashes:
            self.crashes += 1
            raise Crash

    def command(self) -> None:
        """Whoever watches the run asks for something when it has come so far."""
        while self.commands and self.run.row_count() >= self.commands[0][0]:
            getattr(self.run, self.commands.pop(0)[1])()

    def go(self) -> Journey:
        """To the end; a person resumes what stops, a few times, and then gives up."""
        for _ in range(MOST_RESUMES):
            self.run.drive()
            if self.run.state in TERMINAL:
                return self
            self.run.resume()
        self.run.at_boundary = lambda moment: None
        self.run.drive()
        if self.run.state not in TERMINAL:
            self.run.cancel("enough")
        return self

    @property
    def end(self) -> dict[str, Any]:
        """Where it came to, as far as anybody can see."""
        run = self.run
        return {
            "state": run.state,
            "result": run.result,
            "context": run.memory,
            "ledger": run.ledger,
            "current_step": run.current_step,
            "time": run.clock.now(),
            "steps": [
                (row.name, row.attempt, row.state, row.outcome, row.result, row.context_delta, row.details)
                for row in run.journal
                if row.kind is Kind.STEP and row.outcome is not Outcome.LOST
            ],
        }


class Durable(MemoryRun):
    """A run that a heartbeat may look at."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.began_at = self.clock.now()

    def row_count(self) -> int:
        """How many attempts are durable."""
        return sum(row.kind is Kind.STEP and row.outcome not in (None, Outcome.LOST) for row in self.journal)

    def show(self) -> None:
        """The heartbeat makes the running body visible."""
        if self.shown is not None and self.token is not None:
            self.keep(self.shown)


@settings(max_examples=200)
@given(road=ROADS, crashes=CRASHES, commands=COMMANDED)
def test_crashes_change_no_end(
    road: tuple[Leg, ...], crashes: frozenset[tuple[int, str]], commands: tuple[tuple[int, str], ...]
) -> None:
    """Same steps with the same outcomes, same context, same committed writes, at the same time."""
    commands = tuple(sorted(commands))
    undisturbed = Journey(road, Fate(commands=commands)).go()
    lost = Journey(road, Fate(crashes, commands)).go()
    event(f"{lost.crashes} crashes, {undisturbed.run.state}")

    assert lost.end == undisturbed.end
    assert lost.bodies <= undisturbed.bodies + lost.crashes


@settings(max_examples=100)
@given(road=ROADS, crashes=CRASHES, commands=COMMANDED)
def test_a_step_is_recorded_as_done_once(
    road: tuple[Leg, ...], crashes: frozenset[tuple[int, str]], commands: tuple[tuple[int, str], ...]
) -> None:
    """No step is completed twice, none runs after the one that follows it, and its writes are there once."""
    journey = Journey(road, Fate(crashes, tuple(sorted(commands)))).go()
    run = journey.run

    done = [row.name for row in run.journal if row.outcome in (Outcome.SUCCESS, Outcome.SKIPPED)]
    done = [name for name in done if name.startswith("leg")]
    assert len(done) == len(set(done))
    assert done == sorted(done)
    written = [name for name, _ in run.ledger]
    assert len(written) == len(set(written))
    assert len({row.position for row in run.journal}) == len(run.journal)
    if run.state is RunState.COMPLETED:
        assert not any(row.outcome is None for row in run.journal)


@settings(max_examples=40)
@given(road=ROADS)
def test_a_crash_at_every_single_place(road: tuple[Leg, ...]) -> None:
    """Not only where chance puts it: before and after each durable write of a run, one after the other."""
    undisturbed = Journey(road, Fate()).go()
    for place in range(undisturbed.run.writes):
        for moment in ("before", "after"):
            lost = Journey(road, Fate(frozenset({(place, moment)}))).go()
            assert lost.end == undisturbed.end
