"""Durations that lead beyond the end of the calendar, which is as good as never, and those that are over already."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    AsyncWorkflow,
    Backoff,
    ManualClock,
    Poll,
    Retry,
    Signal,
    WaitTimedOut,
    Workflow,
    resumable_step,
    step,
)
from stepwell.clock import later
from stepwell.states import Kind, Reason, RunState
from tests.unit.execution.memory import START, MemoryRun
from tests.unit.execution.procedures import driven, replayed

HOUR = timedelta(hours=1)
MOMENT = timedelta.resolution
FIRST, LAST = (instant.replace(tzinfo=UTC) for instant in (datetime.min, datetime.max))
# The last one of a run that begins in 2026 is less than 8000 years away.
FAR = pytest.mark.parametrize("far", [timedelta.max, timedelta(days=365 * 9000)], ids=["max", "9000 years"])


# -- the sum --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [timedelta(), MOMENT, HOUR, -HOUR, timedelta(days=365 * 7000)])
def test_later_is_a_sum(wait: timedelta) -> None:
    """Wherever there is one, forwards and backwards."""
    assert later(START, wait) == START + wait


@pytest.mark.parametrize("start", [FIRST, START, LAST])
def test_later_ends_with_the_calendar(start: datetime) -> None:
    """At both ends there is an instant that is the last one, and it is aware."""
    assert later(start, timedelta.max) == LAST
    assert later(start, timedelta.min) == FIRST
    assert later(LAST, MOMENT) == later(LAST, timedelta()) == LAST
    assert later(FIRST, -MOMENT) == later(FIRST, timedelta()) == FIRST
    assert (later(LAST, -MOMENT), later(FIRST, MOMENT)) == (LAST - MOMENT, FIRST + MOMENT)


# -- run() ------------------------------------------------------------------------------------------------------------


class Waits(Workflow[None]):
    """Waits in one of the ways that ``run()`` has, as long as its class says."""

    far: timedelta
    way: Callable[[Any], Any]

    def run(self) -> str:
        type(self).way(self)
        return "went on"

    def never(self) -> bool:
        return False

    def broken(self) -> bool:
        raise OSError

    @step
    def retries(self) -> None:
        self.retry(wait=self.far)

    @resumable_step
    def suspends(self) -> None:
        self.suspend(wait=self.far)

    @resumable_step
    def skips_to(self) -> None:
        if self.cursor.value is None:
            self.cursor.skip_to(1, wait=self.far)


def waiting(way: Callable[[Any], Any], length: timedelta) -> MemoryRun:
    class Here(Waits):
        far = length

        @step(on_exception=Retry(OSError, attempts=9, wait=length))
        def fails(self) -> None:
            raise OSError

        @step(on_exception=Retry(OSError, attempts=9, backoff=Backoff(length, cap=timedelta.max)))
        def fails_again(self) -> None:
            raise OSError

    # Not bound to the instance: the workflow is its one argument.
    Here.way = staticmethod(way)
    return MemoryRun(Here)


PARKS: dict[str, tuple[Callable[[Any], Any], Reason]] = {
    "sleep": (lambda self: self.sleep(self.far), Reason.TIMER),
    "signal": (lambda self: self.wait_for_signal("go", timeout=self.far), Reason.SIGNAL),
    "poll": (lambda self: self.wait_until(self.never, every=self.far), Reason.POLL),
    "poll with a timeout": (
        lambda self: self.wait_until(self.never, every=self.far, timeout=self.far),
        Reason.POLL,
    ),
    "broken poll": (
        lambda self: self.wait_until(
            self.broken, timeout=self.far, on_exception=Retry(OSError, wait=self.far)
        ),
        Reason.RETRY,
    ),
    "repeat": (lambda self: self.repeat(self.never, every=self.far), Reason.TICK),
    "policy": (lambda self: self.fails(), Reason.RETRY),
    "backoff": (lambda self: self.fails_again(), Reason.RETRY),
    "retry": (lambda self: self.retries(), Reason.RETRY),
    "suspend": (lambda self: self.suspends(), Reason.TIMER),
    "skip_to": (lambda self: self.skips_to(), Reason.TIMER),
}


@FAR
@pytest.mark.parametrize("way", PARKS)
def test_a_wait_beyond_the_calendar_ends_with_it(way: str, far: timedelta) -> None:
    """The run is parked at the last instant that there is, also when it is taken up again before that."""
    call, reason = PARKS[way]
    run = waiting(call, far)
    run.activate()
    assert run.state in (RunState.WAITING, RunState.AWAITING), run.error_message
    assert run.reason == reason
    assert run.wake_at == LAST or way == "backoff"
    # What chance takes away from a delay is no more than a tenth of it.
    assert run.waits is not None
    assert run.waits > timedelta(days=365 * 7000)
    until = run.wake_at
    run.pause()
    run.resume()
    run.activate()
    assert run.state in (RunState.WAITING, RunState.AWAITING), run.error_message
    assert run.wake_at == until or reason is Reason.RETRY


@FAR
def test_a_poll_with_a_far_timeout_looks_again_at_its_interval(far: timedelta) -> None:
    """Only its end is as good as never."""
    run = waiting(lambda self: self.wait_until(self.never, every=HOUR, timeout=far), far)
    for looks in range(1, 4):
        run.activate()
        assert (run.state, run.waits) == (RunState.WAITING, HOUR)
        assert run.clock.now() == START + (looks - 1) * HOUR
        run.wake()


@FAR
def test_a_signal_ends_a_wait_that_would_never_end(far: timedelta) -> None:
    """As it ends any other."""
    run = waiting(lambda self: self.wait_for_signal("go", timeout=far), far)
    run.activate()
    run.signal("go")
    assert replayed(run).drive().result == '"went on"'


@FAR
def test_a_coroutine_waits_as_far(far: timedelta) -> None:
    """By the same sums."""

    class Awaits(AsyncWorkflow[None]):
        async def run(self) -> None:
            await self.sleep(far)

    run = MemoryRun(Awaits)
    run.activate()
    assert (run.state, run.wake_at) == (RunState.WAITING, LAST)


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("base", [timedelta.max, timedelta(days=365 * 9000), timedelta(days=1)])
def test_a_delay_without_a_cap_is_no_longer_than_a_duration_can_be(base: timedelta, chance: float) -> None:
    """However many retries there were, and whatever chance adds."""
    for jitter in (0.0, 0.1, 1.0):
        backoff = Backoff(base, factor=1e6, cap=timedelta.max, jitter=jitter)
        delays = [backoff.delay(retry, lambda: chance) for retry in range(1, 8)]
        assert all(timedelta() <= delay <= timedelta.max for delay in delays)
    assert Backoff(base, factor=1e6, cap=timedelta.max, jitter=0).delay(7) == timedelta.max


# -- declared ---------------------------------------------------------------------------------------------------------


def declared(**options: Any) -> type[Workflow[None]]:
    class Declared(Workflow[None]):
        @step(**options)
        def work(self, *_: Any) -> None:
            if "on_exception" in options:
                raise OSError

    return Declared


DECLARED: dict[str, tuple[Callable[[timedelta], dict[str, Any]], Reason]] = {
    "wait": (lambda far: {"wait": far}, Reason.TIMER),
    "poll": (lambda far: {"wait_until": Poll(lambda self: False, every=far, timeout=far)}, Reason.POLL),
    "policy": (lambda far: {"on_exception": Retry(wait=far)}, Reason.RETRY),
    "backoff": (
        lambda far: {"on_exception": Retry(backoff=Backoff(far, cap=timedelta.max, jitter=0))},
        Reason.RETRY,
    ),
}


@FAR
@pytest.mark.parametrize("way", DECLARED)
def test_a_declared_wait_beyond_the_calendar_ends_with_it(way: str, far: timedelta) -> None:
    """The run is parked at the last instant that there is, also when it is taken up again before that."""
    options, reason = DECLARED[way]
    run = MemoryRun(declared(**options(far)))
    run.activate()
    assert run.is_over_as(RunState.WAITING, reason), run.error_message
    assert run.wake_at == LAST
    run.pause()
    run.resume()
    run.activate()
    assert (run.state, run.wake_at) == (RunState.WAITING, LAST)


@FAR
def test_a_declared_signal_may_be_awaited_as_far(far: timedelta) -> None:
    """The run is parked until the last instant, and goes on as it comes."""

    class Declared(Workflow[None]):
        @step(awaits=Signal("go", timeout=far))
        def work(self) -> None: ...

    run = MemoryRun(Declared)
    run.activate()
    assert (run.state, run.wake_at) == (RunState.AWAITING, LAST)
    run.signal("go")
    assert run.drive().state is RunState.COMPLETED


@FAR
def test_a_resumable_step_may_stop_as_long(far: timedelta) -> None:
    """Declared as in ``run()``."""

    class Declared(Workflow[None]):
        @resumable_step
        def work(self) -> None:
            self.cursor.skip_to(1, wait=far)

    run = MemoryRun(Declared)
    run.activate()
    assert (run.state, run.wake_at) == (RunState.WAITING, LAST)


@FAR
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("is_procedural", [True, False])
def test_a_deadline_beyond_the_calendar_is_none(far: timedelta, waits: bool, is_procedural: bool) -> None:
    """A run with it waits as one without it does, and comes to its end."""

    class Procedural(Workflow[None]):
        deadline = far
        deadline_includes_waits = waits

        def run(self) -> None:
            self.sleep(HOUR)
            self.wait_for_signal("go")

    class Declared(Workflow[None]):
        deadline = far
        deadline_includes_waits = waits

        @step(wait=HOUR)
        def first(self) -> None: ...

        @step(awaits="go")
        def second(self) -> None: ...

    run = MemoryRun(Procedural if is_procedural else Declared)
    run.activate()
    assert (run.state, run.waits) == (RunState.WAITING, HOUR)
    run.drive()
    assert run.state is RunState.AWAITING, run.error_message
    assert run.wake_at in (None, LAST)
    run.signal("go")
    assert run.drive().state is RunState.COMPLETED


# -- grids that end with the calendar -------------------------------------------------------------------------------


GRIDS = pytest.mark.parametrize(
    "every",
    [
        "day",
        "week",
        "month",
        "monday",
        "saturday",
        "0 0 1 * *",
        "30 12 * * mon",
        "0 0 29 2 *",
        timedelta(days=2),
        timedelta.max,
    ],
)


def repeating(
    every: Any, start_at: datetime | None, timezone: str | None = None
) -> tuple[Any, list[datetime]]:
    ticks: list[datetime] = []

    class Repeats(Workflow[None]):
        def run(self) -> None:
            zone = None if isinstance(every, timedelta) else timezone
            self.repeat(self.tick, every=every, start_at=start_at, timezone=zone)

        def tick(self, at: datetime) -> None:
            ticks.append(at)

    return Repeats, ticks


def ticking(every: Any, timezone: str | None, day: int) -> tuple[MemoryRun, list[datetime]]:
    """A run in the last days of the calendar, driven until nothing is due any more before its end."""
    workflow, ticks = repeating(every, None, timezone)
    run = MemoryRun(workflow, clock=ManualClock(datetime(9999, 12, day, 20, tzinfo=UTC)))
    run.activate()
    while run.state is RunState.WAITING and run.wake_at != LAST:
        run.wake()
        run.activate()
    return run, ticks


@GRIDS
@pytest.mark.parametrize("timezone", [None, "America/New_York"])
@pytest.mark.parametrize("day", [30, 31])
def test_a_grid_that_ends_with_the_calendar_parks_the_run(every: Any, timezone: str | None, day: int) -> None:
    """At the last instant, where there is no tick any more; what is due before is done."""
    run, ticks = ticking(every, timezone, day)
    assert run.is_over_as(RunState.WAITING, Reason.TICK), run.error_message
    assert run.wake_at == LAST
    assert all(tick < LAST for tick in ticks)


@pytest.mark.parametrize("every", ["day", "month", "monday", "0 0 1 * *"])
def test_a_grid_ends_with_the_calendar_east_of_greenwich_too(every: Any) -> None:
    """Where the wall clock is beyond the end of it already."""
    run, ticks = ticking(every, "Asia/Tokyo", 30)
    assert run.is_over_as(RunState.WAITING, Reason.TICK), run.error_message
    assert all(tick < LAST for tick in ticks)


@GRIDS
def test_the_tick_after_the_last_one_never_comes(every: Any) -> None:
    """It is announced with the end of the one that is given, for the last instant."""
    first = datetime(9999, 12, 31, 20, tzinfo=UTC)
    workflow, ticks = repeating(every, first)
    run = MemoryRun(workflow, clock=ManualClock(first - HOUR))
    run.activate()
    if run.wake_at == first:
        run.wake()
        run.activate()
        assert ticks == [first]
        assert len([row for row in run.journal if row.kind is Kind.TICK]) == 2
    assert run.is_over_as(RunState.WAITING, Reason.TICK), run.error_message
    assert run.wake_at == LAST


# -- times that are over ----------------------------------------------------------------------------------------------

OVER = pytest.mark.parametrize("timeout", [timedelta(), -MOMENT, -HOUR, timedelta.min])


@OVER
@pytest.mark.parametrize("default", [{}, {"default": None}, {"default": "late"}])
def test_a_wait_for_a_signal_that_has_no_time_left_looks_once(
    timeout: timedelta, default: dict[str, Any]
) -> None:
    """Nothing has come: it has timed out, and the run is not parked for it."""

    class Looks(Workflow[None]):
        def run(self) -> Any:
            try:
                return [self.wait_for_signal("go", timeout=timeout, **default)]
            except WaitTimedOut:
                return "timed out"

    run = driven(Looks)
    assert (
        run.result
        == {"": '"timed out"', "None": "[null]", "late": '["late"]'}[str(default.get("default", ""))]
    )
    assert (run.activations, run.clock.now()) == (1, START)
    assert replayed(MemoryRun(Looks)).drive().result == run.result


@OVER
def test_a_signal_that_is_there_wins_over_a_time_that_is_over(timeout: timedelta) -> None:
    """It is read, and its payload the answer, once for each call."""

    class Looks(Workflow[None]):
        def run(self) -> list[Any]:
            return [self.wait_for_signal("go", timeout=timeout, default="late") for _ in range(3)]

    run = MemoryRun(Looks)
    run.signal("go", 1)
    run.signal("go", 2)
    assert replayed(run).drive().result == '[1,2,"late"]'
    assert run.read == {1, 2}


@OVER
@pytest.mark.parametrize("default", [{}, {"default": "late"}])
@pytest.mark.parametrize("answer", [True, False])
def test_a_condition_that_has_no_time_left_is_looked_at_once(
    timeout: timedelta, default: dict[str, Any], answer: bool
) -> None:
    """If it holds, that counts; else it has timed out, and the run is not parked for it."""
    looks: list[bool] = []

    class Looks(Workflow[None]):
        def run(self) -> Any:
            try:
                return self.wait_until(self.holds, timeout=timeout, **default)
            except WaitTimedOut:
                return "timed out"

        def holds(self) -> bool:
            looks.append(answer)
            return answer

    run = driven(Looks)
    expected = "true" if answer else '"late"' if default else '"timed out"'
    assert (run.result, run.activations, run.clock.now()) == (expected, 1, START)
    assert looks == [answer]
