"""Repetitions in ``run()``: ticks on a grid, each done once and announced with the end of the one before."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import Fail, Pause, Retry, RunError, Skip, StepFailed, Workflow, resumable_step, step
from stepwell.clock import from_micros
from stepwell.entries import Execution
from stepwell.states import ExecutionState, Kind, Reason, RunState
from tests.unit.execution.memory import START, MemoryRun
from tests.unit.execution.procedures import crashed_everywhere, driven, replayed

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def of(run: MemoryRun, kind: Kind = Kind.TICK) -> list[Execution]:
    return [row for row in run.journal if row.kind is kind]


def story_of(run: MemoryRun) -> list[str]:
    """Each row of a tick or an end: its number and what became of it."""
    return [
        f"{row.key} {row.outcome or row.state}" for row in run.journal if row.kind in (Kind.TICK, Kind.REPEAT)
    ]


def hours(instants: Sequence[datetime]) -> list[float]:
    """So many hours after the start."""
    return [(each - START) / HOUR for each in instants]


def wait(run: MemoryRun, duration: timedelta) -> MemoryRun:
    """Time passes, and the run is taken up as often as it is due."""
    end = run.clock.now() + duration
    while run.wake_at is not None and run.state is RunState.WAITING and run.wake_at <= end:
        run.wake()
        run.activate()
    run.clock.travel(end - run.clock.now())
    return run


def be_late(run: MemoryRun, duration: timedelta) -> MemoryRun:
    """Nobody looks for a while."""
    run.clock.travel(duration)
    if run.state is RunState.WAITING:
        run.wake()
    run.activate()
    return run


class Ticks(Workflow[None]):
    """Notes when each tick was meant and when it came; subclasses say how it is repeated."""

    options: dict[str, Any] = {"every": HOUR}
    goes: Callable[[Any], None] = staticmethod(lambda workflow: None)

    def run(self) -> Any:
        return self.repeat(self.work, **self.options)

    @step
    def work(self, at: datetime) -> None:
        type(self).goes(self)
        self.session.append((at, self._runtime._recorder.now()))


def ticks(
    goes: Callable[[Any], None] = lambda workflow: None, base: type[Ticks] = Ticks, **options: Any
) -> MemoryRun:
    """A run that repeats like this, taken up once."""
    cls: Any = type("Repeating", (base,), {"options": {"every": HOUR, **options}, "goes": staticmethod(goes)})
    run = MemoryRun(cls)
    run.activate()
    return run


def done(run: MemoryRun) -> list[float]:
    return hours([at for at, _ in run.ledger])


# -- the grid -------------------------------------------------------------------------------------------------------


def test_ticks_come_at_their_instants_and_a_late_one_delays_no_other() -> None:
    """The grid hangs on when a tick is scheduled, and not on when it is run."""
    run = ticks()
    assert run.is_over_as(RunState.WAITING, Reason.TICK)
    wait(run, 2 * HOUR)
    be_late(run, 1.5 * HOUR)
    assert run.waits == HOUR / 2
    wait(run, HOUR)
    assert [hours(each) for each in run.ledger] == [[1, 1], [2, 2], [3, 3.5], [4, 4]]
    assert run.waits == HOUR / 2


def test_a_tick_and_the_announcement_of_the_next_one_are_one_entry() -> None:
    """There is no moment at which a tick is done and nothing says what comes next."""
    entries: list[int] = []
    run = ticks()
    run.at_boundary = lambda moment: entries.append(len(run.rows)) if moment == "after" else None
    wait(run, HOUR)
    # The tick's row was there; its end brings the next one's. The park brings none.
    assert entries == [2, 2]
    assert story_of(run) == ["1 success", "2 scheduled"]
    assert [row.scheduled_for for row in of(run)] == [START + HOUR, START + 2 * HOUR]


@pytest.mark.parametrize("passes_instant", [True, False])
def test_what_is_repeated_gets_its_instant_if_it_wants_it(passes_instant: bool) -> None:
    """A parameter without a default is for it; in the time zone of the repetition."""
    seen: list[Any] = []

    class Repeats(Workflow[None]):
        def run(self) -> None:
            at = datetime(2026, 3, 2, 8, tzinfo=UTC)
            options: Any = {
                "every": "0 10 * * *",
                "timezone": "Europe/Berlin",
                "until": lambda: len(seen) > 2,
            }
            method, function = (self.instant, take) if passes_instant else (self.nothing, take_none)
            self.repeat(method, start_at=at, **options)
            self.repeat(function, start_at=at, **{**options, "until": lambda: len(seen) > 4})

        def instant(self, at: datetime, urgent: bool = False) -> None:
            seen.append((at, urgent))

        def nothing(self, urgent: bool = False) -> None:
            seen.append(urgent)

    def take(at: datetime, *more: Any) -> None:
        seen.append((at, more))

    def take_none(*, urgent: bool = False) -> None:
        seen.append(urgent)

    assert driven(Repeats).state is RunState.COMPLETED
    if passes_instant:
        assert [at.isoformat() for at, _ in seen] == [
            f"2026-03-{day:02}T10:00:00+01:00" for day in (2, 3, 4, 4, 5)
        ]
        assert {str(more) for _, more in seen} == {"False", "()"}
    else:
        assert seen == [False] * 5


def test_the_first_tick_can_be_given() -> None:
    """Also one that is over: it comes at once if it has not expired."""
    assert done(wait(ticks(start_at=START + HOUR / 2), 2 * HOUR)) == [0.5, 1.5]
    assert done(wait(ticks(start_at=START - HOUR / 2), HOUR)) == [-0.5, 0.5]
    assert done(wait(ticks(start_at=START), HOUR)) == [0, 1]


def test_a_start_is_fixed_when_it_is_first_reached() -> None:
    """A replay may be called with another one, and an interval that is changed holds from the last tick on."""
    run = ticks(start_at=START + 3 * HOUR)
    run.workflow.options = {"every": 2 * HOUR, "start_at": START + HOUR}  # type: ignore[attr-defined]
    assert done(wait(run, 8 * HOUR)) == [3, 5, 7]


def test_a_month_keeps_its_day_over_the_journal() -> None:
    """The anchor is kept in each row: the 31st is the 31st again after the 28th."""
    run = ticks(every="month", start_at=datetime(2027, 1, 31, 9, tzinfo=UTC))
    wait(run, 500 * DAY)
    assert [f"{at:%m-%d %H}" for at, _ in run.ledger[:4]] == ["01-31 09", "02-28 09", "03-31 09", "04-30 09"]


def test_a_sequence_of_repetitions_is_told_apart_by_numbers() -> None:
    """In loops, and of one name."""

    class Twice(Ticks):
        def run(self) -> Any:
            answers = []
            for count in (1, 2, 0):
                self.context["count"] = count
                self.context["done"] = 0
                answers.append(self.repeat(self.work, every=HOUR, until=self.is_done))
                self.sleep(DAY)
            return answers

        def is_done(self) -> bool:
            return bool(self.context["done"] == self.context["count"])

    def goes(workflow: Any) -> None:
        workflow.context["done"] += 1

    run = replayed(ticks(goes, Twice)).drive()
    assert run.result == "[1,2,0]"
    assert done(run) == [1, 26, 27]
    assert story_of(run) == [
        "1 success",
        "2 canceled",
        "None success",
        "1#2 success",
        "2#2 success",
        "3#2 canceled",
        "#2 success",
        "#3 success",
    ]


# -- until ----------------------------------------------------------------------------------------------------------


def test_it_is_over_when_the_condition_says_so_at_first_after_a_tick_and_before_one() -> None:
    """Whichever comes first: nobody is reminded of what was paid meanwhile."""
    looks: list[int] = []
    is_over = False

    def until() -> bool:
        looks.append(1)
        return is_over

    run = ticks(until=lambda: True)
    assert (run.state, run.result, story_of(run)) == (RunState.COMPLETED, "0", ["None success"])
    run = ticks(until=until)
    wait(run, HOUR)
    assert (len(looks), done(run)) == (3, [1])
    is_over = True
    wait(run, HOUR)
    assert (len(looks), done(run), run.result) == (4, [1], "1")
    assert story_of(run) == ["1 success", "2 canceled", "None success"]


@pytest.mark.parametrize("kind", ["method", "name", "function"])
def test_the_condition_is_a_method_its_name_or_a_function(kind: str) -> None:
    """Asked with the context as it is."""

    class Counts(Ticks):
        def run(self) -> Any:
            until = {"method": self.is_over, "name": "is_over", "function": lambda: self.is_over()}[kind]
            return self.repeat(self.work, every=HOUR, until=until)

        def is_over(self) -> bool:
            return bool(self.context.get("n", 0) >= 3)

    def goes(workflow: Any) -> None:
        workflow.context["n"] = workflow.context.get("n", 0) + 1

    run = replayed(ticks(goes, Counts)).drive()
    assert (run.result, done(run), run.memory) == ("3", [1, 2, 3], {"n": 3})


def test_an_error_of_the_condition_goes_by_the_policies_of_what_is_repeated() -> None:
    """It is on the tick's way: retried, it is asked again, and the tick still comes at its instant."""
    failures = [KeyError("gone"), KeyError("gone")]

    class Retried(Ticks):
        policies = [Retry(KeyError, attempts=3, wait=timedelta(minutes=1))]

    def until() -> bool:
        if failures:
            raise failures.pop()
        return False

    run = wait(ticks(base=Retried, until=until), 2 * HOUR)
    assert done(run) == [1, 2]
    assert story_of(run) == ["1 retried", "1 retried", "1 success", "2 success", "3 scheduled"]


@pytest.mark.parametrize("on_error", ["continue", "fail"])
def test_a_condition_that_is_broken_for_good_ends_it_whatever_on_error_says(on_error: str) -> None:
    """Nobody would know when to stop; ``run()`` hears of it, and after ``resume()`` the same tick comes."""
    is_broken = True

    def until() -> bool:
        if is_broken:
            raise ValueError("no such column")
        return False

    run = ticks(until=until, on_error=on_error)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == "ValueError"
    assert "no such column" in (run.error_message or "")
    assert story_of(run) == ["1 failed", "None failed"]
    is_broken = False
    run.resume()
    run.activate()
    assert run.waits == HOUR
    assert done(wait(run, 2 * HOUR)) == [1, 2]


def test_a_condition_may_not_write() -> None:
    """As everywhere: nobody would commit it."""

    class Writes(Ticks):
        def run(self) -> Any:
            return self.repeat(self.work, every=HOUR, until=self.is_over)

        def is_over(self) -> bool:
            self.context["x"] = 1
            return False

    run = ticks(base=Writes)
    assert run.state is RunState.FAILED
    assert "changed the context" in (run.error_message or "")


def test_without_a_condition_a_tick_ends_it() -> None:
    """By the run's end."""
    run = ticks(lambda workflow: workflow.finish("enough"))
    wait(run, HOUR)
    assert (run.state, run.result) == (RunState.COMPLETED, '"enough"')
    assert story_of(run) == ["1 success"]
    run = ticks(lambda workflow: workflow.cancel("no more"))
    wait(run, HOUR)
    assert run.is_over_as(RunState.CANCELED, "no more")
    assert story_of(run) == ["1 canceled"]


# -- lateness -------------------------------------------------------------------------------------------------------


def test_after_an_outage_one_tick_is_made_up_for_and_the_others_are_one_row() -> None:
    """By default a tick expires when the next one is due."""
    run = be_late(ticks(), timedelta(hours=1_000_000, minutes=30))
    assert done(run) == [1_000_000]
    assert story_of(run) == ["1 timed_out", "1000000 success", "1000001 scheduled"]
    assert run.waits == HOUR / 2
    summary = of(run)[0]
    assert (summary.state, summary.scheduled_for) == (ExecutionState.SKIPPED, START + HOUR)
    details = json.loads(summary.details or "")
    assert details["expired"] == 999_999
    assert from_micros(details["last"]) == START + 999_999 * HOUR


def test_a_timeout_says_how_late_a_tick_may_be() -> None:
    """Later ones are left out, the others made up for, each on its own."""
    assert done(be_late(ticks(timeout=2.5 * HOUR), 6 * HOUR)) == [4, 5, 6]
    assert done(be_late(ticks(timeout=2 * HOUR), 6 * HOUR)) == [4, 5, 6]
    assert done(be_late(ticks(timeout=999 * DAY), 6 * HOUR)) == [1, 2, 3, 4, 5, 6]
    run = be_late(ticks(timeout=HOUR / 4), 6.5 * HOUR)
    assert (done(run), run.waits) == ([], HOUR / 2)
    assert story_of(run) == ["1 timed_out", "7 scheduled"]


def test_ticks_that_were_given_too_early_a_start_are_left_out_at_first() -> None:
    """No repetition begins with a year of work."""
    run = ticks(start_at=START - 100.5 * HOUR)
    assert (done(run), story_of(run)) == ([-0.5], ["1 timed_out", "101 success", "102 scheduled"])


def test_a_tick_that_was_tried_does_not_expire() -> None:
    """Its policies decide: an error is not hidden by the next tick."""
    errors = [OSError("down")] * 2

    class Retried(Ticks):
        policies = [Retry(OSError, attempts=3, wait=5 * HOUR)]

    def goes(workflow: Any) -> None:
        if errors:
            raise errors.pop()

    run = wait(ticks(goes, Retried), 11 * HOUR)
    assert [hours(each) for each in run.ledger] == [[1, 11], [11, 11]]
    assert story_of(run) == [
        "1 retried",
        "1 retried",
        "1 success",
        "2 timed_out",
        "11 success",
        "12 scheduled",
    ]


def test_only_the_wait_between_ticks_counts_as_one_for_a_deadline() -> None:
    """A repetition stands still on purpose; with waits included, its end is an error of the tick."""

    class Limited(Ticks):
        deadline = 3.5 * HOUR
        deadline_includes_waits = True

    class Patient(Limited):
        deadline_includes_waits = False

    run = wait(ticks(base=Limited), 5 * HOUR)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert done(run) == [1, 2, 3]
    assert "deadline" in (run.error_message or "")
    assert done(wait(ticks(base=Patient), 5 * HOUR)) == [1, 2, 3, 4, 5]


# -- errors ---------------------------------------------------------------------------------------------------------


def fails_at(*numbers: int) -> Callable[[Any], None]:
    """The so-many-th bodies raise."""
    calls: list[int] = []

    def goes(workflow: Any) -> None:
        calls.append(len(calls) + 1)
        if calls[-1] in numbers:
            raise ValueError(f"body {calls[-1]}")

    return goes


def test_a_tick_that_fails_for_good_does_not_keep_the_next_one_from_coming() -> None:
    """By default; it is reported, and does not count as done."""
    run_is_over = False
    run = wait(ticks(fails_at(2), until=lambda: run_is_over), 3 * HOUR)
    assert story_of(run) == ["1 success", "2 failed", "3 success", "4 scheduled"]
    assert [str(error) for error in run.reported] == ["body 2"]
    run_is_over = True
    wait(run, HOUR)
    assert (run.state, run.result, done(run)) == (RunState.COMPLETED, "2", [1, 3])


def test_a_failing_tick_can_fail_the_call() -> None:
    """``run()`` catches it like that of any step, on replay too, and the repetition is over."""

    class Catches(Ticks):
        def run(self) -> Any:
            try:
                self.repeat(self.work, every=HOUR, on_error="fail")
            except StepFailed as failed:
                self.sleep(HOUR)
                return [failed.step, failed.caused_by(ValueError), str(failed.message)]

    run = replayed(ticks(fails_at(2), Catches)).drive()
    assert run.result == '["work",true,"body 2"]'
    assert story_of(run) == ["1 success", "2 failed", "None failed"]


def test_after_resume_the_tick_whose_error_escaped_is_tried_again() -> None:
    """The same one, with its key, and the grid goes on."""
    keys: list[str] = []

    def goes(workflow: Any) -> None:
        keys.append(workflow.idempotency_key.partition(":")[2])
        if len(keys) == 2:
            raise ValueError("once")

    run = wait(ticks(goes, on_error="fail"), 2 * HOUR)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    run.clock.travel(HOUR / 2)
    run.resume()
    run.activate()
    wait(run, HOUR)
    assert done(run) == [1, 2, 3]
    assert keys == ["work[tick 1]", "work[tick 2]", "work[tick 2]", "work[tick 3]"]


def test_attempts_are_counted_for_each_tick() -> None:
    """A tick does not inherit what the one before has used up, nor its delay."""

    class Retried(Ticks):
        @step(on_exception=Retry(ValueError, attempts=2, wait=HOUR / 4))
        def work(self, at: datetime) -> None:
            type(self).goes(self)
            self.session.append((at, self._runtime._recorder.now()))

    run = wait(ticks(fails_at(1, 3, 5, 6), Retried), 4 * HOUR)
    assert [hours(each) for each in run.ledger] == [[1, 1.25], [2, 2.25], [4, 4]]
    assert [row.attempt for row in of(run)] == [1, 2, 1, 2, 1, 2, 1, 1]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Skip(ValueError), ["1 skipped", "2 success", "3 scheduled"]),
        (Retry(ValueError, attempts=2), ["1 retried", "1 success", "2 success", "3 scheduled"]),
        (Fail(ValueError), ["1 failed", "2 success", "3 scheduled"]),
    ],
)
def test_the_policies_of_a_step_decide_about_each_tick(policy: Any, expected: list[str]) -> None:
    """As about any call of it."""

    class Has(Ticks):
        policies = [policy]

    assert story_of(wait(ticks(fails_at(1), Has), 2 * HOUR)) == expected


def test_a_tick_that_pauses_the_run_comes_again_after_it() -> None:
    """By a policy or by itself, however late; one that says it is done does not."""

    class Pauses(Ticks):
        policies = [Pause(ValueError)]

    def goes(workflow: Any) -> None:
        if len(asked) < 2:
            asked.append(1)
            workflow.pause("wait", done=len(asked) == 2)

    for made in (ticks(fails_at(1), Pauses), ticks(goes)):
        asked: list[int] = []
        run = wait(made, HOUR)
        assert run.state is RunState.PAUSED
        run.clock.travel(5.5 * HOUR)
        run.resume()
        run.activate()
        if run.state is RunState.PAUSED:
            # The second time it was done.
            assert story_of(run) == ["1 paused", "1 success", "2 scheduled"]
        else:
            assert done(run) == [1, 6]


def test_verbs_of_a_step_are_those_of_a_tick() -> None:
    """Left out, tried again."""
    said = ["skip", "retry"]

    def goes(workflow: Any) -> None:
        if said:
            getattr(workflow, said.pop(0))()

    run = wait(ticks(goes), 2 * HOUR)
    assert story_of(run) == ["1 skipped", "2 retried", "2 success", "3 scheduled"]
    assert done(run) == [2]


def test_an_ordinary_method_and_a_function_have_the_policies_of_the_class() -> None:
    """And what they change in the context is kept."""

    class Plain(Workflow[None]):
        policies = [Retry(ValueError, attempts=2)]

        def run(self) -> Any:
            times = self.repeat(self.work, every=HOUR, until=lambda: self.context.get("n") == 3)
            return [
                times,
                self.repeat(print_nothing, every=HOUR, name="printing", until=lambda: len(printed) > 1),
            ]

        def work(self) -> None:
            bodies.append(1)
            if len(bodies) == 2:
                raise ValueError("once")
            self.context["n"] = self.context.get("n", 0) + 1

    def print_nothing() -> None:
        printed.append(1)

    bodies: list[int] = []
    printed: list[int] = []
    run = driven(Plain)
    assert (run.result, len(bodies), run.memory) == ("[3,2]", 4, {"n": 3})
    assert {row.name for row in of(run)} == {"work", "printing"}


def test_an_async_step_is_repeated() -> None:
    """On the event loop, as it is called otherwise."""

    class Async(Ticks):
        @step
        async def work(self, at: datetime) -> None:
            await self.in_session(lambda session: session.append((at, at)))

    assert done(wait(ticks(base=Async), 2 * HOUR)) == [1, 2]


def test_a_resumable_step_goes_on_within_its_tick() -> None:
    """Its cursor belongs to the tick: the next one begins at the top."""

    class Walks(Ticks):
        @resumable_step(max_iterations=2)
        def work(self, at: datetime) -> Any:
            for number in range(self.cursor.value or 0, 3):
                self.session.append((at, number))
                yield number + 1

    run = wait(ticks(base=Walks), 2 * HOUR)
    assert [(hours([at])[0], number) for at, number in run.ledger] == [
        (h, n) for h in (1, 2) for n in range(3)
    ]
    assert story_of(run)[-1] == "3 scheduled"


# -- crashes and what is kept -------------------------------------------------------------------------------------


def test_a_crash_at_any_write_loses_no_tick_and_does_none_twice() -> None:
    """Each is committed with its end and the announcement of the next one."""

    class Bounded(Ticks):
        def run(self) -> Any:
            answer = self.repeat(self.work, every=HOUR, until=lambda: self.context.get("n") == 3)
            self.sleep(HOUR)
            return [answer, self.context["n"]]

    def goes(workflow: Any) -> None:
        workflow.context["n"] = workflow.context.get("n", 0) + 1

    def make() -> MemoryRun:
        cls: Any = type("Repeating", (Bounded,), {"goes": staticmethod(goes)})
        return MemoryRun(cls)

    runs = crashed_everywhere(make)
    assert len(runs) > 15
    for run in runs:
        assert (run.result, done(run)) == ("[3,3]", [1, 2, 3])


def test_only_the_last_row_of_a_repetition_counts() -> None:
    """Those before it can be deleted: place, count and context go from each to the next."""

    def goes(workflow: Any) -> None:
        workflow.context["n"] = n = workflow.context.get("n", 0) + 1
        workflow.context[f"even {n % 4}"] = n
        if n % 2:
            workflow.context.pop("even 2", None)

    class Bounded(Ticks):
        def run(self) -> Any:
            self.context["before"] = 1
            answer = self.repeat(self.work, every=HOUR, until=lambda: self.context.get("n") == 5)
            self.sleep(HOUR)
            return [answer, dict(self.context)]

    whole = replayed(ticks(goes, Bounded)).drive()
    run = ticks(goes, Bounded)
    for _ in range(5):
        wait(run, HOUR)
        run.superseded = {row.position for row in of(run) if row.state is not ExecutionState.SCHEDULED}
    run.superseded = {row.position for row in of(run)}
    assert run.state is RunState.WAITING
    assert run.drive().result == whole.result
    assert json.loads(whole.result)[1] == {"before": 1, "n": 5, "even 1": 5, "even 3": 3, "even 0": 4}


def test_the_context_of_the_ticks_is_seen_by_what_comes_after_them_and_by_nothing_before() -> None:
    """A replay makes their changes where the repetition stands."""
    seen: list[Any] = []

    class Looks(Ticks):
        def run(self) -> None:
            seen.append(self.context.get("n"))
            self.step("first", lambda: None)
            seen.append(self.context.get("n"))
            self.repeat(self.work, every=HOUR, until=lambda: self.context.get("n") == 2)
            seen.append(self.context.get("n"))
            self.step("overwrite", self.overwrite)
            self.sleep(HOUR)
            seen.append(self.context.get("n"))

        def overwrite(self) -> None:
            self.context["n"] = "over"

    def goes(workflow: Any) -> None:
        workflow.context["n"] = workflow.context.get("n", 0) + 1

    replayed(ticks(goes, Looks)).drive()
    assert set(seen) == {None, 2, "over"}
    assert seen[-4:] == [None, None, 2, "over"]


def test_what_is_changed_from_outside_between_two_ticks_stays_changed() -> None:
    """What the ticks have changed goes from each to the next, and does not come back over it."""
    seen: list[Any] = []

    class Looks(Ticks):
        def run(self) -> None:
            self.repeat(self.work, every=HOUR, until=lambda: self.context.get("ticks") == 3)
            seen.append(dict(self.context))
            self.sleep(HOUR)

    def goes(workflow: Any) -> None:
        workflow.context["ticks"] = workflow.context.get("ticks", 0) + 1
        workflow.context.setdefault("rate", 1)

    run = wait(ticks(goes, Looks), HOUR)
    run.change(rate=5)
    replayed(run).drive()
    assert seen == [{"ticks": 3, "rate": 5}] * len(seen)
    assert len(seen) > 1


def test_ticks_are_progress_for_the_errors_of_run_itself() -> None:
    """Its retries are counted in a row: not those of a year, with a hundred ticks in between."""
    passes: list[int] = []

    class Flaky(Ticks):
        policies = [Retry(OSError, attempts=2)]

        def run(self) -> Any:
            passes.append(1)
            if len(passes) % 2 == 0:
                raise OSError("the clock of the world stood still")
            return self.repeat(self.work, every=HOUR, until=lambda: len(passes) > 10)

    run = ticks(base=Flaky).drive()
    assert (run.state, run.result) == (RunState.COMPLETED, "4")


def test_an_error_that_a_repetition_went_on_from_is_not_what_the_run_fails_by() -> None:
    """It was told of, and something else is wrong."""

    class Changed(Workflow[None]):
        @step
        def work(self, number: int) -> None: ...

        def tick(self) -> None:
            passes.append(1)
            raise ValueError("a tick's")

        def run(self) -> None:
            if len(passes) == 0:
                self.work(1)
                passes.append(1)
                self.sleep(HOUR)
            self.repeat(self.tick, every=HOUR, start_at=START, until=lambda: len(passes) > 1)
            self.work(2)

    passes: list[int] = []
    run = MemoryRun(Changed)
    run.activate()
    run.wake()
    ended = run.activate()
    assert ended is not None
    assert (run.reason, ended.error) == (Reason.HISTORY_MISMATCH, None)


def test_a_repetition_that_the_code_has_dropped_is_told_of_once() -> None:
    """With its ticks, as one orphan."""
    run = wait(ticks(), 2 * HOUR)
    run.workflow.run = lambda self: None  # type: ignore[attr-defined]
    run.workflow.plan = run.workflow.plan
    wait(run, HOUR)
    assert run.state is RunState.COMPLETED
    assert json.loads(run.details or "")["orphans"] == ["work"]
    assert story_of(run)[-1] == "3 skipped"


# -- what people do -------------------------------------------------------------------------------------------------


def test_a_pause_keeps_the_instant_of_the_next_tick() -> None:
    """Resumed in time, the run waits for what remains; overdue, the tick comes at once."""
    run = ticks()
    run.clock.travel(HOUR / 4)
    run.pause()
    run.clock.travel(HOUR / 4)
    run.resume()
    run.activate()
    assert run.waits == HOUR / 2
    run.pause()
    run.clock.travel(HOUR)
    run.resume()
    run.activate()
    assert [hours(each) for each in run.ledger] == [[1, 1.5]]
    assert run.waits == HOUR / 2


def test_a_skip_leaves_out_one_tick() -> None:
    """The one that the run waits for, also between two attempts; the next one comes at its instant."""

    class Retried(Ticks):
        policies = [Retry(ValueError, attempts=5, wait=HOUR / 2)]

    for run in (ticks(), wait(ticks(fails_at(1), Retried), HOUR)):
        run.skip()
        run.activate()
        assert run.state is RunState.READY
        run.activate()
        wait(run, 2 * HOUR)
        assert done(run)[0] == 2
        assert "1 skipped" in story_of(run)
    assert json.loads(of(run)[1].details or "")["from"] == "waiting"


def test_a_cancel_ends_what_was_announced() -> None:
    """Asked for while a tick runs, after it; no row stays open."""

    def goes(workflow: Any) -> None:
        run.cancel("enough")

    run = ticks(goes)
    wait(run, HOUR)
    assert run.is_over_as(RunState.CANCELED, "enough")
    assert story_of(run) == ["1 success", "2 canceled"]

    def pauses(workflow: Any) -> None:
        run.cancel("enough")
        workflow.pause("and", done=True)

    run = ticks(pauses)
    wait(run, HOUR)
    assert run.is_over_as(RunState.CANCELED, "enough")
    assert story_of(run) == ["1 success"]


# -- where it works, and with what ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 60}, "repeat(): every must be a timedelta"),
        ({"every": "fortnight"}, "repeat(): every must be a timedelta"),
        ({"timeout": timedelta()}, "repeat(): timeout must be more than zero"),
        ({"start_at": datetime(2026, 1, 1)}, "repeat(): start_at must be an aware datetime"),
        ({"on_error": "ignore"}, "repeat(): on_error must be one of 'continue', 'fail'"),
        ({"until": 5}, "repeat(): until must be a method, its name or a function"),
        ({"timezone": "UTC"}, "repeat(): timezone is for words"),
        ({"name": " x"}, "repeat(): name must not"),
        ({"till": 5}, "repeat() has no option 'till'; it has every, until, start_at, timeout"),
    ],
)
def test_values_that_do_not_fit_are_refused(options: Any, words: str) -> None:
    """At the call, with the rule."""
    run = ticks(**options)
    assert run.state is RunState.FAILED
    assert (run.error_class, words in (run.error_message or "")) == ("TypeError", True), run.error_message


def test_functions_that_nobody_could_call_are_refused() -> None:
    """With what is wrong about them."""

    async def later() -> bool:
        return True

    refused: dict[str, Any] = {
        "until is async": lambda self: self.repeat(print, every=HOUR, until=later),
        "this one wants a, b": lambda self: self.repeat(lambda a, b: None, every=HOUR),
        "this one wants c": lambda self: self.repeat(named_only, every=HOUR),
        "takes a step, a method or a function": lambda self: self.repeat("work", every=HOUR),
    }

    def named_only(*, c: int) -> None: ...

    for words, body in refused.items():
        run = driven(type("Refused", (Workflow,), {"run": body}))
        assert words in (run.error_message or ""), run.error_message


def test_it_works_in_run_alone() -> None:
    """A step is durable as a whole."""

    class Inside(Workflow[None]):
        @step
        def work(self) -> None:
            self.repeat(print, every=HOUR)

    assert "repeat() works in run()" in (driven(Inside).error_message or "")
    with pytest.raises(RunError, match=r"repeat\(\) exists only while"):
        Inside().repeat(print, every=HOUR)


def test_a_row_that_cannot_be_read_fails_the_run_and_says_so() -> None:
    """It is not taken for a repetition that begins."""
    run = wait(ticks(), HOUR)
    last = of(run)[-1]
    run.rows[last.position] = Execution(last.position, last.name, last.kind, last.state, key=last.key)
    wait(run, HOUR)
    assert run.is_over_as(RunState.FAILED, Reason.UNDECODABLE)
    assert "tick 2 of work cannot be read back" in (run.error_message or "")
