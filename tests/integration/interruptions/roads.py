"""Roads that hypothesis makes up: workflows of a few steps, and what befalls a run on its way.

What a body does follows from what is durable alone, as for an author whose bodies can be repeated. So a run whose
workers died again and again must come to the end of one whose worker never died, lost executions left out.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from hypothesis import strategies as st

from stepwell import (
    Backoff,
    Poll,
    Retry,
    Run,
    RunError,
    Signal,
    Skip,
    WaitTimedOut,
    Workflow,
    cancel_if,
    handles,
    resumable_step,
    step,
)
from stepwell.entries import Settlement
from stepwell.states import ATTENTION, TERMINAL, Kind, Outcome, RunState
from tests.integration.interruptions.stage import Died, Stage, write_line

__all__ = ["COMMANDS", "ROADS", "Fate", "Journey", "Leg"]

HOUR: Final = timedelta(hours=1)
ITEMS: Final = 3
_MOST_RESUMES: Final = 5
_UNCOUNTED: Final = (None, Outcome.LOST, Outcome.CONTINUED)
_PARKED: Final = (RunState.WAITING, RunState.AWAITING)

ACTS = [
    *["ok"] * 4,
    *["error", "key error", "fatal", "limited"],
    *["retry", "rewind", "later", "skip", "pause", "pause done", "cancel", "finish"],
]
WAITS = [
    *["nothing"] * 3,
    *["time", "instant", "signal", "signal or default", "signal or error", "gate", "poll", "poll or error"],
]
VERBS = ["pause", "resume", "cancel", "skip", "signal", "wake", "reschedule"]


class Fatal(Exception):
    """No policy is for it."""


class Limited(Exception):
    """The class's handler is for it."""


ERRORS = {"error": ValueError, "key error": KeyError, "fatal": Fatal, "limited": Limited}


@dataclass(frozen=True)
class Leg:
    """A step: its options, and what it does attempt by attempt."""

    name: str
    acts: tuple[str, ...]
    waits_for: str
    walks: bool
    every: int
    iterations: int | None
    skips: bool
    queue: str | None
    isolated: bool
    shows: bool
    delay: timedelta


@dataclass(frozen=True)
class Fate:
    """What comes from outside.

    Attributes:
        crashes: Before or after which writes a worker dies.
        commands: By how many steps are done, whether the run is parked then, and the verb.
        rewinds: Who resumes the run for the first time has it go on from its first step.
    """

    crashes: frozenset[tuple[int, str]] = frozenset()
    commands: tuple[tuple[int, bool, str], ...] = ()
    rewinds: bool = False


def legs(number: int) -> st.SearchStrategy[Leg]:
    """A step with this number in its name."""
    return st.builds(
        Leg,
        name=st.just(f"leg{number}"),
        acts=st.tuples(*[st.sampled_from(ACTS)] * 3),
        waits_for=st.sampled_from(WAITS),
        walks=st.booleans(),
        every=st.integers(1, 2),
        iterations=st.sampled_from([None, 1, 2]),
        skips=st.sampled_from([False, False, False, True]),
        queue=st.sampled_from([None, None, "heavy"]),
        isolated=st.booleans(),
        shows=st.booleans(),
        delay=st.sampled_from([timedelta(), HOUR]),
    )


ROADS = st.integers(1, 3).flatmap(lambda size: st.tuples(*(legs(number) for number in range(size))))
COMMANDS = st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.sampled_from(VERBS)), max_size=3).map(
    lambda commands: tuple(sorted(commands))
)


class Journey:
    """A run on a road, with its fate."""

    def __init__(self, stage: Stage, road: tuple[Leg, ...], fate: Fate) -> None:
        self.stage = stage
        self.road = road
        self.crashes = fate.crashes
        self.commands = list(fate.commands)
        self.from_step = road[0].name if fate.rewinds else None
        self.boundaries: Counter[str] = Counter()
        self.died = 0
        self.losses = 0
        self.is_open = False
        self.began_at = stage.well.now()
        # Kept: a class that nobody holds is a class that is gone.
        self.workflow = self.made()
        self.run: Run = self.workflow.with_options(engine=stage.well).start()

    # -- the workflow ---------------------------------------------------------------------------------------

    def made(self) -> Any:
        """A class that walks this road."""
        journey = self

        class Road(Workflow):
            max_recoveries = 100

            @cancel_if
            def called_off(self) -> bool:
                return bool(self.context.get("called off", False))

            @handles(Limited)
            def slow_down(self, error: Limited) -> None:
                self.retry(HOUR if len(journey.counted()) % 2 else None)

            for leg in self.road:
                options: dict[str, Any] = {
                    "name": leg.name,
                    "skip_if": leg.skips,
                    "queue": leg.queue,
                    "isolated": leg.isolated,
                    "on_exception": _policies(leg),
                    **self.wait(leg),
                }
                if leg.walks:
                    options.update(checkpoint_every=leg.every, max_iterations=leg.iterations)
                made = (resumable_step if leg.walks else step)(**options)(self.body(leg))

            del leg, options, made

        return Road

    def wait(self, leg: Leg) -> dict[str, Any]:
        """The option with which the step waits."""
        holds_at = self.began_at + 2.25 * HOUR
        holds = lambda workflow: self.stage.well.now() >= holds_at  # noqa: E731 - one of several values
        match leg.waits_for:
            case "time":
                return {"wait": HOUR}
            case "instant":
                return {"wait_until": self.began_at + 1.5 * HOUR}
            case "signal":
                return {"awaits": "go"}
            case "signal or default":
                return {"awaits": Signal("go", timeout=HOUR, default="nobody")}
            case "signal or error":
                return {"awaits": Signal("go", timeout=HOUR)}
            case "gate":
                return {"gate": lambda workflow: self.is_open}
            case "poll":
                return {"wait_until": Poll(holds, every=HOUR / 4)}
            case "poll or error":
                return {"wait_until": Poll(holds, every=HOUR / 4, timeout=HOUR / 2)}
        return {}

    # -- bodies ---------------------------------------------------------------------------------------------

    def body(self, leg: Leg) -> Any:
        """The step's function; a payload is taken where one comes."""
        body = self.walk if leg.walks else self.do
        if "awaits" in self.wait(leg):
            return lambda workflow, payload: body(workflow, leg, payload)
        return lambda workflow: body(workflow, leg, None)

    def do(self, workflow: Any, leg: Leg, payload: Any) -> str:
        attempt = self.begin(leg)
        write_line(workflow, f"{leg.name} {attempt} {payload}")
        workflow.context.setdefault("done", []).append([leg.name, attempt])
        self.act(workflow, leg, attempt)
        return f"{leg.name} done"

    def walk(self, workflow: Any, leg: Leg, payload: Any) -> str:
        attempt = self.begin(leg)
        for item in workflow.cursor.iterate(range(ITEMS)):
            write_line(workflow, f"{leg.name} item {item} {payload}")
            workflow.context["items"] = workflow.context.get("items", 0) + 1
            if item == 1:
                self.act(workflow, leg, attempt)
        return f"{leg.name} walked"

    def begin(self, leg: Leg) -> int:
        """How many attempts of this step are durable."""
        if leg.shows:
            self.stage.show()
        return sum(row.name == leg.name for row in self.counted())

    def act(self, workflow: Any, leg: Leg, attempt: int) -> None:
        act = leg.acts[attempt] if attempt < len(leg.acts) else "ok"
        if act in ERRORS:
            raise ERRORS[act]
        match act:
            case "retry" | "skip" | "cancel" | "finish" | "pause":
                getattr(workflow, act)()
            case "rewind":
                workflow.retry(rewind=True)
            case "later" if leg.walks:
                workflow.cursor.skip_to(2, wait=HOUR)
            case "later":
                workflow.retry(HOUR)
            case "pause done":
                workflow.pause(done=True)

    # -- fate -----------------------------------------------------------------------------------------------

    def counted(self) -> list[Any]:
        """The attempts that are durable; executions that were lost or only interrupted do not count."""
        return [
            row
            for row in self.stage.rows(self.run)
            if row.kind == Kind.STEP and row.outcome not in _UNCOUNTED
        ]

    def at_boundary(self, moment: str, settlement: Settlement | None) -> None:
        number = self.boundaries[moment]
        self.boundaries[moment] += 1
        if moment == "with" and self.commands:
            self.command(settlement is not None and settlement.state in _PARKED)
        if (number, moment) in self.crashes:
            self.died += 1
            # One that dies behind a settlement has nothing more to lose.
            self.losses += moment == "before" or settlement is None
            raise Died

    def command(self, is_parked: bool) -> None:
        """Whoever watches the run asks for something when it has come so far."""
        count = len(self.counted())
        while self.commands and count >= self.commands[0][0] and self.commands[0][1] in (False, is_parked):
            self.give(self.commands.pop(0)[2])

    def give(self, verb: str) -> None:
        try:
            match verb:
                case "signal":
                    self.run.signal("go", len(self.commands))
                case "wake":
                    self.is_open = True
                    self.run.wake()
                case _:
                    getattr(self.run, verb)()
        except RunError:
            # It is not to be had in this state.
            return

    def go(self) -> Journey:
        """To the end; a person resumes what stops, a few times, and lets go on what waits."""
        for _ in range(_MOST_RESUMES):
            self.drive()
            if self.run.state not in ATTENTION:
                return self
            self.run.resume(from_step=self.from_step)
            self.from_step = None
        self.crashes = frozenset()
        self.drive()
        if self.run.state not in TERMINAL:
            self.run.cancel("enough")
        return self

    def drive(self) -> None:
        self.stage.drive(self.run, self.at_boundary)
        while self.run.state is RunState.AWAITING:
            self.give("wake" if self.run.info().reason == "gate" else "signal")
            self.stage.drive(self.run, self.at_boundary)

    @property
    def end(self) -> dict[str, Any]:
        """Where it came to, as far as anybody can see."""
        row = self.run.info()
        walks = {leg.name for leg in self.road if leg.walks}
        return {
            "state": row.state,
            "reason": row.reason,
            "result": row.result,
            "error": row.error_class,
            "context": dict(self.run.context),
            "lines": self.stage.lines(self.run),
            "current_step": row.current_step,
            "open rows": [row.name for row in self.stage.rows(self.run) if row.finished_at is None],
            "steps": [
                (step.name, step.attempt, step.state, step.outcome, step.result, step.error_class)
                + (() if step.name in walks else (step.context_delta, _timeless(step.details)))
                for step in self.counted()
            ],
        }


def _timeless(details: str | None) -> dict[str, Any]:
    """A lost worker costs time: when somebody asked for something is no part of the end."""
    return {name: value for name, value in json.loads(details or "{}").items() if name != "asked_at"}


def _policies(leg: Leg) -> list[Any]:
    if leg.delay:
        retry = Retry(
            ValueError, WaitTimedOut, attempts=3, backoff=Backoff(leg.delay, cap=2 * HOUR, jitter=0)
        )
    else:
        retry = Retry(ValueError, WaitTimedOut, attempts=3, wait=leg.delay)
    return [retry, Skip(KeyError)]
