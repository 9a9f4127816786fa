"""What ChronoForge's users rely on, and what they trip over: the behaviours that no other test is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event

from stepwell import Retry, Run, StepFailed, Workflow, step
from stepwell.states import Kind, Outcome
from stepwell.testing import Workbench

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def rows(run: Run, kind: Kind) -> list[tuple[str | None, Any]]:
    return [(row.key, row.outcome) for row in run.steps if row.kind == kind]


# -- waits ------------------------------------------------------------------------------------------------------


def test_a_sleep_of_nothing_is_over_at_once(bench: Workbench) -> None:
    """The run does not park for it."""

    class Sleeps(Workflow):
        def run(self) -> str:
            self.sleep(timedelta(0))
            return "awake"

    run = Sleeps.start()
    assert bench.drain() == 1
    assert run.result() == "awake"


def test_a_sleep_that_is_woken_early_waits_for_what_is_left(bench: Workbench) -> None:
    """ChronoForge begins the whole duration anew."""

    class Sleeps(Workflow):
        def run(self) -> None:
            self.sleep(2 * HOUR)

    run = Sleeps.start()
    bench.drain()
    bench.travel(HOUR)
    run.pause()
    run.resume()
    bench.drain()
    begin = bench.now
    assert bench.run_to_end(run) == "completed"
    assert bench.now - begin == HOUR


def test_a_duration_that_changes_in_the_code_moves_no_sleep_that_is_under_way(bench: Workbench) -> None:
    """The instant was fixed when the call was first reached."""

    class Sleeps(Workflow):
        length = HOUR

        def run(self) -> None:
            self.sleep(self.length)

    run = Sleeps.start()
    begin = bench.now
    bench.drain()
    Sleeps.length = 9 * HOUR
    assert bench.run_to_end(run) == "completed"
    assert bench.now - begin == HOUR


def test_a_condition_may_be_awaited_twice_and_is_not_asked_again_once_it_held(bench: Workbench) -> None:
    """Each wait has an entry of its own, without an error; a replay asks nobody."""
    looks: list[str] = []

    class Waits(Workflow):
        def run(self) -> tuple[bool, bool]:
            first = self.wait_until(self.is_ready)
            self.sleep(HOUR)
            return first, self.wait_until(self.is_ready)

        def is_ready(self) -> bool:
            looks.append("look")
            return True

    run = Waits.start()
    assert bench.run_to_end(run) == "completed"
    assert run.result() == (True, True)
    assert len(looks) == 2
    assert rows(run, Kind.POLL) == [(None, Outcome.SUCCESS), ("#2", Outcome.SUCCESS)]
    assert [row.error_class for row in run.steps] == [None, None, None]


def test_a_condition_that_holds_when_it_is_looked_at_too_late_holds(bench: Workbench) -> None:
    """No worker came before the timeout; what counts is what the last look sees."""

    class Waits(Workflow):
        is_ready = False

        def run(self) -> str:
            return "held" if self.wait_until(lambda: Waits.is_ready, timeout=HOUR, default=False) else "late"

    run = Waits.start()
    bench.drain()
    Waits.is_ready = True
    bench.travel(3 * HOUR)
    assert bench.run_to_end(run) == "completed"
    assert run.result() == "held"


def test_polls_are_clipped_to_the_timeout(bench: Workbench) -> None:
    """ChronoForge notices up to an interval too late."""

    class Waits(Workflow):
        def run(self) -> Any:
            return self.wait_until(lambda: False, every=45 * timedelta(minutes=1), timeout=HOUR, default=None)

    run = Waits.start()
    begin = bench.now
    assert bench.run_to_end(run) == "completed"
    assert bench.now - begin == HOUR


# -- repetitions ------------------------------------------------------------------------------------------------


class Ticking(Workflow):
    """Ticks every hour, for as long as the test says."""

    ticks: list[datetime] = []
    after: list[str] = []
    limit = 3
    errors = 0
    options: dict[str, Any] = {}

    def run(self) -> int:
        done = self.repeat(
            self.tick, every=self.options.get("every", HOUR), until=self.is_over, **self.given()
        )
        self.step("after", self.after.append, "after")
        return done

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name != "every"}

    def is_over(self) -> bool:
        return len(Ticking.ticks) >= Ticking.limit

    @step(on_exception=Retry(ConnectionError, attempts=3, wait=timedelta(minutes=1)))
    def tick(self, at: datetime) -> None:
        if Ticking.errors:
            Ticking.errors -= 1
            raise ConnectionError("down")
        self.ticks.append(at)


@pytest.fixture(autouse=True)
def _no_ticks() -> None:
    Ticking.ticks, Ticking.after = [], []
    Ticking.limit, Ticking.errors, Ticking.options = 3, 0, {}


def offsets(begin: datetime) -> list[timedelta]:
    return [at - begin for at in Ticking.ticks]


def test_a_repetition_that_is_over_at_once_ticks_never(bench: Workbench) -> None:
    """``until`` is asked before the first tick, too."""
    Ticking.limit = 0
    run = Ticking.start()
    assert bench.drain() == 1
    assert (run.result(), rows(run, Kind.TICK)) == (0, [])


def test_the_first_tick_comes_after_one_interval_or_at_its_instant(bench: Workbench) -> None:
    """Counted from where the call is first reached, or from ``start_at``."""
    begin = bench.now
    bench.run_to_end(Ticking.start())
    assert offsets(begin) == [HOUR, 2 * HOUR, 3 * HOUR]

    Ticking.ticks = []
    start = bench.now + timedelta(minutes=10)
    Ticking.options = {"start_at": start}
    bench.run_to_end(Ticking.start())
    assert offsets(start) == [timedelta(0), HOUR, 2 * HOUR]


def test_a_tick_that_is_late_moves_no_other(bench: Workbench) -> None:
    """The grid hangs on the instants for which they were scheduled."""
    begin = bench.now
    run = Ticking.start()
    bench.drain()
    bench.travel(HOUR + timedelta(minutes=40))
    bench.drain()
    bench.run_to_end(run)
    assert offsets(begin) == [HOUR, 2 * HOUR, 3 * HOUR]


def test_a_crash_behind_a_tick_does_not_fall_through(bench: Workbench) -> None:
    """ChronoForge went on with what stands behind the repetition; here the next tick is announced with the last."""
    begin = bench.now
    run = Ticking.start()
    for place in ("after_body", "after_commit", "before_settle", "after_settle"):
        Ticking.limit += 1
        with bench.crash_at(place, step="tick"):
            bench.run_to_end(run)
        assert Ticking.after == []
        bench.travel(timedelta(minutes=2))
        bench.drain()
    assert bench.run_to_end(run) == "completed"
    assert Ticking.after == ["after"]
    assert set(offsets(begin)) == {number * HOUR for number in range(1, run.result() + 1)}


def test_each_tick_has_attempts_of_its_own_and_keeps_its_instant(bench: Workbench) -> None:
    """Two errors of one tick leave the next one its three attempts; a retried tick is told when it was due."""
    begin = bench.now
    run = Ticking.start()
    bench.drain()
    for number in range(1, 4):
        Ticking.errors = 2
        bench.travel_to(begin + number * HOUR)
        for _ in range(4):
            bench.drain()
            bench.travel(timedelta(minutes=1))
    assert bench.run_to_end(run) == "completed"
    assert offsets(begin) == [HOUR, 2 * HOUR, 3 * HOUR]


def test_looks_ahead_of_a_tick_cost_no_attempt(bench: Workbench) -> None:
    """In ChronoForge each early pass uses up a retry."""
    Ticking.limit = 1
    run = Ticking.start()
    bench.drain()
    for _ in range(5):
        bench.travel(timedelta(minutes=5))
        run.pause()
        run.resume()
        bench.drain()
    Ticking.errors = 2
    assert bench.run_to_end(run) == "completed"
    assert run.result() == 1


@pytest.mark.parametrize("on_error", ["continue", "fail"])
def test_a_tick_that_fails_for_good_is_left_behind_or_ends_it(bench: Workbench, on_error: str) -> None:
    """``"continue"`` goes on with the next one, and counts the good ones; ``"fail"`` raises."""
    Ticking.options, Ticking.errors, Ticking.limit = {"on_error": on_error}, 3, 2
    begin = bench.now
    run = Ticking.start()
    state = bench.run_to_end(run)
    if on_error == "continue":
        assert (state, run.result(), offsets(begin)) == ("completed", 2, [2 * HOUR, 3 * HOUR])
    else:
        assert (state, run.reason, Ticking.ticks) == ("failed", "step_failed", [])
        run.resume()
        assert bench.run_to_end(run) == "completed"
        assert offsets(begin) == [HOUR, 2 * HOUR]


def test_what_an_outage_has_made_too_late_is_left_out_in_one_entry(bench: Workbench) -> None:
    """The ticks within the window are made up for; the others are counted, and are no errors."""
    Ticking.options, Ticking.limit = {"timeout": 90 * timedelta(minutes=1), "on_error": "fail"}, 3
    begin = bench.now
    run = Ticking.start()
    bench.drain()
    bench.travel(1000 * HOUR + timedelta(minutes=40))
    bench.drain()
    assert offsets(begin) == [1000 * HOUR]
    assert bench.run_to_end(run) == "completed"
    assert run.result() == 3
    assert [outcome for _, outcome in rows(run, Kind.TICK)].count(Outcome.TIMED_OUT) == 1


def test_by_default_one_tick_makes_up_for_an_outage(bench: Workbench) -> None:
    """A tick expires when the next one is due, however long the interval is."""
    Ticking.options, Ticking.limit = {"every": DAY}, 2
    begin = bench.now
    run = Ticking.start()
    bench.drain()
    bench.travel(5 * DAY + 23 * HOUR)
    bench.drain()
    assert offsets(begin) == [5 * DAY]
    bench.run_to_end(run)
    assert offsets(begin) == [5 * DAY, 6 * DAY]


def test_an_error_of_until_fails_the_run_and_can_be_resumed(bench: Workbench) -> None:
    """Nobody could tell when to stop; mended, the repetition goes on where it was."""

    class Broken(Workflow):
        is_mended = False
        ticks = 0

        def run(self) -> int:
            return self.repeat(self.tick, every=HOUR, until=self.is_over)

        def is_over(self) -> bool:
            if Broken.ticks == 1 and not Broken.is_mended:
                raise KeyError("a bug")
            return Broken.ticks == 2

        @step
        def tick(self) -> None:
            Broken.ticks += 1

    run = Broken.start()
    assert bench.run_to_end(run) == "failed"
    assert run.info().error_class == "KeyError"
    Broken.is_mended = True
    run.resume()
    assert bench.run_to_end(run) == "completed"
    assert Broken.ticks == 2


def test_the_last_of_a_month_is_the_last_of_each_and_local_time_stays(bench: Workbench) -> None:
    """ChronoForge went from the 31st to the 28th for good, and lost the zone at the first change of the clocks."""
    start = datetime(2030, 1, 31, 7, 30, tzinfo=UTC)
    bench.travel_to(start - HOUR)
    Ticking.options = {"every": "month", "start_at": start, "timezone": "Europe/Berlin"}
    Ticking.limit = 4
    bench.run_to_end(Ticking.start())
    assert [(at.month, at.day, at.hour, at.minute) for at in Ticking.ticks] == [
        (1, 31, 8, 30),
        (2, 28, 8, 30),
        (3, 31, 8, 30),
        (4, 30, 8, 30),
    ]


@pytest.mark.parametrize(
    "wrong",
    [{"every": timedelta(0)}, {"timeout": -HOUR}, {"on_error": "fail_workflow"}, {"every": "fortnight"}],
)
def test_what_makes_no_sense_of_a_repetition_is_refused(bench: Workbench, wrong: dict[str, Any]) -> None:
    """ChronoForge takes all of them and does something."""
    Ticking.options = wrong
    run = Ticking.start()
    assert bench.run_to_end(run) == "failed"
    assert run.info().error_class == "TypeError"


# -- arguments, context, replay ---------------------------------------------------------------------------------


def test_arguments_may_be_called_anything(bench: Workbench) -> None:
    """There are no reserved ones: what is Stepwell's own goes through ``with_options``."""

    class Named(Workflow):
        def run(self, attempt: int, options: str, retry_workflow: bool, queue: str) -> list[Any]:
            return [attempt, options, retry_workflow, queue]

    run = Named.start(attempt=5, options="o", retry_workflow=True, queue="q")
    assert bench.run_to_end(run) == "completed"
    assert run.result() == [5, "o", True, "q"]


def test_a_refused_value_takes_the_others_of_its_step_along(bench: Workbench) -> None:
    """All or nothing: what a step has put into the context goes with its error, unless the step catches it."""

    class Merges(Workflow):
        def run(self) -> str:
            try:
                self.merge()
            except StepFailed as failure:
                return failure.error_class
            return "merged"

        @step
        def merge(self) -> None:
            self.context.update(good=1, bad=object())

    run = Merges.start()
    assert bench.run_to_end(run) == "completed"
    assert (run.result(), dict(run.context)) == ("stepwell.errors.Unstorable", {})


def test_a_replay_asks_the_database_for_no_step(bench: Workbench) -> None:
    """However many are done: the journal comes with the claim."""

    class Long(Workflow):
        def run(self, steps: int) -> None:
            for number in range(steps):
                self.work(number)
            self.sleep(HOUR)

        @step
        def work(self, number: int) -> None: ...

    counts = []
    for steps in (2, 200):
        run = Long.start(steps=steps)
        bench.drain()
        bench.travel(HOUR)
        statements: list[str] = []

        def note(_c: Any, _cur: Any, statement: str, *_more: Any, statements: list[str] = statements) -> None:
            statements.append(statement)

        engine = bench.engine.database.engine
        event.listen(engine, "before_cursor_execute", note)
        bench.drain()
        event.remove(engine, "before_cursor_execute", note)
        assert run.state == "completed"
        counts.append(len(statements))
    assert counts[0] == counts[1]
