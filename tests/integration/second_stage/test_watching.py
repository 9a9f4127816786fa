"""What hooks, observers and the error reporter hear of runs on a database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Event,
    Fail,
    ManualClock,
    Pause,
    Retry,
    RunError,
    Skip,
    Stepwell,
    Workflow,
    handles,
    resumable_step,
    step,
)
from stepwell.definition.starting import set_default_engine
from stepwell.states import RunState
from tests.integration.second_stage.warehouse import Item, Line, Warehouse
from tests.support.driving import Driver

HOUR = timedelta(hours=1)
AT_ONCE = timedelta()


class Ear:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def told(self, *facts: str) -> list[tuple[Any, ...]]:
        return [(str(e.kind), e.step, *(e.facts.get(fact) for fact in facts)) for e in self.events]


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def reported() -> list[BaseException]:
    return []


@pytest.fixture
def well(house: Warehouse, ear: Ear, reported: list[BaseException]) -> Iterator[Stepwell]:
    well = Stepwell(house.url, clock=ManualClock(), observers=[ear], report_error=reported.append)
    yield well
    well.close()
    set_default_engine(None)


# -- observers -----------------------------------------------------------------------------------------------------


class Order(Workflow):
    """Fails once, waits for a signal, ends."""

    workflow_name = "watching.Order"

    @step(on_exception=Retry(ConnectionError, wait=HOUR))
    def pack(self) -> None:
        if not self.context.get("tried") and len(tries) < 1:
            tries.append(1)
            raise ConnectionError

    @step(awaits="paid")
    def ship(self, payment: Any) -> None: ...


tries: list[int] = []


def test_a_run_is_told_from_start_to_end(driver: Driver, ear: Ear) -> None:
    """Each thing once, in the order in which it happened, with the worker and the store's time."""
    tries.clear()
    run = Order.start()
    driver.drain()
    driver.travel(HOUR)
    run.signal("paid", 7)
    driver.drain()

    assert ear.told("outcome", "state", "reason") == [
        ("start", None, None, None, None),
        ("claim", None, None, None, None),
        ("step", "pack", "retried", "failed", None),
        ("park", "pack", None, "waiting", "retry"),
        ("claim", None, None, None, None),
        ("step", "pack", "success", "completed", None),
        ("park", "ship", None, "awaiting", "signal"),
        ("signal", None, None, None, None),
        ("claim", None, None, None, None),
        ("step", "ship", "success", "completed", None),
        ("step", "ship", "success", "completed", None),
        ("settle", None, None, "completed", None),
    ]
    assert {e.run_id for e in ear.events} == {run.id}
    assert {e.workflow for e in ear.events if str(e.kind) not in ("signal", "command")} == {"watching.Order"}
    assert {e.facts.get("worker") for e in ear.events if str(e.kind) in ("claim", "step", "park")} == {
        "by hand"
    }
    assert [e.facts["name"] for e in ear.events if str(e.kind) == "signal"] == ["paid"]
    assert [e.facts["error_class"] for e in ear.events if e.facts.get("outcome") == "retried"] == [
        "ConnectionError"
    ]


def test_what_people_do_is_told(driver: Driver, ear: Ear) -> None:
    """Also to a run that nobody drives, and what came of it."""
    tries.append(1)
    run = Order.start()
    driver.drain()
    ear.events.clear()
    run.pause()
    run.pause()
    run.resume()
    driver.drain()
    run.cancel("enough")

    assert [told for told in ear.told("verb", "answer") if told[0] == "command"] == [
        ("command", None, "pause", "done"),
        ("command", None, "pause", "unchanged"),
        ("command", None, "resume", "done"),
        ("command", None, "cancel", "done"),
    ]


def test_what_is_honoured_is_told_once(driver: Driver, ear: Ear) -> None:
    """When it is asked for, and by how the run ends; its entry in the journal is no step."""
    run = Order.start()
    assert len(driver.claim()) == 1
    run.cancel("enough")
    driver.travel(driver.well.lease * 2)

    assert run.steps[-1].name == "cancel"
    assert [told for told in ear.told("verb", "state") if told[0] in ("command", "step", "settle")] == [
        ("command", None, "cancel", None),
        ("settle", "pack", None, "canceled"),
    ]


def test_a_lost_worker_is_told(driver: Driver, well: Stepwell, ear: Ear) -> None:
    """Which one, and how often in a row."""
    run = Order.start()
    (claimed,) = driver.claim()
    well.leases.remove(claimed.lease)
    driver.clock.travel(well.lease * 2)
    driver.claim()

    (event,) = [e for e in ear.events if str(e.kind) == "recover"]
    assert (event.run_id, event.workflow) == (run.id, "watching.Order")
    assert dict(event.facts) == {"worker": "by hand", "recoveries": 1, "has_failed": False}


def test_what_was_rolled_back_is_not_told(driver: Driver, ear: Ear) -> None:
    """A signal from a step that fails, and what the step would have been."""
    target = Order.start()

    class Failing(Workflow):
        workflow_name = "watching.Failing"

        @step
        def fail(self) -> None:
            target.signal("paid")
            raise ValueError

    Failing.start()
    driver.drain()

    assert not [e for e in ear.events if str(e.kind) == "signal"]


def test_checkpoints_are_no_events(driver: Driver, ear: Ear) -> None:
    """An execution is told when it is over."""

    class Steps(Workflow):
        workflow_name = "watching.Steps"

        @resumable_step(max_iterations=2)
        def walk(self) -> None:
            for _ in self.cursor.iterate(range(4)):
                pass

    Steps.start()
    driver.drain()

    assert [told for told in ear.told("outcome") if told[0] == "step"] == [
        ("step", "walk", "continued"),
        ("step", "walk", "success"),
    ]


# -- the error reporter --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "count"),
    [
        ([], 1),
        (Fail(), 1),
        (Fail(report="never"), 0),
        (Skip(), 1),
        (Skip(report="never"), 0),
        (Skip(report="terminal_only"), 1),
        (Pause(), 1),
        (Retry(attempts=3, wait=AT_ONCE), 3),
        (Retry(attempts=3, wait=AT_ONCE, report="terminal_only"), 1),
        (Retry(attempts=3, wait=AT_ONCE, report="never"), 0),
        (Retry(attempts=3, wait=AT_ONCE, then="skip", report="terminal_only"), 1),
    ],
)
def test_errors_are_reported_as_their_policy_says(
    driver: Driver, reported: list[BaseException], policy: Any, count: int
) -> None:
    """Always, never, or when nothing is tried any more; the reporter gets the error itself."""

    class Failing(Workflow):
        workflow_name = "watching.Reported"

        @step(on_exception=policy)
        def fail(self) -> None:
            raise ConnectionError("down")

    Failing.start()
    driver.drain()

    assert [repr(error) for error in reported] == ["ConnectionError('down')"] * count


def test_what_a_handler_raises_is_reported(driver: Driver, reported: list[BaseException]) -> None:
    """It is what stopped the run."""

    class Failing(Workflow):
        workflow_name = "watching.Handled"

        @handles(ConnectionError)
        def handle(self, error: ConnectionError) -> None:
            raise KeyError("handler")

        @step
        def fail(self) -> None:
            raise ConnectionError

    run = Failing.start()
    driver.drain()

    assert run.state is RunState.FAILED
    assert [type(error) for error in reported] == [KeyError]


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("base")]
)
@pytest.mark.parametrize("is_async", [False, True])
def test_nothing_that_a_step_raises_strands_its_run(
    driver: Driver, reported: list[BaseException], error: BaseException, is_async: bool
) -> None:
    """It has failed, legibly; the thread, the loop and the other runs go on."""

    class Exiting(Workflow):
        workflow_name = "watching.Exiting"

        @step
        def leave(self) -> None:
            raise error

    class AsyncExiting(Workflow):
        workflow_name = "watching.AsyncExiting"

        @step
        async def leave(self) -> None:
            raise error

    for _ in range(2):
        run = (AsyncExiting if is_async else Exiting).start()
        driver.drain()
        assert run.state is RunState.FAILED
        assert run.info().error_class == type(error).__name__
    assert len(reported) == 2


@pytest.mark.parametrize("error", [RuntimeError("no network"), SystemExit(1)])
def test_a_reporter_that_raises_changes_nothing(house: Warehouse, error: BaseException) -> None:
    """The step's error counts, not the reporter's."""

    def broken(_error: BaseException) -> None:
        raise error

    well = Stepwell(house.url, clock=ManualClock(), report_error=broken)

    class Failing(Workflow):
        workflow_name = "watching.Unreported"

        @step
        def fail(self) -> None:
            raise ConnectionError

    with Driver(well) as driver:
        run = Failing.start()
        driver.drain()
    assert run.info().error_class == "ConnectionError"
    well.close()
    set_default_engine(None)


# -- hooks ---------------------------------------------------------------------------------------------------------


class Chained(Workflow[Item]):
    """Starts another run when it is over, and says so of its hero."""

    workflow_name = "watching.Chained"
    unique_by = None

    @step(on_exception=Skip())
    def work(self) -> None:
        self.session.add(Line(text=f"work {self.hero.shelf}"))
        if self.args["fails"]:
            raise ConnectionError

    def after_step(self, step: str, outcome: str) -> None:
        heard.append(f"{outcome} {self.hero.shelf}")
        if outcome == "success":
            self.session.add(Line(text="after"))
        else:
            Follower.start(of=f"{outcome}")

    def on_finish(self, result: Any) -> None:
        heard.append(f"finished {self.hero.shelf}")
        Follower.start(of="finish")
        with pytest.raises(RunError, match="open a session of your own"):
            self.session.add(Line(text="never"))


class Follower(Workflow):
    workflow_name = "watching.Follower"

    @step
    def follow(self) -> None:
        self.session.add(Line(text=f"follower of {self.args['of']}"))


heard: list[str] = []


@pytest.mark.parametrize("fails", [False, True])
def test_hooks_may_start_runs(driver: Driver, house: Warehouse, fails: bool) -> None:
    """Those of an attempt that succeeds with it, the others by themselves; the hero is there for all of them."""
    heard.clear()
    item = Item(id=1, shelf="b3")
    house.add(item)
    run = Chained.start(item, fails=fails)
    driver.drain()

    assert run.state is RunState.COMPLETED
    if fails:
        assert heard == ["skipped b3", "finished b3"]
        assert sorted(house.lines()) == ["follower of finish", "follower of skipped"]
    else:
        assert heard == ["success b3", "finished b3"]
        assert house.lines() == ["work b3", "after", "follower of finish"]


def test_a_record_that_a_hook_changes_is_not_stored(
    driver: Driver, house: Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything is committed when it is told: the log says that the change is lost."""

    class Changing(Workflow[Item]):
        workflow_name = "watching.Changing"

        @step
        def work(self) -> None: ...

        def on_finish(self, result: Any) -> None:
            self.hero.shelf = "lost"

    item = Item(id=1, shelf="b3")
    house.add(item)
    Changing.start(item)
    driver.drain()

    with house.session() as session:
        kept = session.get(Item, 1)
        assert kept is not None
        assert kept.shelf == "b3"
    assert "a hook raised; the run stands as it is" in caplog.text
    assert "on_finish() changed a record" in caplog.text


def test_the_end_is_told_when_it_is_durable(driver: Driver, well: Stepwell) -> None:
    """Whoever asks the database in the hook finds it there."""
    seen: list[str] = []

    class Looking(Workflow):
        workflow_name = "watching.Looking"

        @step
        def work(self) -> None: ...

        def on_finish(self, result: Any) -> None:
            seen.append(well.run(self.run_id).state)

    Looking.start()
    driver.drain()

    assert seen == ["completed"]
