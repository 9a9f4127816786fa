"""Runs that call other workflows: each child is started once, and its end is heard of whatever dies in between."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from stepwell import (
    Child,
    ChildFailed,
    DefinitionError,
    Retry,
    Run,
    RunAlreadyExists,
    StepFailed,
    Stepwell,
    Worker,
    Workflow,
    WrongArguments,
    step,
)
from stepwell.states import Kind, Reason, RunState
from stepwell.store.schema import executions
from stepwell.testing import CrashPoint, Workbench

HOUR = timedelta(hours=1)
AT_ONCE = timedelta()


class Shipping(Workflow):
    """Takes an hour and may fail."""

    workflow_name = "calls.Shipping"
    unique_by = "order_id"

    def run(self, order_id: str, is_broken: bool = False) -> str:
        self.sleep(HOUR)
        if is_broken:
            raise ValueError("no such street")
        return f"parcel {order_id}"


class Doubling(Workflow):
    """A declared one, which is over at once."""

    workflow_name = "calls.Doubling"

    @step
    def double(self) -> None:
        self.finish(2 * self.args["number"])


class Order(Workflow):
    """Calls both, the one after the other."""

    workflow_name = "calls.Order"

    def run(self, order_id: str, is_broken: bool = False) -> Any:
        parcel = self.call(Shipping, order_id, is_broken=is_broken)
        return [parcel, self.call(Doubling, number=21)]


class CarefulOrder(Workflow):
    """Makes something of a child that has failed, and goes on."""

    workflow_name = "calls.CarefulOrder"

    def run(self, order_id: str) -> Any:
        try:
            self.call(Shipping, order_id, is_broken=True)
        except ChildFailed as error:
            told = [error.workflow, error.reason, error.error_class, error.message, error.was_canceled]
        self.sleep(HOUR)
        return told


class Shop(Workflow):
    """A declared one whose step waits for a child."""

    workflow_name = "calls.Shop"

    @step(awaits=Child(Shipping, lambda self: {"order_id": self.args["order_id"]}))
    def tell(self, parcel: str) -> None:
        self.context["parcel"] = parcel

    @step(awaits=Child("calls.Doubling", "number"))
    def close(self, number: int) -> None:
        self.finish([self.context["parcel"], number])

    def number(self) -> dict[str, int]:
        return {"number": 21}


class StubbornShop(Workflow):
    """Has its child tried again."""

    workflow_name = "calls.StubbornShop"

    @step(
        awaits=Child(Doubling, {"number": "x"}),
        on_exception=Retry(ChildFailed, attempts=3, wait=HOUR),
    )
    def tell(self, result: Any) -> None: ...


class BrokenDoubling(Workflow):
    workflow_name = "calls.BrokenDoubling"

    @step
    def double(self) -> None:
        raise ValueError(self.args["number"])


class PatientShop(Workflow):
    workflow_name = "calls.PatientShop"

    @step(awaits=Child(BrokenDoubling, {"number": 1}), on_exception=Retry(ChildFailed, attempts=3, wait=HOUR))
    def tell(self, result: Any) -> None: ...


def children_of(bench: Workbench, run: Run) -> list[Run]:
    """The runs that this one has called, in order."""
    found = bench.engine.runs().oldest().infos()
    return [bench.engine.run(row.id) for row in found if row.parent_id == run.id]


def calls_of(run: Run) -> list[Any]:
    return [row for row in run.steps if row.kind == "call"]


def test_a_call_answers_the_childs_result(bench: Workbench) -> None:
    """A run waits for what it calls, declared or not, and goes on with the results."""
    run = Order.start("7")
    bench.drain()
    shipping = children_of(bench, run)[0].info()
    assert (run.state, run.reason) == (RunState.AWAITING, Reason.CHILD)
    assert (shipping.parent_id, shipping.branch) == (run.id, "calls.Shipping")
    assert f"run {shipping.id} of calls.Shipping, which it has called" in run.explain()
    bench.travel(HOUR)
    bench.drain()
    assert run.result(AT_ONCE) == ["parcel 7", 42]
    assert children_of(bench, run)[0].info().open_branch is None


def test_a_declared_step_waits_for_its_child(bench: Workbench) -> None:
    """A step that awaits a child is given its result, and starts it when it is due and not before."""
    run = Shop.start(order_id="7")
    bench.drain()
    assert len(children_of(bench, run)) == 1
    bench.travel(HOUR)
    bench.drain()
    assert run.result(AT_ONCE) == ["parcel 7", 42]


def test_a_call_costs_two_writes(bench: Workbench) -> None:
    """The child is started in the write that parks the run; the end of the call is the other one."""
    run = Order.start("7")
    bench.drain()
    assert len(run.steps) == 1
    child = children_of(bench, run)[0]
    assert child.info().created_at == run.info().changed_at


def test_a_child_that_failed_is_raised_at_each_replay_alike(bench: Workbench) -> None:
    """``ChildFailed`` says what is known of the child, on the first pass and on replay."""
    run = CarefulOrder.start("7")
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    assert run.reason == Reason.TIMER
    bench.travel(HOUR)
    bench.drain()
    told = ["calls.Shipping", "step_failed", "ValueError", "no such street", False]
    assert run.result(AT_ONCE) == told


def test_a_failed_child_that_is_resumed_changes_nothing_for_its_parent(bench: Workbench) -> None:
    """The parent was told of the failure, and goes on from there."""
    run = CarefulOrder.start("7")
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    children_of(bench, run)[0].resume()
    bench.travel(HOUR)
    bench.drain()
    assert run.result(AT_ONCE)[1] == "step_failed"


FIXED: list[str] = []


class Repairable(Workflow):
    """Fails until somebody has fixed something."""

    workflow_name = "calls.Repairable"
    unique_by = "name"

    def run(self, name: str) -> str:
        self.step("note", FIXED.append, "tried")
        self.sleep(HOUR)
        if "fixed" not in FIXED:
            raise ValueError("broken")
        self.sleep(HOUR)
        return "done"


class Caller(Workflow):
    workflow_name = "calls.Caller"

    def run(self) -> Any:
        return self.call(Repairable, "a")


class DeclaredCaller(Workflow):
    workflow_name = "calls.DeclaredCaller"

    @step(awaits=Child(Repairable, {"name": "a"}))
    def close(self, result: str) -> None:
        self.finish(result)


@pytest.mark.parametrize("caller", [Caller, DeclaredCaller])
@pytest.mark.parametrize("hours", [0, 1])
def test_a_child_that_somebody_has_helped_is_not_called_anew(
    bench: Workbench, caller: Any, hours: int
) -> None:
    """Its caller, resumed, waits for it or takes its result: no work is done twice."""
    FIXED.clear()
    run = caller.start()
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    assert run.state is RunState.FAILED
    FIXED.append("fixed")
    (child,) = children_of(bench, run)
    child.resume()
    bench.drain()
    bench.travel(hours * HOUR)
    bench.drain()
    run.resume()
    bench.drain()
    bench.travel((1 - hours) * HOUR)
    bench.drain()
    assert run.result(AT_ONCE) == "done"
    assert children_of(bench, run) == [child]
    assert FIXED.count("tried") == 1


def test_who_was_called_is_not_forgotten_over_a_start_that_failed(bench: Workbench) -> None:
    """The caller is resumed too early, and then again when its child has been helped."""
    FIXED.clear()
    run = Caller.start()
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    run.resume()
    bench.drain()
    assert (run.info().error_class or "").endswith("RunAlreadyExists")
    FIXED.append("fixed")
    (child,) = children_of(bench, run)
    child.resume()
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    assert child.state is RunState.COMPLETED
    run.resume()
    bench.drain()
    assert run.result(AT_ONCE) == "done"
    assert FIXED.count("tried") == 1


def test_a_child_that_is_still_failed_is_called_anew(bench: Workbench) -> None:
    """Where it holds its identity that is refused, and the message says by whom."""
    FIXED.clear()
    run = Caller.start()
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    run.resume()
    bench.drain()
    assert run.state is RunState.FAILED
    assert (run.info().error_class or "").endswith("RunAlreadyExists")
    children_of(bench, run)[0].cancel()
    FIXED.append("fixed")
    run.resume()
    bench.drain()
    for _ in range(2):
        bench.travel(HOUR)
        bench.drain()
    assert run.result(AT_ONCE) == "done"
    assert FIXED.count("tried") == 2


def test_a_child_that_was_canceled_is_an_error_of_the_call(bench: Workbench) -> None:
    """An error that nobody catches fails the run; to resume it means to call again."""
    run = Order.start("7")
    bench.drain()
    children_of(bench, run)[0].cancel("out of stock")
    bench.drain()
    assert run.state is RunState.FAILED
    assert run.info().error_class == "stepwell.errors.ChildFailed"
    run.resume()
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    assert run.result(AT_ONCE) == ["parcel 7", 42]
    assert [row.state for row in calls_of(run)] == ["failed", "completed", "completed"]


def test_policies_of_a_step_decide_about_its_child(bench: Workbench) -> None:
    """A retry of the step starts another child; when no attempt is left, the run fails."""
    run = PatientShop.start()
    for _ in range(3):
        bench.drain()
        bench.travel(HOUR)
    assert run.state is RunState.FAILED
    assert len(children_of(bench, run)) == 3


class Blocked(Workflow):
    """Calls what may be taken, as its class says."""

    workflow_name = "calls.Blocked"
    policies = [Retry(RunAlreadyExists, attempts=2, wait=HOUR / 2)]

    def run(self) -> Any:
        try:
            return self.call(Shipping, "7")
        except StepFailed as error:
            return error.caused_by(RunAlreadyExists)


def test_a_child_whose_identity_is_taken_is_an_error_of_the_call(bench: Workbench) -> None:
    """The class's policies decide about it; then it is raised and recorded."""
    Shipping.start("7")
    run = Blocked.start()
    bench.drain()
    assert (run.state, run.reason) == (RunState.WAITING, Reason.RETRY)
    bench.travel(HOUR / 2)
    bench.drain()
    assert run.result(AT_ONCE) is True
    assert children_of(bench, run) == []


def test_a_retried_call_starts_its_child_when_the_identity_is_free(bench: Workbench) -> None:
    """After the delay of the policy the start is tried anew."""
    taken = Shipping.start("7")
    run = Blocked.start()
    bench.drain()
    taken.cancel()
    bench.travel(HOUR / 2)
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    assert run.result(AT_ONCE) == "parcel 7"


class Joining(Workflow):
    workflow_name = "calls.Joining"

    def run(self) -> Any:
        return self.call(Shipping.with_options(on_conflict="skip", priority=5), "7")


def test_a_run_that_is_there_already_can_be_waited_for(bench: Workbench) -> None:
    """Nobody tells of its end: it is looked at every 30 seconds."""
    there = Shipping.start("7")
    run = Joining.start()
    bench.drain()
    bench.travel(HOUR)
    bench.drain()
    assert there.state is RunState.COMPLETED
    bench.travel(timedelta(seconds=30))
    bench.drain()
    assert run.result(AT_ONCE) == "parcel 7"


def test_the_options_of_a_start_hold_for_a_child(bench: Workbench) -> None:
    """``with_options`` works; what names a transaction or an engine is refused."""
    run = Joining.start()
    bench.drain()
    assert children_of(bench, run)[0].info().priority == 5
    with pytest.raises(DefinitionError, match="engine= has no meaning here"):

        class Wrong(Workflow):
            @step(awaits=Child(Shipping.with_options(engine=bench.engine)))
            def tell(self) -> None: ...


class Misled(Workflow):
    workflow_name = "calls.Misled"

    def run(self, what: str) -> Any:
        target = {"none": 7, "args": Shipping}[what]
        try:
            return self.call(target, stranger=1)
        except WrongArguments as error:
            return str(error)


@pytest.mark.parametrize(
    ("what", "told"),
    [("none", r"self.call\(\) takes a workflow class"), ("args", r"Shipping.start\(order_id")],
)
def test_a_call_that_cannot_be_is_refused_where_it_stands(bench: Workbench, what: str, told: str) -> None:
    """No row is written for it."""
    run = Misled.start(what)
    bench.drain()
    assert told.replace("\\", "") in run.result(AT_ONCE)
    assert run.steps == []


def test_canceling_a_run_cancels_what_it_waits_for(bench: Workbench) -> None:
    """Nobody would read the child's result; a child of a child is canceled too."""

    class Customer(Workflow):
        workflow_name = "calls.Customer"

        def run(self) -> Any:
            return self.call(Order, "7")

    run = Customer.start()
    bench.drain()
    run.cancel("moved away")
    bench.drain()
    states = {row.workflow: (row.state, row.reason) for row in bench.engine.runs().infos()}
    told = ("canceled", "the run that called it was canceled")
    assert states == {
        "calls.Customer": ("canceled", "moved away"),
        "calls.Order": told,
        "calls.Shipping": told,
    }


class Account(Workflow):
    """Unique, and calls."""

    workflow_name = "calls.Account"
    unique_by = "name"
    on_conflict = "replace"

    def run(self, name: str) -> Any:
        return self.call(Order, name)


class Bank(Workflow):
    """Calls what may be replaced."""

    workflow_name = "calls.Bank"

    def run(self) -> Any:
        try:
            return self.call(Account, "a")
        except ChildFailed as error:
            return [error.was_canceled, error.reason]


def test_a_run_that_is_replaced_is_canceled_with_what_it_waits_for(bench: Workbench) -> None:
    """Its parent hears of that, and its children end with it."""
    bank = Bank.start()
    bench.drain()
    Account.start("a")
    assert bank.state is RunState.READY
    orders = bench.engine.runs(Order).infos()
    assert [row.state for row in orders] == ["canceled"]
    bench.drain()
    assert bank.result(AT_ONCE) == [True, "replaced"]


def test_a_call_that_is_skipped_answers_none(bench: Workbench) -> None:
    """Its child goes on as a run of its own, and nobody is waited for."""
    run = Order.start("7")
    bench.drain()
    run.skip()
    bench.drain()
    assert run.result(AT_ONCE) == [None, 42]
    child = children_of(bench, run)[0]
    bench.travel(HOUR)
    bench.drain()
    assert child.state is RunState.COMPLETED


def test_a_declared_step_is_skipped_while_it_waits_for_its_child(bench: Workbench) -> None:
    """The step is left out with its wait."""
    run = Shop.start(order_id="7")
    bench.drain()
    run.skip()
    bench.drain()
    assert run.state is RunState.FAILED  # the next step misses what this one would have left
    assert [row.state for row in calls_of(run)] == ["skipped", "completed"]


class Hurried(Workflow):
    """Has less time than its child."""

    workflow_name = "calls.Hurried"
    deadline = HOUR / 2

    def run(self) -> Any:
        try:
            return self.call(Shipping, "7")
        except StepFailed as error:
            return error.caused_by("stepwell.errors.DeadlineExceeded")


def test_a_deadline_ends_a_call(bench: Workbench) -> None:
    """The run is woken for it; the child goes on."""
    run = Hurried.start()
    bench.drain()
    bench.travel(HOUR / 2)
    bench.drain()
    assert run.result(AT_ONCE) is True
    assert children_of(bench, run)[0].state is RunState.WAITING


def test_a_call_with_other_arguments_than_recorded_stops_the_run(bench: Workbench) -> None:
    """The code has changed under the run: nobody can tell which child is meant."""

    class Changing(Workflow):
        workflow_name = "calls.Changing"

        def run(self) -> Any:
            answer = self.call(Doubling, number=NUMBERS[-1])
            self.sleep(HOUR)
            return answer

    NUMBERS = [1]
    run = Changing.start()
    bench.drain()
    NUMBERS.append(2)
    bench.travel(HOUR)
    bench.drain()
    assert (run.state, run.reason) == (RunState.FAILED, Reason.HISTORY_MISMATCH)
    assert "calls.Doubling is recorded at position 1 with other arguments" in (run.info().error_message or "")
    NUMBERS.pop()
    run.resume()
    bench.drain()
    assert run.result(AT_ONCE) == 2


def test_pausing_a_run_lets_its_child_go_on(bench: Workbench) -> None:
    """The result is there when the run is resumed."""
    run = Order.start("7")
    bench.drain()
    run.pause()
    bench.travel(HOUR)
    bench.drain()
    assert children_of(bench, run)[0].state is RunState.COMPLETED
    run.resume()
    bench.drain()
    assert run.result(AT_ONCE) == ["parcel 7", 42]


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_SETTLE, CrashPoint.AFTER_SETTLE])
@pytest.mark.parametrize("name", ["calls.Shipping", "calls.Doubling"])
def test_a_worker_that_dies_where_a_child_is_started_starts_it_once(
    bench: Workbench, point: CrashPoint, name: str
) -> None:
    """The start and the park are one transaction: both, or none and then again."""
    run = Order.start("7")
    if name == "calls.Doubling":
        bench.drain()
        bench.travel(HOUR)
    with bench.crash_at(point, step=name):
        bench.drain()
    for _ in range(3):
        bench.travel(HOUR)
        bench.drain()
    assert run.result(AT_ONCE) == ["parcel 7", 42]
    assert len(children_of(bench, run)) == 2


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_parent_whose_childs_worker_died_finds_out_by_itself(bench: Workbench, is_broken: bool) -> None:
    """The child is over and nobody has told: the parent looks 30 seconds after it began to wait, and later on."""
    run = Order.start("7", is_broken)
    bench.drain()
    child = children_of(bench, run)[0]
    bench.travel(HOUR - timedelta(seconds=1))
    bench.drain()
    bench.clock.travel(timedelta(seconds=1))
    with bench.crash_at(CrashPoint.AFTER_SETTLE, step=None):
        bench.drain()
    assert child.state is (RunState.FAILED if is_broken else RunState.COMPLETED)
    assert run.state is RunState.AWAITING
    bench.travel(timedelta(minutes=10))
    bench.drain()
    assert run.state is (RunState.FAILED if is_broken else RunState.COMPLETED)


def test_a_child_whose_canceled_parent_could_not_tell_it_is_called_off(bench: Workbench) -> None:
    """It looks at its parent when it is taken up."""
    run = Order.start("7")
    bench.drain()
    child = children_of(bench, run)[0]
    engine = bench.engine
    engine.database.repeating(
        lambda connection: engine.commands.cancel(connection, run.id, engine.now(), None, None)
    )
    assert child.state is RunState.WAITING
    bench.travel(HOUR)
    bench.drain()
    assert (child.state, child.reason) == (RunState.CANCELED, "the run that called it was canceled")


def test_the_looks_at_a_child_become_rarer(bench: Workbench) -> None:
    """30 seconds at first, doubling to ten minutes: a child that takes a month costs little."""

    class Slow(Workflow):
        workflow_name = "calls.Slow"

        def run(self) -> None:
            self.sleep(30 * 24 * HOUR)

    class Waiting(Workflow):
        workflow_name = "calls.Waiting"

        def run(self) -> None:
            self.call(Slow)

    run = Waiting.start()
    bench.drain()
    looks = []
    for _ in range(9):
        wake_at = run.info().wake_at
        assert wake_at is not None
        looks.append((wake_at - bench.clock.now()).total_seconds())
        bench.travel_to(wake_at)
        bench.drain()
    assert looks == [30, 30, 60, 120, 240, 480, 600, 600, 600]
    assert len(run.steps) == 1


class Echo(Workflow):
    workflow_name = "calls.Echo"

    @step
    def answer(self) -> None:
        self.finish(self.args["number"])


class Asking(Workflow):
    workflow_name = "calls.Asking"

    def run(self, number: int) -> list[int]:
        return [self.call(Echo, number=10 * number + each) for each in range(3)]


def test_many_parents_and_children_at_the_same_time(shared_url: str) -> None:
    """Workers that race for parents and children lose no end and start nothing twice."""
    well = Stepwell(shared_url)
    workers = [Worker(well, threads=4, name=f"racer {number}") for number in range(2)]
    runs = Asking.start_many([{"number": number} for number in range(30)])
    for worker in workers:
        worker.start()
    try:
        # Without waiting for a look that finds out by itself, which would come after 30 seconds.
        results = [run.result(timedelta(seconds=25)) for run in runs]
    finally:
        for worker in workers:
            worker.stop()
    assert results == [[10 * number + each for each in range(3)] for number in range(30)]
    assert well.runs(Echo).count() == 90
    well.close()


@pytest.mark.parametrize("details", ["{broken", "[]", "7", '{"child": "nobody"}', '{"child": 7}'])
def test_a_call_that_cannot_be_read_back_calls_nobody_a_second_time(bench: Workbench, details: str) -> None:
    """Its run fails and says so; mended, it goes on with the child that it has."""
    order = Order.start(order_id="a-1")
    bench.drain()
    engine = bench.engine
    place = (executions.c.run_id == order.id, executions.c.kind == Kind.CALL.value)
    with engine.database.begin() as connection:
        known = connection.execute(select(executions.c.details).where(*place)).scalar_one()
        connection.execute(update(executions).where(*place).values(details=details))
    bench.travel(HOUR)
    bench.drain()

    assert (order.state, order.reason) == (RunState.FAILED, Reason.UNDECODABLE)
    assert engine.runs(Shipping).count() == 1

    with engine.database.begin() as connection:
        connection.execute(update(executions).where(*place).values(details=known))
    order.resume()
    bench.drain()
    assert order.result(AT_ONCE) == ["parcel a-1", 42]
    assert engine.runs(Shipping).count() == 1


class Waiting(Workflow):
    """Waits for what never comes."""

    workflow_name = "calls.Waiting"

    def run(self) -> None:
        self.wait_for_signal("never")


class WaitingCaller(Workflow):
    """Calls it."""

    workflow_name = "calls.WaitingCaller"

    def run(self) -> None:
        self.call(Waiting)


def test_a_child_hears_of_the_cancel_though_whoever_canceled_has_died(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at its caller now and then, and would keep its identity for ever else."""
    caller = WaitingCaller.start()
    bench.drain()
    monkeypatch.setattr(bench.engine.children, "call_off", lambda run_id: None)
    caller.cancel()
    bench.drain()
    [child] = bench.engine.runs(Waiting)
    assert child.state is RunState.AWAITING
    bench.travel(timedelta(minutes=10))
    bench.drain()
    assert child.state is RunState.CANCELED


def test_a_child_that_only_looks_at_its_caller_goes_on_waiting(bench: Workbench) -> None:
    """As long as nobody has called that off."""
    WaitingCaller.start()
    bench.drain()
    [child] = bench.engine.runs(Waiting)
    for _ in range(3):
        bench.travel(timedelta(minutes=10))
        bench.drain()
    assert child.state is RunState.AWAITING
    assert len(child.steps) == 1
