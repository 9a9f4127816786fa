"""What people ask of a run that is being driven: honoured at its next boundary, and never lost on the way."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, Workflow, step
from stepwell.execution.outcome import Activated
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from tests.unit.execution.memory import START, MemoryRun, crash_at

HOUR = timedelta(hours=1)


class Order(Workflow[None]):
    """Three steps; the first one can be told to do something."""

    @step
    def pack(self) -> None:
        act = self.args.get("act")
        if act is not None:
            act()

    @step
    def insure(self) -> None: ...

    @step
    def ship(self) -> None: ...


def acting(act: Callable[[MemoryRun], object], workflow: type[Workflow[None]] = Order) -> MemoryRun:
    """A run in whose first step something is asked of it."""
    run = MemoryRun(workflow)
    run.args["act"] = lambda: act(run)
    return run


def test_a_pause_is_honoured_after_the_step_that_runs() -> None:
    """The body that runs is finished and journaled; then the run is paused, and the request is answered."""
    run = acting(lambda run: run.pause("holiday")).drive()

    assert run.story == ["pack success"]
    assert run.is_over_as(RunState.PAUSED, "holiday")
    assert run.stop_request is None

    run.args.clear()
    run.resume()
    run.drive()
    assert run.story == ["pack success", "insure success", "ship success"]


def test_a_cancel_is_honoured_after_the_step_that_runs() -> None:
    """What the step did is kept; nothing further runs, and the identity is free."""
    run = acting(lambda run: run.cancel("no stock")).drive()

    assert run.story == ["pack success"]
    assert run.is_over_as(RunState.CANCELED, "no stock")
    assert run.identity_is_free


ASKED = '{"verb": "%s", "reason": "holiday", "by": "ann", "at": "2030-06-01T12:00:00+00:00"}'


def commands(run: MemoryRun) -> list[tuple[str, dict[str, Any]]]:
    """What people did, as the journal tells it."""
    return [(row.name, json.loads(row.details or "")) for row in run.journal if row.kind is Kind.COMMAND]


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_what_was_honoured_is_journaled_with_the_end(verb: str) -> None:
    """Who asked, when, and why, in the write that stops the run; the request itself is on the row no more."""
    run = acting(lambda run: setattr(run, "stop_request", ASKED % verb))
    run.activate()

    assert commands(run) == [
        (
            verb,
            {
                "by": "ann",
                "from": "running",
                "reason": "holiday",
                "asked_at": "2030-06-01T12:00:00+00:00",
            },
        )
    ]
    assert (run.stop_request, run.writes) == (None, 2)


@pytest.mark.parametrize("verb", ["pause", "cancel"])
@pytest.mark.parametrize("ends", ["failed", "paused"])
def test_a_request_that_comes_while_a_step_stops_the_run_is_journaled(verb: str, ends: str) -> None:
    """It is honoured with the write of that step's own end, behind its row."""

    class Stopping(Workflow[None]):
        @step
        def pack(self) -> None:
            self.args["act"]()
            if ends == "paused":
                self.pause("by itself", done=True)
            raise ValueError

        @step
        def ship(self) -> None: ...

    def ask(run: MemoryRun) -> None:
        run.stop_request, run.wakeups = ASKED % verb, run.wakeups + 1

    run = acting(ask, Stopping)
    run.activate()

    assert run.state is (RunState.CANCELED if verb == "cancel" else RunState(ends))
    assert [name for name, _ in commands(run)] == [verb]
    assert run.journal[-1].kind is Kind.COMMAND
    assert (run.stop_request, run.writes) == (None, 1)


@pytest.mark.parametrize("place", range(2))
def test_a_pause_that_is_withdrawn_is_not_journaled(place: int) -> None:
    """However close it came: what did not happen leaves no entry."""
    run = acting(lambda run: run.pause())
    run.at_boundary = at_write(place, "before", lambda: run.resume())
    run.drive()

    assert commands(run) == []


def test_a_skip_tells_who_asked_for_it() -> None:
    """The entry of the step that was left out does."""
    run = acting(lambda run: setattr(run, "stop_request", None))
    run.stop_request = ASKED.replace("}", ', "step": "pack", "was": "waiting"}') % "skip"
    run.activate()

    assert run.journal[0].outcome is Outcome.SKIPPED
    assert json.loads(run.journal[0].details or "")["by"] == "ann"
    assert json.loads(run.journal[0].details or "")["from"] == "waiting"
    assert commands(run) == []


def test_a_request_that_cannot_be_read_is_void() -> None:
    """Whoever drives the run goes on without it."""
    run = acting(lambda run: setattr(run, "stop_request", "{broken"))
    run.drive()

    assert run.is_over_as(RunState.COMPLETED)
    assert run.stop_request is None


def test_a_skip_is_void_once_its_step_has_finished() -> None:
    """It names the step that was current: that one is done, so the run goes on without losing a step."""
    run = acting(lambda run: run.skip()).drive()

    assert run.story == ["pack success", "insure success", "ship success"]
    assert run.stop_request is None


def test_a_skip_asked_for_before_the_claim_skips_the_step() -> None:
    """A parked or ready run is made ready with the request: the next activation notes the step as skipped."""
    run = MemoryRun(Order)
    run.skip()
    run.drive()

    assert run.story == ["pack skipped", "insure success", "ship success"]
    assert json.loads(run.journal[0].details or "{}")["from"] == "ready"


@pytest.mark.parametrize("state", ["waiting", "failed", "paused", "running"])
def test_a_skip_of_the_last_step_completes_the_run(state: str) -> None:
    """Nothing is behind it: asked from outside, whatever the run is at, or by the step itself."""

    class Last(Workflow[None]):
        @step(wait=HOUR if state == "waiting" else None)
        def ship(self) -> None:
            if state == "running":
                self.skip()
            if state == "paused":
                self.pause()
            raise ValueError

    run = MemoryRun(Last)
    run.activate()
    if state != "running":
        assert run.state == state
        run.skip()
        run.drive()

    assert (run.state, run.current_step) == (RunState.COMPLETED, None)
    assert run.story[-1] == "ship skipped"
    assert not any(row.outcome is None for row in run.journal)


@pytest.mark.parametrize("state", ["failed", "paused"])
def test_skip_also_leads_on_from_a_stop(state: str) -> None:
    """A step that failed, or paused the run, can be left out, and the run goes on with the next one."""

    class Stuck(Workflow[None]):
        @step
        def pack(self) -> None:
            if state == "paused":
                self.pause()
            raise ValueError

        @step
        def ship(self) -> None: ...

    run = MemoryRun(Stuck).drive()
    run.skip()
    run.drive()

    assert run.story == [f"pack {state}", "pack skipped", "ship success"]
    assert run.is_over_as(RunState.COMPLETED)


@pytest.mark.parametrize("verbs", list(itertools.permutations(["skip", "pause", "cancel"])))
def test_cancel_beats_pause_beats_skip(verbs: tuple[str, ...]) -> None:
    """In whatever order they were asked for, the strongest one is done."""
    run = acting(lambda run: [getattr(run, verb)() for verb in verbs]).drive()
    assert run.state is RunState.CANCELED

    weaker = [verb for verb in verbs if verb != "cancel"]
    run = acting(lambda run: [getattr(run, verb)() for verb in weaker]).drive()
    assert run.state is RunState.PAUSED


class Retrying(Workflow[None]):
    """Its first step acts, then raises, once."""

    @step(on_exception=Retry(wait=HOUR, attempts=2))
    def pack(self) -> None:
        act = self.args["act"]
        if not any(row.name == "pack" for row in act.run.journal):
            act()
            raise ValueError("first")

    @step
    def ship(self) -> None: ...


class Act:
    """Something to do in a step that knows its run."""

    def __deepcopy__(self, memo: object) -> Act:
        return self

    def __init__(self, run: MemoryRun, act: Callable[[MemoryRun], object]) -> None:
        self.run, self._act = run, act

    def __call__(self) -> None:
        self._act(self.run)


def retrying(act: Callable[[MemoryRun], object]) -> MemoryRun:
    """A run that is about to park for a retry when something comes."""
    run = MemoryRun(Retrying)
    run.args["act"] = Act(run, act)
    return run


def test_a_park_is_refused_when_something_came() -> None:
    """The request came before the run parked for an hour: it is honoured now, and the attempt is not lost."""
    run = retrying(lambda run: run.cancel("at once"))
    run.activate()

    assert run.is_over_as(RunState.CANCELED, "at once")
    assert run.clock.now() == START
    assert run.story == ["pack retried", "pack canceled"]


def test_a_pause_instead_of_a_park_keeps_what_was_scheduled() -> None:
    """Paused in the same moment, the run still knows for when its next attempt was announced."""
    run = retrying(lambda run: run.pause())
    run.activate()
    assert run.state is RunState.PAUSED
    assert run.row("pack").state is ExecutionState.SCHEDULED

    run.resume()
    run.activate()
    assert (run.state, run.waits) == (RunState.WAITING, HOUR)
    assert run.drive().story == ["pack retried", "pack success", "ship success"]


def test_a_wakeup_that_means_nothing_refuses_a_park_once() -> None:
    """The driver looks again, finds nothing, and parks; the announcement is written once."""
    run = retrying(lambda run: setattr(run, "wakeups", run.wakeups + 1))
    run.activate()

    assert run.is_over_as(RunState.WAITING, Reason.RETRY)
    assert run.waits == HOUR
    assert run.story == ["pack retried", "pack scheduled"]


def test_a_skip_reaches_a_step_that_waits_for_its_retry() -> None:
    """The step that was running has not finished: it is skipped instead of tried again in an hour."""
    run = retrying(lambda run: run.skip())
    run.drive()

    assert run.story == ["pack retried", "pack skipped", "ship success"]
    assert run.clock.now() == START


def test_a_skip_reaches_a_step_that_fails() -> None:
    """Asked for a moment before the step failed, it does what it would have done a moment after."""

    class Failing(Workflow[None]):
        @step
        def pack(self) -> None:
            self.args["act"]()
            raise ValueError

        @step
        def ship(self) -> None: ...

    run = acting(lambda run: run.skip(), Failing).drive()

    assert run.story == ["pack failed", "pack skipped", "ship success"]
    assert run.is_over_as(RunState.COMPLETED)


def test_a_cancel_of_a_run_that_fails_cancels_it() -> None:
    """Nobody has to look at a run that was called off, however its step ended."""

    class Failing(Workflow[None]):
        @step
        def pack(self) -> None:
            self.args["act"]()
            raise ValueError

    run = acting(lambda run: run.cancel("called off"), Failing).drive()

    assert run.story == ["pack failed"]
    assert run.is_over_as(RunState.CANCELED, "called off")


def test_a_run_that_ends_first_ends_as_it_ended() -> None:
    """A request that comes with the very last write is too late; it stays on the row and changes nothing."""
    run = MemoryRun(Order)

    def at_the_end(moment: str) -> None:
        if moment == "before" and run.current_step is None:
            run.pause()

    run.at_boundary = at_the_end
    run.drive()

    assert run.is_over_as(RunState.COMPLETED)
    assert run.stop_request is not None
    assert commands(run) == []


def at_write(place: int, moment: str, act: Callable[[], object]) -> Callable[[str], None]:
    """For ``at_boundary``: act once, at the ``place``-th write."""
    seen = itertools.count()

    def at_boundary(now: str) -> None:
        if now == moment and next(seen) == place:
            act()

    return at_boundary


@pytest.mark.parametrize(("first", "place"), [("skip", 0), ("skip", 1), ("pause", 0)])
def test_a_cancel_is_never_cleared_with_the_request_before_it(first: str, place: int) -> None:
    """While a weaker request is being answered a cancel comes: it is not thrown away with that one."""
    run = MemoryRun(Order)
    run.state = RunState.RUNNING
    getattr(run, first)()
    run.state = RunState.READY  # as after a lost worker
    run.at_boundary = at_write(place, "before", lambda: run.cancel("stop"))
    run.activate()

    assert run.is_over_as(RunState.CANCELED, "stop")


@pytest.mark.parametrize("place", range(4))
def test_a_cancel_during_an_activation_always_cancels(place: int) -> None:
    """At whichever write of a run it arrives, it is honoured, unless the run was over by then."""
    run = acting(lambda run: run.skip())
    run.at_boundary = at_write(place, "before", lambda: run.cancel("stop"))
    run.drive()

    assert run.is_over_as(RunState.CANCELED, "stop")


def test_a_pause_that_is_withdrawn_in_time_does_not_happen() -> None:
    """``resume()`` at the very moment in which the run is about to pause: it goes on."""
    run = acting(lambda run: run.pause())
    run.at_boundary = at_write(1, "before", lambda: run.resume())
    run.drive()

    assert run.is_over_as(RunState.COMPLETED)
    assert run.activations == 1


def test_a_request_is_honoured_by_whoever_claims_next() -> None:
    """The worker that was asked is dead: the next one does it before any body."""
    run = acting(lambda run: run.cancel("called off"))
    crash_at(run, 0, "before")
    run.drive()

    assert run.is_over_as(RunState.CANCELED, "called off")
    assert run.story == []


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("place", range(3))
def test_a_worker_that_dies_while_it_skips_skips_one_step(place: int, moment: str) -> None:
    """Noted before or after the crash, the request leads past its step and no further."""
    run = MemoryRun(Order)
    run.skip()
    crash_at(run, place, moment)
    run.drive()

    assert run.story == ["pack skipped", "insure success", "ship success"]


def test_a_long_body_can_see_that_it_is_asked_to_stop() -> None:
    """``self.stop_requested`` turns true in the middle of a body."""
    seen = []

    class Long(Workflow[None]):
        @step
        def pack(self) -> None:
            seen.append(self.stop_requested)
            self.args["act"]()
            seen.append(self.stop_requested)

    acting(lambda run: run.pause(), Long).drive()

    assert seen == [False, True]


def test_a_scheduled_row_ends_with_its_run() -> None:
    """A run that is canceled while a step is announced leaves nothing scheduled."""
    run = retrying(lambda run: None)
    run.activate()
    run.wake()
    run.at_boundary = lambda moment: None
    run.stop_request = run._text("cancel", "late")
    run.activate()

    assert run.story == ["pack retried", "pack canceled"]
    assert run.row("pack").state is ExecutionState.CANCELED


def test_the_successor_of_a_replaced_run_is_handed_on() -> None:
    """An activation that ends its run says who waits for that, so that it can be woken after the commit."""
    successor = "01a22ce4-8dda-718b-8c04-1b131d50b8a8"
    ends: list[Activated | None] = []
    run = acting(
        lambda run: setattr(run, "stop_request", json.dumps({"verb": "cancel", "successor": successor}))
    )
    ends.append(run.activate())

    assert run.state is RunState.CANCELED
    assert ends[0] is not None
    assert str(ends[0].successor) == successor
    assert run.stop_request is None


def test_a_successor_that_comes_with_the_end_is_not_forgotten() -> None:
    """A replacement asks in the moment in which the run is being canceled: the end is written again, for it."""
    successor = "01a22ce4-8dda-718b-8c04-1b131d50b8a8"
    run = acting(lambda run: run.cancel("enough"))

    def replace_it() -> None:
        run.stop_request = json.dumps({"verb": "cancel", "reason": "replaced", "successor": successor})
        run.wakeups += 1

    run.at_boundary = at_write(1, "before", replace_it)
    ended = run.activate()

    assert ended is not None
    assert str(ended.successor) == successor
    assert [name for name, _ in commands(run)] == ["cancel"]


def test_unique_for_ever_keeps_its_identity() -> None:
    """A class that says so never gives the identity of a finished run away."""
    run = MemoryRun(Order, options={"unique_for": "ever"}).drive()

    assert run.is_over_as(RunState.COMPLETED)
    assert not run.identity_is_free
