"""What comes at once with something else: requests beside changes, pauses beside pauses, errors beside results."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import count
from typing import Any

import pytest

from stepwell import AsyncWorkflow, StepFailed, Unstorable, Workflow, resumable_step, step
from stepwell.states import ExecutionState, Kind, Reason, RunState
from stepwell.testing import Workbench
from tests.unit.execution.memory import Crash, MemoryRun
from tests.unit.execution.procedures import crashed_everywhere, driven, replayed

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


# -- requests -------------------------------------------------------------------------------------------------------


class WaitsInRun(Workflow[None]):
    """Waits for a signal, which nobody sends."""

    def run(self) -> None:
        self.work()
        self.wait_for_signal("go")

    @step
    def work(self) -> None: ...


class WaitsDeclared(Workflow[None]):
    """The same without ``run()``."""

    @step
    def work(self) -> None: ...

    @step(awaits="go")
    def wait(self) -> None: ...


def asked_with_a_change(run: MemoryRun, ask: Callable[[MemoryRun], None]) -> MemoryRun:
    """Somebody asks for something in the moment in which a change of the context is taken up, once."""
    asked: list[str] = []

    def at_boundary(moment: str) -> None:
        if moment == "with" and not asked and run.rows and run.journal[-1].kind is Kind.CONTEXT:
            asked.append(moment)
            ask(run)

    run.at_boundary = at_boundary
    return run


BY_STYLE = pytest.mark.parametrize("workflow", [WaitsInRun, WaitsDeclared])


@BY_STYLE
@pytest.mark.parametrize("is_parked", [True, False])
@pytest.mark.parametrize(
    ("verb", "state"), [("cancel", RunState.CANCELED), ("pause", RunState.PAUSED)], ids=["cancel", "pause"]
)
def test_what_is_asked_with_the_write_of_a_change_is_done_before_the_run_parks(
    workflow: type[Workflow[Any]], is_parked: bool, verb: str, state: RunState
) -> None:
    """The park goes by the counter of that very write, and nothing would wake the run for the request."""
    run = MemoryRun(workflow)
    if is_parked:
        run.activate()
        assert run.state is RunState.AWAITING
    run.change(x=1)
    asked_with_a_change(run, lambda run: getattr(run, verb)("asked")).activate()
    assert run.is_over_as(state, "asked")
    assert (run.memory, run.stop_request) == ({"x": 1}, None)


@BY_STYLE
def test_a_paused_run_waits_on_where_it_was(workflow: type[Workflow[Any]]) -> None:
    """Once it is resumed."""
    run = MemoryRun(workflow)
    run.activate()
    run.change(x=1)
    asked_with_a_change(run, lambda run: run.pause()).activate()
    run.resume()
    run.drive()
    assert run.state is RunState.AWAITING
    run.signal("go")
    assert run.drive().state is RunState.COMPLETED
    assert run.memory == {"x": 1}


@BY_STYLE
def test_a_skip_that_comes_with_the_write_of_a_change_leaves_out_the_wait(
    workflow: type[Workflow[Any]],
) -> None:
    """It is meant for what the run stands at."""
    run = MemoryRun(workflow)
    run.activate()
    run.change(x=1)
    asked_with_a_change(run, lambda run: run.skip()).drive()
    assert run.state is RunState.COMPLETED
    assert [row.state for row in run.journal if row.kind is Kind.SIGNAL] == [ExecutionState.SKIPPED]


class LastStep(Workflow[None]):
    """Somebody does something while its last step is under way."""

    meanwhile: Callable[[], None]
    ends: Callable[[Any], Any]

    def run(self) -> Any:
        self.work()
        return type(self).ends(self)

    @step
    def work(self) -> None:
        type(self).meanwhile()


def last_step(meanwhile: Callable[[MemoryRun], None], ends: Callable[[Any], Any]) -> MemoryRun:
    class Here(LastStep):
        pass

    run = MemoryRun(Here)
    Here.meanwhile = staticmethod(lambda: meanwhile(run))
    Here.ends = staticmethod(ends)
    return run


@pytest.mark.parametrize(("verb", "state"), [("cancel", RunState.CANCELED), ("pause", RunState.PAUSED)])
def test_a_change_and_a_request_during_the_last_step_are_both_seen(verb: str, state: RunState) -> None:
    """The run is stopped before it is over, with the change; and ends with it when it is resumed."""

    def meanwhile(run: MemoryRun) -> None:
        run.change(x=1)
        getattr(run, verb)("asked")

    run = last_step(meanwhile, lambda self: "done").drive()
    assert run.is_over_as(state, "asked")
    if state is RunState.PAUSED:
        run.resume()
        assert run.drive().result == '"done"'
        assert run.memory == {"x": 1}
        assert run.details is None


@pytest.mark.parametrize(("verb", "state"), [("cancel", RunState.CANCELED), ("pause", RunState.PAUSED)])
def test_what_is_asked_with_the_last_change_is_done_before_the_end(verb: str, state: RunState) -> None:
    """There, too, a request may come with the very write that takes it up."""
    run = last_step(lambda run: run.change(x=1), lambda self: "done")
    asked_with_a_change(run, lambda run: getattr(run, verb)("asked")).drive()
    assert run.is_over_as(state, "asked")
    assert run.memory == {"x": 1}


@pytest.mark.parametrize("ends", [lambda self: "done", lambda self: self.finish("done")])
def test_a_run_ends_with_the_change_that_came_during_its_last_call(ends: Callable[[Any], Any]) -> None:
    """Whether it returns or says ``finish()``: nothing is left unread."""
    runs = crashed_everywhere(lambda: last_step(lambda run: run.change(x=1), ends))
    for run in runs:
        assert (run.state, run.result, run.details) == (RunState.COMPLETED, '"done"', None)
        assert run.memory == {"x": 1}


# -- changes around ticks -------------------------------------------------------------------------------------------


class Ticks(Workflow[None]):
    """Repeats a step that goes on from its cursor, and tells what it sees behind that."""

    tick: str
    tell: Callable[[dict[str, Any]], None]

    def run(self) -> Any:
        self.repeat(getattr(self, self.tick), every=HOUR, until=lambda: self.context.get("ticks", 0) >= 2)
        type(self).tell(dict(self.context))
        self.work()
        self.sleep(HOUR)
        return dict(self.context)

    @resumable_step(max_iterations=1)
    def stopping(self) -> Iterator[int]:
        yield from self.items()

    @resumable_step
    def going_on(self) -> Iterator[int]:
        yield from self.items()

    def items(self) -> Iterator[int]:
        for number in range(self.cursor.value or 0, 3):
            self.context["x"] = self.context.get("x", 0) + 1
            yield number + 1
        self.context["ticks"] = self.context.get("ticks", 0) + 1

    @step
    def work(self) -> None: ...


def ticking(name: str, changes: Callable[[MemoryRun], bool], *, dies: bool) -> tuple[MemoryRun, list[Any]]:
    """A run whose context is changed with some of its writes, and what it saw, each time with what was durable."""
    seen: list[Any] = []

    class Here(Ticks):
        tick = name
        tell = staticmethod(lambda context: seen.append((context, run.memory)))

    run = MemoryRun(Here)

    def at_boundary(moment: str) -> None:
        if moment == "with" and changes(run):
            run.change(x=100 * len(run.rows), outside=True)
        if moment == "after" and dies:
            raise Crash

    run.at_boundary = at_boundary
    return run.drive(), seen


BY_CRASHES = pytest.mark.parametrize("dies", [True, False], ids=["replayed", "undisturbed"])
BY_TICK = pytest.mark.parametrize("tick", ["stopping", "going_on"])


def check_what_was_seen(run: MemoryRun, seen: list[Any]) -> None:
    """The same on every pass, and on the first one what was durable."""
    assert run.state is RunState.COMPLETED, run.error_message
    assert len(seen) > 1
    assert len({json.dumps(context, sort_keys=True) for context, _ in seen}) == 1
    context, durable = seen[0]
    assert context == durable
    assert json.loads(run.result) == run.memory
    assert run.memory["ticks"] == 2


@BY_TICK
@BY_CRASHES
@pytest.mark.parametrize("place", range(10))
def test_a_change_around_a_tick_that_goes_on_is_seen_alike_behind_it(
    tick: str, place: int, dies: bool
) -> None:
    """Whether it came before the tick or in the midst of it."""
    places = count()
    run, seen = ticking(tick, lambda run: next(places) == place, dies=dies)
    check_what_was_seen(run, seen)
    assert run.memory["outside"] is True


@BY_TICK
@BY_CRASHES
def test_changes_before_each_tick_are_seen_alike_behind_them(tick: str, dies: bool) -> None:
    """They come by mail, while the run is parked for its next tick."""
    run, seen = ticking(tick, lambda run: run.state is RunState.WAITING, dies=dies)
    check_what_was_seen(run, seen)
    assert sum(row.kind is Kind.CONTEXT for row in run.journal) > 2


@BY_TICK
@BY_CRASHES
def test_changes_with_every_write_are_seen_alike_behind_the_ticks(tick: str, dies: bool) -> None:
    """But for those that take up the last change: else there would be no end to it."""

    def changes(run: MemoryRun) -> bool:
        return run.journal[-1].kind is not Kind.CONTEXT and run.memory.get("ticks", 0) < 2

    run, seen = ticking(tick, changes, dies=dies)
    check_what_was_seen(run, seen)


# -- pauses and what is left out --------------------------------------------------------------------------------------


class Pauses(Workflow[None]):
    """Stops again and again."""

    def run(self, reasons: list[str]) -> str:
        for reason in reasons:
            self.pause(reason)
        return "done"


def test_a_skip_at_a_pause_passes_that_one_only() -> None:
    """The next one, right behind it, is no less a pause."""
    run = driven(Pauses, reasons=["a", "b"])
    assert run.is_over_as(RunState.PAUSED, "a")
    run.skip()
    run.drive()
    assert run.is_over_as(RunState.PAUSED, "b")
    assert run.stop_request is None
    run.skip()
    assert run.drive().result == '"done"'


def test_each_skip_passes_one_pause_of_a_loop() -> None:
    """However many there are, and whether the worker dies on the way or not."""
    for make in (lambda run: run, replayed):
        run = make(MemoryRun(Pauses, args={"reasons": list("abcde")}))
        reached: list[str | None] = []
        while run.drive().state is RunState.PAUSED:
            reached.append(run.reason)
            run.skip()
        assert (reached, run.result) == (list("abcde"), '"done"')


@pytest.mark.parametrize("times", [1, 3])
def test_a_skip_of_a_waiting_call_that_is_asked_again_and_again_leaves_out_one(times: int) -> None:
    """Whoever asks three times means the call that the run stands at, each time."""

    class Waits(Workflow[None]):
        def run(self) -> list[Any]:
            return [self.wait_for_signal("go") for _ in range(3)]

    run = driven(Waits)
    for _ in range(times):
        run.skip()
    run.drive()
    assert (run.state, run.current_step) == (RunState.AWAITING, "go")
    run.signal("go", 2)
    run.signal("go", 3)
    assert run.drive().result == "[null,2,3]"


# -- parameters that have changed -----------------------------------------------------------------------------------


class Grown(Workflow[None]):
    """Has got a parameter since its runs were started."""

    def run(self, order: int, currency: str) -> None: ...


class Shrunk(Workflow[None]):
    """Has lost one."""

    def run(self) -> None: ...


class GrownAsync(AsyncWorkflow[None]):
    """Has got one, in a coroutine."""

    async def run(self, order: int, currency: str) -> None: ...


@pytest.mark.parametrize("workflow", [Grown, Shrunk, GrownAsync])
def test_a_run_that_was_started_with_other_arguments_says_so(workflow: type[Workflow[Any]]) -> None:
    """It has failed, and the message names what it was given and what to do about it."""
    run = driven(workflow, order=7)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == "TypeError"
    assert "started with other arguments (order): give a new parameter a default" in (run.error_message or "")


def test_a_run_that_was_started_with_none_says_so_too() -> None:
    """In words."""
    assert "other arguments (none): give a new" in (driven(Grown).error_message or "")


def test_a_type_error_of_another_kind_is_told_as_it_is() -> None:
    """The arguments fit."""

    class Raises(Workflow[None]):
        def run(self, order: int) -> None:
            raise TypeError("own")

    assert driven(Raises, order=7).error_message == "own"


# -- context variables ----------------------------------------------------------------------------------------------

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Sets(Workflow[None]):
    """Its steps leave something in context variables."""

    seen: list[Any]

    def run(self) -> None:
        for _ in range(2):
            self.work()
            self.seen.append((tenant.get(), decimal.getcontext().prec))
            self.work_async()
            self.seen.append((tenant.get(), decimal.getcontext().prec))
        self.sleep(HOUR)

    @step
    def work(self) -> None:
        tenant.set("somebody")
        with_three_digits()

    @step
    async def work_async(self) -> None:
        tenant.set("somebody")
        with_three_digits()


def with_three_digits() -> None:
    """Another context for whoever counts in here."""
    decimal.setcontext(decimal.Context(prec=3))


def digits_changed_in_place() -> None:
    """As the documentation of ``decimal`` does it."""
    decimal.getcontext().prec = 3


@pytest.fixture
def own_digits() -> Iterator[int]:
    """Whatever a test does to the context of ``decimal``, other tests count on as before."""
    with decimal.localcontext() as context:
        yield context.prec


@pytest.mark.parametrize("is_replayed", [False, True])
def test_what_a_step_leaves_in_a_context_variable_is_not_seen_behind_it(
    is_replayed: bool, own_digits: int
) -> None:
    """A replay does not run the step, and would not find it there."""
    kept: list[Any] = []

    class Here(Sets):
        seen = kept

    run = MemoryRun(Here)
    (replayed(run) if is_replayed else run).drive()
    assert run.state is RunState.COMPLETED, run.error_message
    assert len(kept) > 4
    assert set(kept) == {("nobody", own_digits)}
    assert tenant.get() == "nobody"


@pytest.mark.parametrize("is_known", [False, True])
def test_digits_that_a_step_has_changed_in_place_are_as_before_behind_it(
    is_known: bool, own_digits: int
) -> None:
    """The context of ``decimal`` is one object, whether ``run()`` has looked at it before the step or not."""
    seen: list[int] = []

    class Counts(Workflow[None]):
        def run(self) -> None:
            if is_known:
                seen.append(decimal.getcontext().prec)
            self.work()
            seen.append(decimal.getcontext().prec)
            self.sleep(HOUR)

        @step
        def work(self) -> None:
            digits_changed_in_place()

    driven(Counts)
    assert set(seen) == {own_digits}


class Leaves(Workflow[None]):
    """Sets a context variable everywhere, and knows what it found there at first."""

    seen: list[Any] = []

    def run(self) -> None:
        self.seen.append((tenant.get(), decimal.getcontext().prec))
        tenant.set("run")
        with_three_digits()
        self.work()

    @step
    def work(self) -> None:
        self.seen.append(tenant.get())
        tenant.set("step")


class LeavesDeclared(Workflow[None]):
    """The same without ``run()``."""

    seen: list[Any] = []

    @step
    def first(self) -> None:
        self.seen.append((tenant.get(), decimal.getcontext().prec))
        tenant.set("step")
        with_three_digits()

    @step
    def second(self) -> None: ...


@pytest.mark.parametrize("workflow", [Leaves, LeavesDeclared])
def test_a_run_leaves_nothing_in_context_variables_for_the_next_one(workflow: Any, own_digits: int) -> None:
    """Which the same thread drives right behind it; its own steps see what ``run()`` has set."""
    workflow.seen.clear()
    with Workbench() as bench:
        for _ in range(2):
            bench.run_to_end(workflow.start())
    found = ("nobody", own_digits)
    assert workflow.seen == ([found, "run"] * 2 if workflow is Leaves else [found] * 2)
    assert (tenant.get(), decimal.getcontext().prec) == found


# -- what cannot be read while it is stored ---------------------------------------------------------------------------


@dataclass
class Lazy:
    """One whose attribute is loaded from somewhere that is down."""

    value: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "value":
            raise OSError("down")
        return super().__getattribute__(name)


class BrokenZone(tzinfo):
    """A time zone that does not know its offset."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        raise OSError("down")

    def dst(self, when: datetime | None) -> timedelta | None:
        raise OSError("down")

    def tzname(self, when: datetime | None) -> str | None:
        raise OSError("down")


BROKEN = pytest.mark.parametrize(
    "make", [Lazy, lambda: datetime(2026, 1, 1, tzinfo=BrokenZone())], ids=["attribute", "zone"]
)
NESTED = pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"deep": [value]}])


class Stores(Workflow[None]):
    """Gives something away that cannot be read."""

    value: Callable[[], Any]
    way: Callable[[Any, Any], Any]
    caught: tuple[type[Exception], ...] = ()

    def run(self) -> Any:
        try:
            return type(self).way(self, type(self).value())
        except self.caught as error:
            return f"{type(error).__name__}: {error}"

    @step
    def give(self) -> Any:
        return type(self).value()

    @step
    def take(self, value: Any) -> None: ...

    @step(digest=False)
    def take_whatever(self, value: Any) -> None: ...

    @step(key_by="value")
    def take_by_key(self, value: Any) -> None: ...


def storing(
    way: Callable[[Any, Any], Any], value: Callable[[], Any], *caught: type[Exception]
) -> type[Workflow[None]]:
    class Here(Stores):
        pass

    Here.way, Here.value, Here.caught = staticmethod(way), staticmethod(value), caught
    return Here


OF_A_CALL: dict[str, Callable[[Any, Any], Any]] = {
    "result of a step": lambda self, value: self.give(),
    "result of a function": lambda self, value: self.step("one-off", lambda: value),
    "argument that is not compared": lambda self, value: self.take_whatever(value),
    "default of a signal": lambda self, value: self.wait_for_signal("go", timeout=timedelta(), default=value),
    "default of a poll": lambda self, value: self.wait_until(
        lambda: False, timeout=timedelta(), default=value
    ),
}


COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "argument": lambda self, value: self.take(value),
    "argument by keyword": lambda self, value: self.take(value=value),
    "key": lambda self, value: self.take_by_key(value),
    "argument of a function": lambda self, value: self.step("one-off", lambda given: None, value),
}


def check_error_of_the_call(way: Callable[[Any, Any], Any], value: Callable[[], Any]) -> None:
    run = driven(storing(way, value, StepFailed, Unstorable))
    assert run.state is RunState.COMPLETED, run.error_message
    assert "cannot be stored: reading it raised OSError." in run.result
    run = driven(storing(way, value))
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == "stepwell.errors.Unstorable"
    assert "reading it raised OSError" in (run.error_message or "")


@BROKEN
@NESTED
@pytest.mark.parametrize("way", OF_A_CALL)
def test_what_cannot_be_read_is_an_error_of_the_call_that_stores_it(way: str, make: Any, wrap: Any) -> None:
    """``run()`` can catch it, as it catches what is of no kind that can be stored; and fails by it if it does not."""
    check_error_of_the_call(OF_A_CALL[way], lambda: wrap(make()))


@BROKEN
@NESTED
@pytest.mark.parametrize("way", COMPARED)
def test_what_cannot_be_read_is_an_error_of_the_call_that_compares_it(way: str, make: Any, wrap: Any) -> None:
    """The same holds for arguments, from which the digest and the key of a call are made."""
    check_error_of_the_call(COMPARED[way], lambda: wrap(make()))


OF_RUN: dict[str, Callable[[Any, Any], Any]] = {
    "result": lambda self, value: value,
    "finish()": lambda self, value: self.finish(value),
}


@BROKEN
@NESTED
@pytest.mark.parametrize("way", OF_RUN)
def test_what_cannot_be_read_is_an_error_of_run_where_that_stores_it(way: str, make: Any, wrap: Any) -> None:
    """It has failed, and nothing escapes."""
    run = driven(storing(OF_RUN[way], lambda: wrap(make())))
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == "stepwell.errors.Unstorable"
    assert "reading it raised OSError" in (run.error_message or "")


class StartsOver(Workflow[None]):
    """Begins anew with what cannot be read."""

    value: Callable[[], Any]

    def run(self, value: Any = None) -> Any:
        try:
            self.start_over(value=type(self).value())
        except Unstorable as error:
            if self.args.get("value") is not None:
                raise
            return str(error)


@BROKEN
@NESTED
def test_a_successor_s_arguments_that_cannot_be_read_are_refused(make: Any, wrap: Any) -> None:
    """It is the call's error: the run goes on, and there is no successor."""
    StartsOver.value = staticmethod(lambda: wrap(make()))
    with Workbench(raise_errors=False) as bench:
        run = StartsOver.start()
        assert bench.run_to_end(run) is RunState.COMPLETED, run.reason
        assert "arguments of start_over() cannot be stored: reading it raised OSError." in run.result()
        assert run.successor is None
