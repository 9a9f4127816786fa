"""Resumable steps: where they stop, where they go on, and what their executions leave in the journal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, Workflow, resumable_step, step
from stepwell.execution.cursor import CURSOR_LIMIT
from stepwell.states import ExecutionState, Kind, RunState
from tests.unit.execution.memory import START, Crash, MemoryRun, Table, crash_at

HOUR = timedelta(hours=1)
AT_ONCE = timedelta()


def counting(
    most: int = 5, after: Callable[[Any, int], None] = lambda self, item: None, **options: Any
) -> Any:
    """A workflow that goes through the numbers below ``most`` and writes each one down."""

    class Counting(Workflow[None]):
        @resumable_step(**options)
        def count(self) -> None:
            for item in self.cursor.iterate(range(most)):
                self.session.append(item)
                after(self, item)

        @step
        def tell(self) -> None: ...

    return Counting


def chain(run: MemoryRun, name: str = "count") -> list[tuple[Any, Any, Any, Any]]:
    """The executions of a step: position, outcome, where it stood, and which one it went on from."""
    return [
        (row.position, row.outcome or row.state, row.cursor, row.continues_from)
        for row in run.journal
        if row.name == name and row.kind is Kind.STEP
    ]


# -- moving -------------------------------------------------------------------------------------------------------


def test_each_move_is_a_checkpoint() -> None:
    """The cursor and what was written for the item are durable before the next item begins."""
    seen: list[Any] = []

    def look(self: Any, item: int) -> None:
        seen.append((item, list(run.ledger), run.row("count").cursor if run.rows else None))

    run = MemoryRun(counting(3, look))
    run.drive()

    assert seen == [(0, [], None), (1, [0], "1"), (2, [0, 1], "2")]
    assert run.ledger == [0, 1, 2]
    assert chain(run) == [(1, "success", "3", None)]


def test_the_row_in_progress_is_one_row() -> None:
    """Checkpoints rewrite the row that the end will have; the journal does not grow with the items."""
    run = MemoryRun(counting(50))
    run.drive()

    assert [row.position for row in run.journal] == [1, 2]


def test_cheap_items_share_a_checkpoint() -> None:
    """``checkpoint_every=10``: a write for ten items, one for the rest, and one for the end."""
    run = MemoryRun(counting(25, checkpoint_every=10))
    run.activate()

    assert run.ledger == list(range(25))
    assert run.writes == 3 + 1 + 2, "items, the step's end, the next step and the run's end"


def test_the_value_is_what_was_stored() -> None:
    """What a body reads back in the same execution is what it would read after a restart."""
    seen: list[Any] = []

    class Stored(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            assert self.cursor.value is None
            assert not self.cursor.resumed
            position = {"page": [1]}
            self.cursor.set(position)
            position["page"].append(2)
            seen.append(self.cursor.value)
            self.cursor.set(("a", START))
            seen.append(self.cursor.value)

    MemoryRun(Stored).drive()

    assert seen == [{"page": [1]}, ("a", START)]


def test_advance_counts_from_nothing() -> None:
    """A whole-number cursor moves by one, or by more."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> int:
            self.cursor.advance()
            self.cursor.advance(by=4)
            return self.cursor.value

    assert MemoryRun(Steps).drive().row("walk").cursor == "5"


@pytest.mark.parametrize("value", ["a", True, 1.5])
def test_advance_needs_a_whole_number(value: object) -> None:
    """What cannot be counted up says so, and names the way out."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            self.cursor.set(value)
            self.cursor.advance()

    run = MemoryRun(Steps).drive()

    assert run.state is RunState.FAILED
    assert run.error_message == f"advance() needs a whole-number cursor; it stands at {value!r}. Use set()."


def test_a_checkpoint_without_a_move_commits_what_there_is() -> None:
    """``checkpoint()`` makes the writes so far durable and leaves the cursor where it is."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            if self.cursor.value is None:
                self.session.append("once")
                self.cursor.checkpoint()
                assert run.ledger == ["once"]
            raise ConnectionError

    run = MemoryRun(Steps).drive()

    assert run.ledger == ["once"]
    assert run.row("walk").cursor == "null"


def test_context_is_committed_with_the_cursor() -> None:
    """A change before a checkpoint stays when the body fails after it; a later one is undone."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            self.context["kept"] = 1
            self.cursor.set(1)
            self.context["lost"] = 1
            raise ConnectionError

    assert MemoryRun(Steps).drive().memory == {"kept": 1}


def test_a_cursor_has_a_limit() -> None:
    """A position is small; what was moved to before it is kept, and no policy absorbs the mistake."""

    class Steps(Workflow[None]):
        @resumable_step(on_exception=Retry(wait=AT_ONCE))
        def walk(self) -> None:
            self.cursor.set(1)
            self.cursor.set("x" * CURSOR_LIMIT)

    run = MemoryRun(Steps).drive()

    assert run.state is RunState.FAILED
    assert run.error_message is not None
    assert "cursor of step 'walk' is too large" in run.error_message
    assert chain(run, "walk") == [(1, "failed", "1", None)]


def test_the_cursor_is_for_resumable_steps() -> None:
    """Elsewhere it says so."""

    class Plain(Workflow[None]):
        @step
        def walk(self) -> None:
            _ = self.cursor

    run = MemoryRun(Plain).drive()

    assert run.error_message == "self.cursor works in resumable steps only; 'walk' is none."


# -- what it goes through -----------------------------------------------------------------------------------------


def test_batches_count_as_one() -> None:
    """Each batch is one move; the cursor stands behind its last item."""
    seen: list[Any] = []

    class Batches(Workflow[None]):
        @resumable_step(max_iterations=1)
        def walk(self) -> None:
            for batch in self.cursor.batches(list("abcde"), size=2):
                seen.append((self.cursor.value, batch))

    run = MemoryRun(Batches).drive()

    assert seen == [(None, ["a", "b"]), (2, ["c", "d"]), (4, ["e"])]
    assert [each[1:3] for each in chain(run, "walk")] == [
        ("continued", "2"),
        ("continued", "4"),
        ("success", "5"),
    ]


def test_a_query_is_read_in_pages() -> None:
    """No more than a page at a time, and each page once."""
    table = Table(range(1, 8))

    class Query(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            for row in self.cursor.iterate(table, page=3):
                self.session.append(row)

    run = MemoryRun(Query).drive()

    assert run.ledger == list(range(1, 8))
    assert table.read == [[1, 2, 3], [4, 5, 6], [7]]


@pytest.mark.parametrize("verb", ["iterate", "batches"])
@pytest.mark.parametrize(
    ("source", "told"),
    [(iter([1]), "a list_iterator"), ({1, 2}, "a set"), ({"a": 1}, "a dict"), (7, "an int")],
)
def test_what_has_no_middle_cannot_be_iterated(verb: str, source: Any, told: str) -> None:
    """An iterator or a set cannot be entered where the step stopped: refused at once, with what to do."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            for _ in getattr(self.cursor, verb)(source):
                raise AssertionError("nothing may come of it")

    run = MemoryRun(Steps).drive()

    assert run.error_message is not None
    assert f"cursor.{verb}() goes through a sequence or a select; {told} cannot be" in run.error_message


@pytest.mark.parametrize("value", ["a", {"x": 1}, -1, True])
def test_a_sequence_is_entered_at_a_count(value: object) -> None:
    """A cursor that was set by hand to something else is an error, not another item."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            self.cursor.set(value)
            for _ in self.cursor.iterate([1, 2, 3]):
                raise AssertionError("nothing may come of it")

    run = MemoryRun(Steps).drive()

    assert run.error_message is not None
    assert f"the cursor stands at {value!r}" in run.error_message


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_has_at_least_one_item(size: int) -> None:
    """Zero would never come to an end."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            for _ in self.cursor.batches([1, 2], size=size):
                raise AssertionError("nothing may come of it")

    assert MemoryRun(Steps).drive().error_class == "ValueError"


def test_what_follows_the_loop_finds_all_items_durable() -> None:
    """The rest, below ``checkpoint_every``, is written when the loop has come to its end."""

    class Steps(Workflow[None]):
        @resumable_step(checkpoint_every=100)
        def walk(self) -> int:
            for item in self.cursor.iterate(range(5)):
                self.session.append(item)
            assert run.ledger == list(range(5))
            return self.cursor.value

    run = MemoryRun(Steps)

    assert run.drive().state is RunState.COMPLETED


# -- stopping -----------------------------------------------------------------------------------------------------


def test_a_limit_of_iterations_makes_a_chain() -> None:
    """Each execution names the one before it; the last one is the success, and no empty one follows."""
    run = MemoryRun(counting(6, max_iterations=2))
    run.drive()

    assert chain(run) == [
        (1, "continued", "2", None),
        (2, "continued", "4", 1),
        (3, "success", "6", 2),
    ]
    assert run.ledger == list(range(6))


@pytest.mark.parametrize("every", [1, 3, 100])
def test_the_limit_is_kept_whatever_a_checkpoint_costs(every: int) -> None:
    """``max_iterations`` counts moves, also between two checkpoints, for loops and for ``set`` alike."""

    class Steps(Workflow[None]):
        @resumable_step(max_iterations=2, checkpoint_every=every)
        def loop(self) -> None:
            for item in self.cursor.iterate(range(4)):
                self.session.append(item)

        @resumable_step(max_iterations=2, checkpoint_every=every)
        def by_hand(self) -> None:
            for item in range(self.cursor.value or 0, 4):
                self.session.append(item)
                self.cursor.set(item + 1)

    run = MemoryRun(Steps).drive()

    assert [row[2] for row in chain(run, "loop")] == ["2", "4"]
    assert [row[2] for row in chain(run, "by_hand")] == ["2", "4", "4"], "a body cannot tell that it was done"
    assert run.ledger == [0, 1, 2, 3] * 2


def test_a_limit_of_time_makes_a_chain() -> None:
    """``max_runtime`` is the time of one execution; the item under way is finished."""
    run = MemoryRun(counting(5, lambda self, item: run.clock.travel(HOUR) and None, max_runtime=2 * HOUR))
    run.drive()

    assert [row[1:3] for row in chain(run)] == [("continued", "2"), ("continued", "4"), ("success", "5")]


def test_a_pause_is_honoured_at_a_checkpoint() -> None:
    """The item under way is kept; after ``resume()`` the step goes on behind it."""
    run = MemoryRun(counting(4, lambda self, item: run.pause("lunch") if item == 1 else None))
    run.drive()

    assert run.is_over_as(RunState.PAUSED, "lunch")
    assert run.ledger == [0, 1]
    assert chain(run) == [(1, "continued", "2", None), (2, "scheduled", "2", 1)]

    run.resume()
    run.drive()
    assert run.ledger == [0, 1, 2, 3]
    assert chain(run) == [(1, "continued", "2", None), (2, "success", "4", 1)]


def test_a_pause_is_honoured_although_checkpoints_are_rare() -> None:
    """Between two checkpoints too: what was done so far is committed for it."""
    run = MemoryRun(counting(9, lambda self, item: run.pause() if item == 1 else None, checkpoint_every=100))
    run.drive()

    assert (run.state, run.ledger) == (RunState.PAUSED, [0, 1])


def test_a_cancel_is_honoured_at_a_checkpoint() -> None:
    """What was done stays done, the rest is never begun, and no row is left open."""
    run = MemoryRun(counting(4, lambda self, item: run.cancel("no more") if item == 1 else None))
    run.drive()

    assert run.is_over_as(RunState.CANCELED, "no more")
    assert run.ledger == [0, 1]
    assert [row[1] for row in chain(run)] == ["continued", "canceled"]


def test_a_skip_from_outside_leaves_the_rest() -> None:
    """The step is over as skipped at the next checkpoint, and the run goes on with the next step."""
    run = MemoryRun(counting(4, lambda self, item: run.skip() if item == 1 else None))
    run.drive()

    assert run.state is RunState.COMPLETED
    assert run.ledger == [0, 1]
    assert run.story == ["count continued", "count skipped", "tell success"]


def test_a_worker_that_drains_stops_at_a_checkpoint() -> None:
    """The run is ready for others at once, with what was done; no attempt is counted."""

    def drain(self: Any, item: int) -> None:
        run.is_draining = item == 1

    run = MemoryRun(counting(4, drain))
    run.activate()

    assert (run.state, run.ledger) == (RunState.READY, [0, 1])
    assert run.row("count").state is ExecutionState.SCHEDULED

    run.is_draining = False
    run.drive()
    assert run.ledger == [0, 1, 2, 3]
    assert [row.attempt for row in run.journal if row.name == "count"] == [1, 1]


def test_a_stop_on_the_last_item_is_no_stop() -> None:
    """There is nothing left to go on with: the step is done, and the pause comes after it."""
    run = MemoryRun(counting(2, lambda self, item: run.pause() if item == 1 else None))
    run.drive()

    assert run.state is RunState.PAUSED
    assert chain(run) == [(1, "success", "2", None)]


def test_a_withdrawn_pause_stops_nothing() -> None:
    """Asked for and taken back between two items: the step goes through in one execution."""

    def waver(self: Any, item: int) -> None:
        if item == 1:
            run.pause()
            run.resume()

    run = MemoryRun(counting(4, waver))
    run.drive()

    assert [row[1] for row in chain(run)] == ["success"]


def test_skip_to_leaves_the_step_for_a_while() -> None:
    """The writes and the new position are committed; the next execution begins there, when the wait is over."""

    class Rates(Workflow[None]):
        @resumable_step
        def pull(self) -> None:
            self.session.append(f"from {self.cursor.value}")
            if self.cursor.value != "page 7":
                self.cursor.skip_to("page 7", wait=HOUR)

    run = MemoryRun(Rates)
    run.activate()

    assert run.ledger == ["from None"]
    assert (run.state, run.waits) == (RunState.WAITING, HOUR)
    assert chain(run, "pull") == [(1, "continued", '"page 7"', None), (2, "scheduled", '"page 7"', 1)]

    run.drive()
    assert run.ledger == ["from None", "from page 7"]


def test_skip_to_with_a_wait_that_is_none_is_an_error_of_the_step() -> None:
    """Before anything is written: the run has failed where it stood."""

    class Rates(Workflow[None]):
        @resumable_step
        def pull(self) -> None:
            self.cursor.skip_to("page 7", wait=5)  # type: ignore[arg-type]  # the mistake

    run = MemoryRun(Rates).drive()

    assert run.state is RunState.FAILED
    assert "skip_to(): wait must be a timedelta" in str(run.error_message)
    assert run.row("pull").cursor is None


def test_suspend_keeps_what_was_written_with_the_cursor() -> None:
    """Between two checkpoints too: the items that were done are not done again."""

    class Steps(Workflow[None]):
        @resumable_step(checkpoint_every=100)
        def walk(self) -> None:
            for item in self.cursor.iterate(range(4)):
                if item == 2 and not self.cursor.resumed:
                    self.suspend(HOUR)
                self.session.append(item)

    run = MemoryRun(Steps)
    run.activate()

    assert (run.state, run.waits, run.ledger) == (RunState.WAITING, HOUR, [0, 1])
    assert run.drive().ledger == [0, 1, 2, 3]
    assert [row[1:3] for row in chain(run, "walk")] == [("continued", "2"), ("success", "4")]


def test_suspend_is_for_resumable_steps() -> None:
    """An ordinary step has no place to go on from."""

    class Plain(Workflow[None]):
        @step
        def walk(self) -> None:
            self.suspend()

    run = MemoryRun(Plain).drive()

    assert run.error_message == "suspend() works in resumable steps only; 'walk' is none."


@pytest.mark.parametrize("verb", ["checkpoint", "skip_to", "suspend"])
def test_a_stop_that_is_swallowed_stands(verb: str) -> None:
    """A bare except does not keep the step going: what it does afterwards is undone."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            if self.cursor.resumed:
                return
            try:
                self.session.append("before")
                self.cursor.set(1)
                if verb == "skip_to":
                    self.cursor.skip_to(2)
                if verb == "suspend":
                    self.suspend()
                run.pause()
                self.cursor.set(2)
            except BaseException:
                pass
            if verb != "suspend":  # which keeps what the step wrote, as long as it does not move on
                self.session.append("after")
            self.cursor.set(3)

    run = MemoryRun(Steps)
    run.drive()

    assert run.ledger == ["before"]
    assert run.row("walk").cursor == ("1" if verb == "suspend" else "2")


@pytest.mark.parametrize("verb", ["skip", "finish", "cancel"])
def test_verbs_that_keep_what_was_written(verb: str) -> None:
    """``skip``, ``finish`` and ``cancel`` end the step with all that it wrote."""

    class Steps(Workflow[None]):
        @resumable_step(checkpoint_every=100)
        def walk(self) -> None:
            for item in self.cursor.iterate(range(4)):
                self.session.append(item)
                if item == 1:
                    getattr(self, verb)()

    assert MemoryRun(Steps).drive().ledger == [0, 1]


def test_a_pause_of_its_own_goes_back_to_the_last_checkpoint() -> None:
    """``self.pause()`` undoes the item; after ``resume()`` it is done again, and the chain names its part."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            for item in self.cursor.iterate(range(3)):
                self.session.append(item)
                if item == 1 and not self.cursor.resumed:
                    self.pause("look")

    run = MemoryRun(Steps).drive()
    assert (run.state, run.ledger) == (RunState.PAUSED, [0])

    run.resume()
    run.drive()
    assert run.ledger == [0, 1, 2]
    assert [row[1:] for row in chain(run, "walk")] == [("paused", "1", None), ("success", "3", 1)]


# -- errors -------------------------------------------------------------------------------------------------------


def failing_once(**options: Any) -> Any:
    """Item 2 fails the first time."""
    failures = iter([ConnectionError("once")])

    def fail(self: Any, item: int) -> None:
        if item == 2:
            for failure in failures:
                raise failure

    return counting(4, fail, **options)


def test_a_retry_goes_on_from_the_last_checkpoint() -> None:
    """The item that failed is undone and done again; those before it are not."""
    run = MemoryRun(failing_once(on_exception=Retry(wait=HOUR)))
    run.drive()

    assert run.ledger == [0, 1, 2, 3]
    assert chain(run) == [(1, "retried", "2", None), (2, "success", "4", 1)]
    assert [row.attempt for row in run.journal if row.name == "count"] == [1, 2]


def test_an_immediate_retry_goes_on_from_the_last_checkpoint() -> None:
    """Without a row that announces it."""
    run = MemoryRun(failing_once(on_exception=Retry(wait=AT_ONCE)))
    run.drive()

    assert run.ledger == [0, 1, 2, 3]
    assert chain(run) == [(1, "retried", "2", None), (2, "success", "4", 1)]


def test_a_failure_keeps_the_cursor() -> None:
    """``resume()`` goes on from the last checkpoint."""
    run = MemoryRun(failing_once())
    run.drive()

    assert run.state is RunState.FAILED
    assert chain(run) == [(1, "failed", "2", None)]
    run.resume()
    run.drive()
    assert run.ledger == [0, 1, 2, 3]
    assert chain(run)[1:] == [(3, "success", "4", 1)], "the command has a position of its own"


def test_a_rewind_forgets_the_cursor() -> None:
    """``retry(rewind=True)`` begins at the beginning; what checkpoints have committed stays committed."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            for item in self.cursor.iterate(range(3)):
                self.session.append(item)
                if item == 1 and not self.context.get("again"):
                    self.context["again"] = True
                    self.cursor.checkpoint()
                    self.retry(rewind=True)

    run = MemoryRun(Steps).drive()

    assert run.ledger == [0, 1, 0, 1, 2]
    assert chain(run, "walk") == [(1, "retried", None, None), (2, "success", "3", None)]


def test_attempts_are_counted_over_checkpoints() -> None:
    """Progress does not renew the attempts of a policy: three bodies that fail are three."""

    def fail(self: Any, item: int) -> None:
        raise ConnectionError

    run = MemoryRun(counting(9, fail, on_exception=Retry(attempts=3, wait=AT_ONCE)))
    run.drive()

    assert run.story == ["count retried", "count retried", "count failed"]


def test_a_retry_after_a_command_gets_a_row_of_its_own() -> None:
    """The rows of people and those of attempts do not take each other's places."""
    bodies: list[Any] = []

    class Steps(Workflow[None]):
        @resumable_step(on_exception=Retry(attempts=3, wait=HOUR))
        def walk(self) -> None:
            bodies.append(self.cursor.value)
            self.cursor.set(1)
            if len(bodies) < 3:
                raise ConnectionError

    run = MemoryRun(Steps)
    run.activate()
    run.pause()
    run.resume()
    run.drive()

    assert [(row.position, row.name, row.outcome) for row in run.journal] == [
        (1, "walk", "retried"),
        (2, "walk", "retried"),
        (3, "pause", "success"),
        (4, "resume", "success"),
        (5, "walk", "success"),
    ]


# -- the database and the worker ----------------------------------------------------------------------------------


def test_a_conflict_goes_back_to_the_last_checkpoint() -> None:
    """What the database undoes for its own reasons is done again from there; no policy hears of it."""
    bodies: list[Any] = []

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            bodies.append(self.cursor.value)
            for item in self.cursor.iterate(range(4)):
                self.session.append(item)
                if item == 2 and len(bodies) == 1:
                    run.conflicts = 1

    run = MemoryRun(Steps)
    run.drive()

    assert run.ledger == [0, 1, 2, 3]
    assert bodies == [None, 2]
    assert chain(run, "walk") == [(1, "success", "4", None)]


def test_conflicts_are_counted_between_two_checkpoints() -> None:
    """A step that comes ahead may meet any number of them; one that does not fails after ten."""

    def conflict(self: Any, item: int) -> None:
        if run.conflicts == 0 and item not in met:
            met.add(item)
            run.conflicts = 4

    met: set[int] = set()
    run = MemoryRun(counting(8, conflict))
    run.drive()

    assert run.state is RunState.COMPLETED
    assert run.ledger == list(range(8))


def test_a_conflict_that_is_swallowed_stands() -> None:
    """A body that goes on after it must not commit the second half of what was undone."""

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            start = self.cursor.value or 0
            for item in range(start, 3):
                if item == 1 and not run.conflicts and len(run.ledger) == 1 and start == 0:
                    run.conflicts = 1
                self.session.append(item)
                try:
                    self.cursor.set(item + 1)
                except BaseException:
                    pass

    run = MemoryRun(Steps)
    run.drive()

    assert run.ledger == [0, 1, 2]


def test_a_lost_lease_stops_the_body_at_once() -> None:
    """At the first checkpoint after it; nothing of the item is written, and nothing after it begins."""
    begun: list[int] = []

    def lose(self: Any, item: int) -> None:
        begun.append(item)
        if item == 1:
            run.token = None

    run = MemoryRun(counting(4, lose))
    run.activate()

    assert begun == [0, 1]
    assert run.ledger == [0]


def test_a_lost_lease_that_is_swallowed_writes_nothing() -> None:
    """Whatever the body makes of it."""
    token: Any = None

    class Steps(Workflow[None]):
        @resumable_step
        def walk(self) -> None:
            nonlocal token
            for item in range(3):
                self.session.append(item)
                try:
                    self.cursor.set(item + 1)
                except BaseException:
                    run.token = token
                if item == 0:
                    token, run.token = run.token, None

    run = MemoryRun(Steps)
    run.activate()

    assert run.ledger == [0]


def test_the_execution_of_a_lost_worker_is_gone_on_from() -> None:
    """The row that was in progress becomes lost and keeps its cursor; the next one names it."""
    run = MemoryRun(counting(4))
    crash_at(run, 2, "after")
    with pytest.raises(Crash):
        run.activate()
    run.lose_worker()
    run.drive()

    assert run.ledger == [0, 1, 2, 3]
    assert chain(run) == [(1, "lost", "3", None), (2, "success", "4", 1)]


def test_a_step_that_stops_often_waits_only_once() -> None:
    """What it waited for is behind it: an appointment is not kept again by the next execution."""
    asked: list[Any] = []

    class Steps(Workflow[None]):
        def appointment(self) -> Any:
            asked.append(run.clock.now())
            return run.clock.now() + HOUR if len(asked) == 1 else run.clock.now()

        @resumable_step(wait_until="appointment", max_iterations=1)
        def walk(self) -> None:
            for _ in self.cursor.iterate(range(3)):
                pass
            if len(asked) > 2:
                raise AssertionError(asked)

    run = MemoryRun(Steps)

    assert run.drive().state is RunState.COMPLETED
    assert len(asked) == 2


def test_the_wait_of_skip_to_holds_for_a_step_with_an_appointment() -> None:
    """``wait=`` is not overruled by ``wait_until=``, which was over before the step began."""

    class Steps(Workflow[None]):
        @resumable_step(wait_until=lambda self: START)
        def walk(self) -> None:
            if not self.cursor.resumed:
                self.cursor.skip_to(1, wait=HOUR)

    run = MemoryRun(Steps)
    run.activate()

    assert (run.state, run.waits) == (RunState.WAITING, HOUR)
    assert run.drive().state is RunState.COMPLETED


# -- async ---------------------------------------------------------------------------------------------------------


def test_an_async_body_moves_its_cursor_in_session() -> None:
    """On the thread that the step belongs to; a stop there stops the coroutine too."""

    class Steps(Workflow[None]):
        @resumable_step(max_iterations=1)
        async def walk(self) -> None:
            for item in range(self.cursor.value or 0, 3):

                def write(session: Any, item: int = item) -> None:
                    session.append(item)
                    self.cursor.set(item + 1)

                await self.in_session(write)

    run = MemoryRun(Steps).drive()

    assert run.ledger == [0, 1, 2]
    assert [row[1] for row in chain(run, "walk")] == ["continued"] * 3 + ["success"]


def test_an_async_body_cannot_move_its_cursor_on_the_loop() -> None:
    """A commit there would hold up every other async step."""

    class Steps(Workflow[None]):
        @resumable_step
        async def walk(self) -> None:
            self.cursor.set(1)

    run = MemoryRun(Steps).drive()

    assert run.state is RunState.FAILED
    assert run.error_message is not None
    assert "await self.in_session(lambda session: self.cursor.set(...))" in run.error_message
