"""Flow control out of a step: each verb's end, and what it keeps of what the step wrote."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import RunError, Workflow, resumable_step, step
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from tests.unit.execution.memory import START, Crash, MemoryRun, crash_at

HOUR = timedelta(hours=1)


def order(say: Callable[[Any], Any]) -> type[Workflow[None]]:
    """A workflow whose first step writes to its context and its session and then says something, once."""

    class Order(Workflow[None]):
        @step
        def pack(self) -> None:
            if run_of(self).row_count("pack") == 0:
                self.context["packed"] = True
                self.session.append("packed")
                say(self)

        @step
        def ship(self) -> None: ...

    return Order


def run_of(workflow: Any) -> Any:
    """The run that this instance belongs to, as this test keeps it."""
    return RUNS[workflow.run_id]


RUNS: dict[Any, Any] = {}


class Counting(MemoryRun):
    """A run that can say how often a step was recorded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        RUNS[self.id] = self

    def row_count(self, name: str) -> int:
        return sum(
            row.name == name and row.kind is Kind.STEP and row.outcome is not None for row in self.journal
        )


KEPT = ({"packed": True}, ["packed"])
UNDONE: tuple[dict[str, Any], list[Any]] = ({}, [])


def test_skip_leaves_the_step_and_keeps_what_it_wrote() -> None:
    """A skipped step is over; the next one runs, and context and writes of the skipped one are committed."""
    run = Counting(order(lambda self: self.skip())).drive()

    assert run.story == ["pack skipped", "ship success"]
    assert run.is_over_as(RunState.COMPLETED)
    assert (run.memory, run.ledger) == KEPT


def test_cancel_ends_the_run_and_keeps_what_the_step_wrote() -> None:
    """A canceled run is over with the reason given, frees its identity, and nothing further runs."""
    run = Counting(order(lambda self: self.cancel("no stock"))).drive()

    assert run.story == ["pack canceled"]
    assert run.is_over_as(RunState.CANCELED, "no stock")
    assert (run.memory, run.ledger) == KEPT
    assert run.identity_is_free


def test_finish_ends_the_run_with_a_result_and_keeps_what_the_step_wrote() -> None:
    """Whatever steps are left, the run is completed with the value given; the step counts as done."""
    run = Counting(order(lambda self: self.finish({"parcels": 0}))).drive()

    assert run.story == ["pack success"]
    assert run.is_over_as(RunState.COMPLETED)
    assert run.result == '{"parcels":0}'
    assert (run.memory, run.ledger) == KEPT
    assert run.writes == 1


def test_pause_stops_for_a_person_and_undoes_what_the_step_wrote() -> None:
    """The step is not done: what it wrote is rolled back, and it runs again after ``resume()``."""
    run = Counting(order(lambda self: self.pause("look at this"))).drive()

    assert run.story == ["pack paused"]
    assert run.is_over_as(RunState.PAUSED, "look at this")
    assert (run.memory, run.ledger) == UNDONE
    assert not run.identity_is_free

    run.resume()
    run.drive()
    assert run.story == ["pack paused", "pack success", "ship success"]


def test_pause_done_completes_the_step_first() -> None:
    """With ``done=True`` the step is over, its writes are kept, and resuming goes on with the next one."""
    run = Counting(order(lambda self: self.pause("for review", done=True))).drive()

    assert run.story == ["pack success"]
    assert run.is_over_as(RunState.PAUSED, "for review")
    assert (run.memory, run.ledger) == KEPT
    assert run.current_step == "ship"

    run.resume()
    run.drive()
    assert run.story == ["pack success", "ship success"]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_pause_done_is_one_write(place: int, moment: str) -> None:
    """A worker that dies on the way never leaves a step that is done and a pause that is lost."""
    run = Counting(order(lambda self: self.pause(done=True)))
    crash_at(run, place, moment)
    run.drive()

    assert run.is_over_as(RunState.PAUSED)
    assert run.row_count("pack") == 1
    assert run.ledger == ["packed"]


def test_pause_done_and_a_request_in_the_same_moment() -> None:
    """What came in the meantime refuses the write only: it is said again, with what the step wrote, once."""
    run = Counting(order(lambda self: self.pause("for review", done=True)))
    run.at_boundary = once("before", lambda: run.skip())
    run.drive()

    assert run.is_over_as(RunState.PAUSED, "for review")
    assert run.story == ["pack success"]
    assert run.ledger == ["packed"]


def test_pause_done_gives_way_to_a_cancel() -> None:
    """Cancel beats pause: the step is done, with what it wrote, and the run is canceled."""
    run = Counting(order(lambda self: self.pause("for review", done=True)))
    run.at_boundary = once("before", lambda: run.cancel("too late"))
    run.drive()

    assert run.is_over_as(RunState.CANCELED, "too late")
    assert run.story == ["pack success"]
    assert run.current_step == "ship"
    assert (run.memory, run.ledger) == KEPT


def once(moment: str, act: Callable[[], object]) -> Callable[[str], None]:
    """For ``at_boundary``: act at the first one of this kind."""
    left = [act]

    def at_boundary(now: str) -> None:
        if now == moment and left:
            left.pop()()

    return at_boundary


def test_retry_at_once_runs_on_in_the_same_activation() -> None:
    """Without a wait the step runs again right away; what the first attempt wrote is undone."""
    run = Counting(order(lambda self: self.retry())).drive()

    assert run.story == ["pack retried", "pack success", "ship success"]
    assert [row.attempt for row in run.journal] == [1, 2, 1]
    assert (run.memory, run.ledger) == UNDONE
    assert run.activations == 1


def test_retry_with_a_wait_parks_the_run() -> None:
    """With a wait the run is parked for it: one row says what was, one announces what comes."""
    run = Counting(order(lambda self: self.retry(HOUR)))
    run.activate()

    assert run.is_over_as(RunState.WAITING, Reason.RETRY)
    assert run.wake_at == START + HOUR
    assert [(row.outcome, row.state) for row in run.journal] == [
        (Outcome.RETRIED, ExecutionState.FAILED),
        (None, ExecutionState.SCHEDULED),
    ]
    assert run.writes == 1
    run.drive()
    assert run.story == ["pack retried", "pack success", "ship success"]


@pytest.mark.parametrize(
    ("wait", "what"), [(5, "must be a timedelta"), (-HOUR, "must not be negative"), ("1h", "got '1h'")]
)
@pytest.mark.parametrize("verb", ["retry", "suspend"])
def test_a_wait_that_is_none_is_an_error_of_the_step(verb: str, wait: Any, what: str) -> None:
    """Said where it was written: the run has failed, and is not stranded by a sum that cannot be done."""

    class Hasty(Workflow[None]):
        @resumable_step
        def pack(self) -> None:
            getattr(self, verb)(wait)

    run = MemoryRun(Hasty).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert str(run.error_message).startswith(f"{verb}(): wait must ")
    assert what in str(run.error_message)


class Polling(Workflow[None]):
    """Asks again and again, as often as it was told to."""

    @step
    def poll(self) -> None:
        polls = self.args["polls"]
        polls.count += 1
        if polls.count <= polls.wanted:
            self.retry(polls.wait)


class Polls:
    """How often to ask."""

    def __deepcopy__(self, memo: object) -> Polls:
        return self

    def __init__(self, wanted: int, wait: timedelta | None = None) -> None:
        self.count, self.wanted, self.wait = 0, wanted, wait


@pytest.mark.parametrize("wait", [None, HOUR])
def test_a_hundredth_retry_in_a_row_fails_the_run(wait: timedelta | None) -> None:
    """A step that always asks to be retried ends: ninety-nine times it is, the hundredth time it fails."""
    patient = MemoryRun(Polling, args={"polls": Polls(99, wait)}).drive()
    assert patient.is_over_as(RunState.COMPLETED)
    assert len(patient.journal) == 100

    stuck = MemoryRun(Polling, args={"polls": Polls(100, wait)}).drive()
    assert stuck.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert "asked to be retried 100 times in a row" in str(stuck.error_message)


def test_a_person_who_resumes_gives_a_hundred_more() -> None:
    """``resume()`` begins the count of a step's own retries anew."""
    run = MemoryRun(Polling, args={"polls": Polls(120)}).drive()
    assert run.state is RunState.FAILED

    run.resume()
    assert run.drive().is_over_as(RunState.COMPLETED)


VERBS: dict[str, Callable[[Any], Any]] = {
    "skip": lambda self: self.skip(),
    "cancel": lambda self: self.cancel("why"),
    "finish": lambda self: self.finish("result"),
    "pause": lambda self: self.pause("why"),
    "pause done": lambda self: self.pause("why", done=True),
    "retry": lambda self: self.retry(),
}
ENDS = {
    "skip": ("pack skipped", RunState.COMPLETED),
    "cancel": ("pack canceled", RunState.CANCELED),
    "finish": ("pack success", RunState.COMPLETED),
    "pause": ("pack paused", RunState.PAUSED),
    "pause done": ("pack success", RunState.PAUSED),
    "retry": ("pack retried", RunState.COMPLETED),
}


@pytest.mark.parametrize("verb", VERBS)
def test_except_exception_does_not_swallow_a_verb(verb: str) -> None:
    """Careless handlers of errors let control flow pass."""

    def careless(self: Any) -> None:
        try:
            VERBS[verb](self)
        except Exception:
            pytest.fail("a verb was swallowed")

    run = Counting(order(careless)).drive()

    assert (run.story[0], run.state) == ENDS[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_a_swallowed_verb_stands_all_the_same(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    """A decision stands, also when a bare ``except`` catches it; a warning says which step does that."""

    def swallowing(self: Any) -> None:
        try:
            VERBS[verb](self)
        except BaseException:
            pass

    run = Counting(order(swallowing)).drive()

    assert (run.story[0], run.state) == ENDS[verb]
    assert any("swallowed" in record.message for record in caplog.records)


@pytest.mark.parametrize("verb", VERBS)
def test_an_error_on_the_way_out_does_not_change_a_decision(verb: str) -> None:
    """A cleanup that fails while a verb passes through is not what the step ends with."""

    def failing_cleanup(self: Any) -> None:
        try:
            VERBS[verb](self)
        finally:
            raise ValueError("cleanup")

    run = Counting(order(failing_cleanup)).drive()

    assert (run.story[0], run.state) == ENDS[verb]


def test_the_first_verb_counts() -> None:
    """After a decision every further verb raises the same one again."""

    def two_minds(self: Any) -> None:
        try:
            self.cancel("first")
        finally:
            self.skip()

    run = Counting(order(two_minds)).drive()

    assert run.is_over_as(RunState.CANCELED, "first")


def test_a_verb_of_one_attempt_is_over_with_it() -> None:
    """A step that was retried and then returns is done."""
    run = Counting(order(lambda self: self.retry())).drive()
    assert run.is_over_as(RunState.COMPLETED)


def test_a_verb_in_a_task_group_is_unwrapped() -> None:
    """A task group wraps what passes through it; the verb inside counts, however deep."""

    class Order(Workflow[None]):
        @step
        async def pack(self) -> None:
            async def inner() -> None:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.look())
                    await asyncio.sleep(10)

            async with asyncio.TaskGroup() as group:
                group.create_task(inner())

        async def look(self) -> None:
            self.cancel("from deep inside")

    run = MemoryRun(Order).drive()

    assert run.is_over_as(RunState.CANCELED, "from deep inside")


def test_a_verb_in_an_exception_group_counts_before_its_errors() -> None:
    """In a group of errors the decision is what counts."""

    def grouped(self: Any) -> None:
        try:
            self.skip()
        except BaseException as verb:
            raise BaseExceptionGroup("both", [ValueError("other"), verb]) from None

    run = Counting(order(grouped)).drive()

    assert run.story[0] == "pack skipped"


def test_suspend_is_for_resumable_steps() -> None:
    """In a plain step there is no cursor to stop at; the message says so."""
    run = Counting(order(lambda self: self.suspend())).drive()

    assert run.state is RunState.FAILED
    assert "suspend() works in resumable steps only; 'pack' is none" in str(run.error_message)


class Plain(Workflow[None]):
    """Made by hand in these tests."""

    @step
    def pack(self) -> None: ...


CALLS: dict[str, Callable[[Any], Any]] = {**VERBS, "suspend": lambda self: self.suspend()}


@pytest.mark.parametrize("verb", CALLS)
def test_verbs_need_an_activation(verb: str) -> None:
    """On an instance made by hand a verb raises an error that says so, and no control flow."""
    with pytest.raises(RunError, match="exists only while a run is driven; this Plain was made by hand"):
        CALLS[verb](Plain())


@pytest.mark.parametrize("verb", CALLS)
def test_verbs_do_not_reach_out_of_another_thread(verb: str) -> None:
    """In a thread of its own a verb would stop nobody: it raises where it is called, and the step goes on."""
    raised: list[BaseException] = []

    def aside(self: Any) -> None:
        def say() -> None:
            try:
                CALLS[verb](self)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=say)
        thread.start()
        thread.join()

    run = Counting(order(aside)).drive()

    assert run.is_over_as(RunState.COMPLETED)
    assert isinstance(raised[0], RunError)
    assert "where no step of this run is active" in str(raised[0])


def test_verbs_do_not_work_on_a_kept_instance() -> None:
    """An instance that was carried out of its step has no activation any more."""
    kept: list[Any] = []
    Counting(order(kept.append)).drive()

    with pytest.raises(RunError, match="no step of this run is active"):
        kept[0].cancel()


def test_what_finish_cannot_store_is_an_error_of_the_step() -> None:
    """A result that cannot be stored fails the step at once; nothing that it wrote is kept."""
    run = Counting(order(lambda self: self.finish(object()))).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert "result of finish() in step 'pack'" in str(run.error_message)
    assert (run.memory, run.ledger) == UNDONE


@pytest.mark.parametrize("verb", ["skip", "cancel", "finish", "pause done"])
def test_a_write_that_the_database_refuses_is_an_error_of_the_step(verb: str) -> None:
    """A verb that keeps what the step wrote cannot keep what the database refuses: the step has failed."""

    def bad(self: Any) -> None:
        self.session.append(ValueError("NOT NULL constraint failed"))
        VERBS[verb](self)

    run = Counting(order(bad)).drive()

    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_message == "NOT NULL constraint failed"
    assert (run.memory, run.ledger) == UNDONE


@pytest.mark.parametrize("verb", ["pause", "retry"])
def test_a_verb_that_undoes_the_writes_does_not_ask_the_database(verb: str) -> None:
    """What is rolled back anyway can be as wrong as it likes."""

    def bad(self: Any) -> None:
        self.session.append(ValueError("NOT NULL constraint failed"))
        self.context["list"] = []
        self.context["list"].append(object())
        VERBS[verb](self)

    run = Counting(order(bad)).drive()

    assert (run.story[0], run.state) == ENDS[verb]


@pytest.mark.parametrize("verb", ["skip", "cancel", "finish", "pause done", "retry", "pause"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_around_the_write_of_a_verb_changes_no_end(verb: str, moment: str) -> None:
    """Said again by the next attempt or durable already: the run ends where the verb leads."""
    run = Counting(order(VERBS[verb]))
    crash_at(run, 0, moment)
    with pytest.raises(Crash):
        run.activate()
    if run.state is RunState.RUNNING:
        run.lose_worker()
    run.drive()

    assert run.state == ENDS[verb][1]
    assert run.story.count(ENDS[verb][0]) == 1
