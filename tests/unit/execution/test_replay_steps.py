"""Steps that ``run()`` calls: what is recorded is answered, by name, key and number, on every pass alike."""

from __future__ import annotations

import gc
import json
import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, RunError, StepFailed, Unstorable, Workflow, cancel_if, step
from stepwell.execution.history import History
from stepwell.serialization import RecordRef
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from tests.unit.execution.memory import MemoryRun, crash_at
from tests.unit.execution.procedures import crashed_everywhere, driven, replayed

HOUR = timedelta(hours=1)


@dataclass
class Parcel:
    """Something that a codec knows."""

    weights: list[int]


# -- results --------------------------------------------------------------------------------------------------------


def test_each_step_runs_once_whatever_crashes() -> None:
    """What is recorded as completed never runs again; ``run()`` sees the same results each time."""
    bodies: list[int] = []

    class Count(Workflow[None]):
        def run(self, n: int) -> list[int]:
            return [self.square(number) for number in range(n)]

        @step
        def square(self, number: int) -> int:
            bodies.append(number)
            return number * number

    runs = crashed_everywhere(lambda: MemoryRun(Count, args={"n": 4}))
    for run in runs:
        assert run.state is RunState.COMPLETED
        assert json.loads(run.result) == [0, 1, 4, 9]
        assert run.story == ["square success"] * 4
    # One more for each crash between a body and its record; none for a crash elsewhere.
    assert len(runs) == 11
    assert len(bodies) == 4 * len(runs) + 4


def test_a_run_of_n_steps_takes_n_and_one_writes() -> None:
    """Nothing is written beside the steps and the end."""

    class Plain(Workflow[None]):
        def run(self) -> None:
            for _ in range(5):
                self.nothing()

        @step
        def nothing(self) -> None: ...

    run = driven(Plain)
    assert (run.writes, run.activations) == (6, 1)
    assert run.current_step is None


@pytest.mark.parametrize("make", [lambda: [1], lambda: Parcel([1]), lambda: (1, {"a": [2]})])
def test_the_first_pass_gets_what_a_replay_gets(make: Callable[[], Any]) -> None:
    """A result is read back before ``run()`` sees it: never the step's own object."""
    made, seen = [], []

    class Once(Workflow[None]):
        def run(self) -> None:
            seen.append(self.make())
            self.end()

        @step
        def make(self) -> Any:
            made.append(make())
            return made[-1]

        @step
        def end(self) -> None: ...

    run = MemoryRun(Once)
    crash_at(run, 1, "before")
    run.drive()

    first, replay = seen
    assert type(first) is type(replay)
    assert first == replay
    assert first is not made[0]


def test_what_run_does_to_a_result_reaches_no_replay() -> None:
    """A result that ``run()`` has changed is read anew from the journal."""
    seen: list[Any] = []

    class Change(Workflow[None]):
        def run(self) -> None:
            items = self.items()
            seen.append(list(items))
            items.append(3)
            self.end()

        @step
        def items(self) -> list[int]:
            return [1, 2]

        @step
        def end(self) -> None: ...

    replayed(MemoryRun(Change)).drive()
    assert len(seen) > 1
    assert seen == [[1, 2]] * len(seen)


def test_a_result_that_cannot_be_stored_is_an_error_that_is_not_retried() -> None:
    """It is found before anything is written, and would be the same again."""
    bodies: list[int] = []

    class Bad(Workflow[None]):
        def run(self) -> str:
            try:
                self.bad()
            except StepFailed as failure:
                return str(failure.caused_by(Unstorable))
            return "stored"

        @step(on_exception=Retry(attempts=5))
        def bad(self) -> Any:
            bodies.append(1)
            return object()

    run = driven(Bad)
    assert (run.result, len(bodies)) == ('"True"', 1)


# -- which call is which --------------------------------------------------------------------------------------------


def keys_of(workflow: type[Any], **args: Any) -> list[str | None]:
    return [row.key for row in driven(workflow, **args).journal if row.kind is Kind.STEP]


def shipping(**options: Any) -> type[Workflow[None]]:
    class Shipping(Workflow[None]):
        def run(self, calls: list[tuple[Any, Any]]) -> list[Any]:
            return [self.ship(item, to) for item, to in calls]

        @step(**options)
        def ship(self, item: Any, to: Any = "home") -> Any:
            return [item, to]

    return Shipping


CALLS = [("A", "x"), ("A", "y"), ("B", "x"), (1, "x"), ("1", "x"), (None, "x")]


def test_calls_are_numbered() -> None:
    """The first has no number."""
    assert keys_of(shipping(), calls=CALLS[:3]) == [None, "#2", "#3"]


@pytest.mark.parametrize(
    ("key_by", "keys"),
    [
        ("item", ['"A"', '"A"#2', '"B"', "1", '"1"', "null"]),
        (("item", "to"), ['["A","x"]', '["A","y"]', '["B","x"]', '[1,"x"]', '["1","x"]', '[null,"x"]']),
        (lambda item, to: f"{to}-{item}", ['"x-A"', '"y-A"', '"x-B"', '"x-1"', '"x-1"#2', '"x-None"']),
    ],
    ids=["name", "tuple", "function"],
)
def test_keys_tell_calls_apart(key_by: Any, keys: list[str]) -> None:
    """By an argument, several, or a function of them; equal texts of different types are different keys."""
    assert keys_of(shipping(key_by=key_by), calls=CALLS) == keys


def test_a_key_needs_no_order() -> None:
    """A loop over the same things in another order answers each from its own row."""
    bodies: list[Any] = []
    order = [["A", "B", "C"]]

    class Ship(Workflow[None]):
        def run(self) -> list[Any]:
            return [self.ship(item) for item in order[-1]]

        @step(key_by="item")
        def ship(self, item: str) -> str:
            bodies.append(item)
            if item == "C" and len(order) == 1:
                order.append(["C", "B", "A"])
                raise OSError
            return item.lower()

    run = driven(Ship)
    assert run.state is RunState.FAILED
    run.resume()
    run.drive()
    assert (run.result, bodies) == ('["c","b","a"]', ["A", "B", "C", "C"])


def test_a_default_counts_for_a_key() -> None:
    """A key is made of what the step gets, defaults included, however it is given."""

    class Mixed(Workflow[None]):
        def run(self) -> None:
            self.ship("A")
            self.ship(item="A", to="home")

        @step(key_by=("item", "to"))
        def ship(self, item: str, to: str = "home") -> None: ...

    assert keys_of(Mixed) == ['["A","home"]', '["A","home"]#2']


def test_a_long_key_is_kept_short() -> None:
    """Two that differ at their very end are still two."""
    calls = [("x" * 500 + end, "y") for end in "ab"]
    keys = keys_of(shipping(key_by="item"), calls=calls)
    assert len(set(keys)) == 2
    assert all(len(key or "") <= 80 for key in keys)


def test_a_function_is_a_step_by_name() -> None:
    """``self.step()`` runs what is no method of the class, with its arguments, once."""
    bodies: list[Any] = []

    def charge(amount: int, *, currency: str = "EUR") -> str:
        bodies.append(amount)
        return f"{amount} {currency}"

    class Pay(Workflow[None]):
        def run(self) -> list[str]:
            return [
                self.step("charge", charge, 5),
                self.step("charge", charge, 6, currency="USD"),
                self.step("method", self.plain, 1),
                self.step("built in", max, 1, 2),
            ]

        def plain(self, number: int) -> str:
            self.session.append("plain")
            return f"{number}"

    run = MemoryRun(Pay)
    replayed(run).drive()
    assert json.loads(run.result) == ["5 EUR", "6 USD", "1", 2]
    assert bodies == [5, 6]
    assert run.ledger == ["plain"]
    assert [(row.name, row.key) for row in run.journal if row.kind is Kind.STEP] == [
        ("charge", None),
        ("charge", "#2"),
        ("method", None),
        ("built in", None),
    ]


def test_a_function_by_name_is_under_the_class_policies() -> None:
    """Its errors are retried like those of any step."""
    bodies: list[int] = []

    def flaky() -> int:
        bodies.append(1)
        if len(bodies) < 3:
            raise ConnectionError
        return len(bodies)

    class Pay(Workflow[None]):
        policies = [Retry(ConnectionError, attempts=5, wait=HOUR)]

        def run(self) -> int:
            return self.step("flaky", flaky)

    run = driven(Pay)
    assert (run.result, run.story) == ("3", ["flaky retried", "flaky retried", "flaky success"])


# -- arguments ------------------------------------------------------------------------------------------------------


def digests(run: MemoryRun) -> list[str | None]:
    return [row.args_digest for row in run.journal if row.kind is Kind.STEP]


def test_defaults_are_no_part_of_a_digest() -> None:
    """A parameter with a default can be added to a step while runs are under way."""

    class Old(Workflow[None]):
        def run(self) -> None:
            self.ship("A")
            self.ping()

        @step
        def ship(self, item: str) -> None: ...
        @step
        def ping(self) -> None: ...

    class New(Old):
        def run(self) -> None:
            self.ship("A", to="home")
            self.ship("B", to="there")
            self.ping(loud=False)

        @step
        def ship(self, item: str, to: str = "home") -> None: ...
        @step
        def ping(self, loud: bool = False) -> None: ...

    old, new = digests(driven(Old)), digests(driven(New))
    assert old[0] == new[0] is not None
    assert old[1] is new[2] is None
    assert new[1] not in (None, new[0])


def test_a_default_of_another_type_counts() -> None:
    """True is no 1: what only compares equal to the default is another argument."""

    class Ping(Workflow[None]):
        def run(self) -> None:
            self.ping(1)
            self.ping(True)

        @step
        def ping(self, loud: Any = 1) -> None: ...

    first, second = digests(driven(Ping))
    assert first is None
    assert second is not None


def test_a_digest_counts_records_by_type_and_key() -> None:
    """Whatever the record looks like today."""
    first, again, other = (RecordRef("mem", "shop:Item", (number,)) for number in (1, 1, 2))
    calls = [(first, "x"), (again, "x"), (other, "x")]
    workflow = shipping(digest=True)
    run = MemoryRun(workflow, args={"calls": calls})
    run.records = {first: "one", other: "two"}
    run.drive()
    found = digests(run)
    assert found[0] == found[1] != found[2]


def test_records_come_loaded_where_a_step_takes_them() -> None:
    """In ``run()`` a record is a reference; the step's parameter gets what it refers to."""
    ref = RecordRef("mem", "shop:Item", (1,))
    seen: list[Any] = []

    class Pack(Workflow[None]):
        def run(self, item: Any) -> Any:
            seen.append(item)
            self.pack(item, others=[item])
            found = self.look_up()
            seen.append(found)
            return None

        @step
        def pack(self, item: Any, others: list[Any]) -> None:
            seen.append((item, others))

        @step
        def look_up(self) -> Any:
            return RecordRef("mem", "shop:Item", (1,))

    run = MemoryRun(Pack, args={"item": ref})
    run.records = {ref: "the item"}
    run.drive()
    assert run.state is RunState.COMPLETED, run.error_message
    assert seen == [ref, ("the item", ["the item"]), ref]


def test_a_record_that_is_gone_is_the_steps_error() -> None:
    """The policies see it, and so does ``run()``."""
    ref = RecordRef("mem", "shop:Item", (1,))

    class Pack(Workflow[None]):
        def run(self, item: Any) -> str:
            try:
                self.pack(item)
            except StepFailed as failure:
                return failure.error_class
            return "packed"

        @step
        def pack(self, item: Any) -> None: ...

    run = MemoryRun(Pack, args={"item": ref}).drive()
    assert run.result == '"stepwell.errors.RecordGone"'


def test_arguments_that_are_changed_reach_nobody() -> None:
    """Neither does the step see what ``run()`` does later, nor ``run()`` or a later attempt what the step did."""
    seen: list[Any] = []

    class Change(Workflow[None]):
        def run(self, items: list[int]) -> list[int]:
            self.add(items)
            items.append(9)
            self.add(items)
            return items

        @step(on_exception=Retry(attempts=2, wait=timedelta()))
        def add(self, items: list[int]) -> None:
            seen.append(list(items))
            items.append(7)
            self.args["items"].append(8)
            if len(seen) == 1:
                raise OSError

    given = [1]
    run = driven(Change, items=given)
    assert seen == [[1], [1], [1, 9]]
    assert (json.loads(run.result), given) == ([1, 9], [1])


def test_a_conflict_runs_the_step_with_its_arguments_as_they_were() -> None:
    """The attempt that the database undid has changed nothing, its arguments included."""
    seen: list[Any] = []

    class Change(Workflow[None]):
        def run(self) -> None:
            self.add([1], Parcel([1]))

        @step
        def add(self, items: list[int], parcel: Parcel) -> None:
            seen.append((list(items), list(parcel.weights)))
            items.append(2)
            parcel.weights.append(2)

    run = MemoryRun(Change, conflicts=2)
    run.drive()
    assert seen == [([1], [1])] * 3


def test_an_argument_that_cannot_be_stored_is_refused() -> None:
    """Where it is given, before the body runs; no policy would help."""
    bodies: list[int] = []

    class Bad(Workflow[None]):
        policies = [Retry(attempts=4)]

        def run(self) -> None:
            self.ship(object())

        @step
        def ship(self, item: Any) -> None:
            bodies.append(1)

    run = driven(Bad)
    assert run.is_over_as(RunState.FAILED, Reason.STEP_FAILED)
    assert run.error_class == "stepwell.errors.Unstorable"
    assert bodies == []


# -- history that does not fit --------------------------------------------------------------------------------------


class Deploy:
    """Code that changes while the run is paused."""

    items: list[str] = []
    caught: list[BaseException] = []


class Mismatch(Workflow[None]):
    """Ships whatever the deployed code says, and catches everything."""

    def run(self) -> list[str]:
        shipped = []
        for item in Deploy.items:
            try:
                shipped.append(self.ship(item))
            except BaseException as error:
                Deploy.caught.append(error)
                raise
        self.pause("look")
        return shipped

    @step
    def ship(self, item: str) -> str:
        return item.lower()


@pytest.fixture
def paused() -> MemoryRun:
    """A run that has shipped A and B and is paused."""
    Deploy.items, Deploy.caught = ["A", "B"], []
    return driven(Mismatch)


def test_other_arguments_are_no_match(paused: MemoryRun) -> None:
    """The run fails and says which step, what was recorded and what came; nothing is run or journaled."""
    Deploy.items = ["A", "C"]
    rows = len(paused.rows)
    paused.resume()
    paused.drive()
    assert paused.is_over_as(RunState.FAILED, Reason.HISTORY_MISMATCH)
    message = paused.error_message or ""
    for part in ("ship#2", "position 2", '"C"', "run.resume()"):
        assert part in message
    assert len(paused.rows) == rows + 1  # the resume


def test_a_mismatch_cannot_be_caught(paused: MemoryRun, caplog: pytest.LogCaptureFixture) -> None:
    """What ``run()`` makes of it, and what it calls then, counts for nothing."""
    Deploy.items = ["A", "C"]

    class Catching(Workflow[None]):
        def run(self) -> str:
            for item in Deploy.items:
                try:
                    self.ship(item)
                except BaseException:
                    pass
            return "done"

        ship = Mismatch.ship

    paused.workflow = Catching
    paused.resume()
    with caplog.at_level(logging.WARNING):
        paused.drive()
    assert paused.is_over_as(RunState.FAILED, Reason.HISTORY_MISMATCH)
    assert [record.action for record in caplog.records] == ["run.swallowed"]  # type: ignore[attr-defined]


def test_a_mismatch_is_resumed_after_a_deploy_that_fits(paused: MemoryRun) -> None:
    """Nothing was lost meanwhile."""
    Deploy.items = ["A", "C"]
    paused.resume()
    paused.drive()
    Deploy.items = ["A", "B"]
    paused.resume()
    paused.drive()
    assert paused.state is RunState.COMPLETED
    assert json.loads(paused.result) == ["a", "b"]
    assert paused.story == ["ship success"] * 2


def test_no_arguments_do_not_match_some() -> None:
    """A call that has lost its arguments, or got some, is another call."""
    with_arguments = [True]

    class Ship(Workflow[None]):
        def run(self) -> None:
            if with_arguments[-1]:
                self.ship("A")
            else:
                self.ship()
            self.pause()

        @step
        def ship(self, item: str = "") -> None: ...

    for before in (True, False):
        with_arguments.append(before)
        run = driven(Ship)
        with_arguments.append(not before)
        run.resume()
        run.drive()
        assert run.is_over_as(RunState.FAILED, Reason.HISTORY_MISMATCH)


def test_a_step_may_do_without_a_digest() -> None:
    """``digest=False``: the arguments may be others; the recorded result stands."""
    given = ["A"]

    class Ship(Workflow[None]):
        def run(self) -> str:
            result = self.ship(given[-1])
            self.pause()
            return result

        @step(digest=False)
        def ship(self, item: str) -> str:
            return item.lower()

    run = driven(Ship)
    given.append("B")
    run.resume()
    run.drive()
    assert run.result == '"a"'


def test_a_failed_step_is_compared_too() -> None:
    """A recorded error answers for the call that it belongs to, and for no other."""
    given = ["A"]

    class Ship(Workflow[None]):
        def run(self) -> None:
            try:
                self.ship(given[-1])
            except StepFailed:
                self.pause()

        @step
        def ship(self, item: str) -> None:
            raise OSError

    run = driven(Ship)
    given.append("B")
    run.resume()
    run.drive()
    assert run.is_over_as(RunState.FAILED, Reason.HISTORY_MISMATCH)


def test_recorded_calls_that_are_not_reached_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """In the run's details and by a warning; the run completes all the same."""
    deployed = ["old"]

    class Changed(Workflow[None]):
        def run(self) -> None:
            if deployed[-1] == "old":
                self.gone("x")
                self.sleep(HOUR, name="nap")
            self.pause()
            self.stays()

        @step(key_by="item")
        def gone(self, item: str) -> None: ...
        @step
        def stays(self) -> None: ...

    run = driven(Changed)
    deployed.append("new")
    run.resume()
    with caplog.at_level(logging.WARNING):
        run.drive()
    assert run.state is RunState.COMPLETED
    assert json.loads(run.details or "{}")["orphans"] == ['gone["x"]', "nap"]
    assert "run.orphans" in [getattr(record, "action", None) for record in caplog.records]


def test_a_run_that_reaches_everything_has_no_orphans(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is told, whatever else is in the journal."""

    class Whole(Workflow[None]):
        def run(self) -> None:
            self.sleep(HOUR)
            self.pause()
            self.stays()

        @step(on_exception=Retry(attempts=2, wait=HOUR))
        def stays(self) -> None:
            if len(History(self.journal_rows())) < 6:
                raise OSError

        def journal_rows(self) -> Any:
            return run.journal

    run = MemoryRun(Whole)
    crash_at(run, 1, "after")
    run.drive()
    run.resume()
    with caplog.at_level(logging.WARNING):
        run.drive()
    assert run.state is RunState.COMPLETED
    assert run.details is None
    assert caplog.records == []


# -- steps and their instance ---------------------------------------------------------------------------------------


def test_steps_see_what_run_has_put_on_itself_and_not_the_other_way_round() -> None:
    """What a step leaves on ``self`` is gone with it: a replay would not have it either."""
    seen: list[Any] = []

    class Mail(Workflow[None]):
        def run(self) -> None:
            self.greeting = "hello"
            self.first()
            seen.append(hasattr(self, "answer"))
            self.second()

        @step
        def first(self) -> None:
            seen.append(self.greeting)
            self.answer = 1
            self.greeting = "changed"

        @step
        def second(self) -> None:
            seen.append((self.greeting, hasattr(self, "answer")))

    driven(Mail)
    assert seen == ["hello", False, ("hello", False)]


def test_what_a_step_does_to_a_list_on_self_is_gone_with_it() -> None:
    """A list that ``run()`` keeps is the same on the first pass and on replay."""
    results = []

    class Log(Workflow[None]):
        def run(self) -> list[str]:
            self.log: list[str] = []
            self.first()
            return self.log

        @step
        def first(self) -> None:
            self.log.append("first")

    for run in crashed_everywhere(lambda: MemoryRun(Log)):
        results.append(run.result)
    assert set(results) == {"[]"}


def test_a_step_in_a_step_is_refused() -> None:
    """With a message that says what to do; the inner body does not run."""
    bodies: list[str] = []

    class Nested(Workflow[None]):
        def run(self) -> str:
            try:
                self.outer()
            except StepFailed as failure:
                return failure.message
            return ""

        @step
        def outer(self) -> None:
            self.inner()

        @step
        def inner(self) -> None:
            bodies.append("inner")

    run = driven(Nested)
    assert "'inner' was called from inside step 'outer'" in run.result
    assert "ordinary method" in run.result
    assert bodies == []


def test_an_overridden_step_calls_what_it_overrides() -> None:
    """``super().ship()`` inside the override is a part of it, not a step of its own."""

    class Base(Workflow[None]):
        def run(self) -> str:
            return self.ship("A")

        @step
        def ship(self, item: str) -> str:
            return item.lower()

    class Derived(Base):
        @step
        def ship(self, item: str) -> str:
            return super().ship(item) + "!"

    run = driven(Derived)
    assert (run.result, run.story) == ('"a!"', ["ship success"])


def test_a_step_is_an_ordinary_method_elsewhere() -> None:
    """In a unit test nobody journals it; an instance whose run is over is of no use any more."""
    kept: list[Any] = []
    bodies: list[str] = []

    class Keep(Workflow[None]):
        def run(self) -> None:
            kept.append(self)
            self.ship("A")

        @step
        def ship(self, item: str) -> str:
            bodies.append(item)
            return item.lower()

    assert Keep().ship("B") == "b"
    driven(Keep)
    with pytest.raises(RunError, match="no activation"):
        kept[0].ship("C")
    assert bodies == ["B", "A"]


def test_another_thread_calls_no_step() -> None:
    """Numbering would depend on timing, and two bodies would share a transaction."""
    bodies: list[str] = []
    raised: list[BaseException] = []

    class Threads(Workflow[None]):
        def run(self) -> None:
            def work() -> None:
                try:
                    self.ship("A")
                except BaseException as error:
                    raised.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

        @step
        def ship(self, item: str) -> None:
            bodies.append(item)

    run = driven(Threads)
    assert bodies == []
    assert [type(error) for error in raised] == [RunError]
    assert run.story == []


def test_nothing_keeps_a_run_alive_that_was_left() -> None:
    """What is remembered about functions holds no instance, and with it no journal."""
    left: list[weakref.ref[Any]] = []

    class Pay(Workflow[None]):
        def run(self) -> int:
            left.append(weakref.ref(self))
            self.step("method", self.plain, 1)
            self.step("lambda", lambda number, me=self: number, 1)
            self.step("closure", lambda number: (self, number)[1], 1)
            return self.step("built in", max, 1, 2)

        def plain(self, number: int) -> int:
            return number

    for _ in range(3):
        assert driven(Pay).result == "2"
    gc.collect()
    assert [each() for each in left] == [None] * 3


# -- options --------------------------------------------------------------------------------------------------------


def test_skip_if_answers_none_and_is_not_asked_again() -> None:
    """A replay passes what was skipped, whatever the condition says by then."""
    asked: list[int] = []

    class Skipping(Workflow[None]):
        def run(self) -> Any:
            found = self.ship()
            self.pause()
            return [found]

        @step(skip_if="is_done")
        def ship(self) -> str:
            return "shipped"

        def is_done(self) -> bool:
            asked.append(1)
            return len(asked) == 1

    run = driven(Skipping)
    run.resume()
    run.drive()
    assert (run.result, run.story, len(asked)) == ("[null]", ["ship skipped"], 1)


def test_cancel_if_is_looked_at_before_each_step_that_runs() -> None:
    """And never on replay."""
    asked: list[int] = []

    class Canceled(Workflow[None]):
        @cancel_if
        def called_off(self) -> bool:
            asked.append(1)
            return "off" in self.context

        def run(self) -> None:
            self.first()
            self.sleep(HOUR)
            self.second()
            self.third()

        @step
        def first(self) -> None: ...
        @step
        def second(self) -> None:
            self.context["off"] = True

        @step
        def third(self) -> None: ...

    run = driven(Canceled)
    assert run.is_over_as(RunState.CANCELED, "called_off")
    assert run.story == ["first success", "second success", "third canceled"]
    assert len(asked) == 3


def test_a_step_of_another_queue_hands_the_run_over_and_replays() -> None:
    """To its queue and priority, and back for the one after it."""
    bodies: list[str] = []

    class Heavy(Workflow[None]):
        def run(self) -> str:
            return self.light() + self.heavy() + self.last()

        @step
        def light(self) -> str:
            bodies.append("light")
            return "a"

        @step(queue="heavy", priority=7)
        def heavy(self) -> str:
            bodies.append("heavy")
            return "b"

        @step
        def last(self) -> str:
            bodies.append("last")
            return "c"

    run = driven(Heavy)
    assert run.result == '"abc"'
    assert run.handed_to == [("heavy", 7), ("default", Heavy.priority)]
    assert (bodies, run.activations) == (["light", "heavy", "last"], 3)


def test_an_isolated_step_has_a_claim_of_its_own() -> None:
    """The run is handed back before it, unless it comes first."""

    class Alone(Workflow[None]):
        def run(self) -> None:
            self.alone()
            self.other()
            self.alone()
            self.other()

        @step(isolated=True)
        def alone(self) -> None: ...
        @step
        def other(self) -> None: ...

    run = driven(Alone)
    assert (run.state, run.activations) == (RunState.COMPLETED, 2)


def test_a_slice_of_time_ends_between_steps() -> None:
    """Others are due: the run is given back, and goes on where it was."""
    run = MemoryRun(shipping(), args={"calls": CALLS[:3]})
    run.should_yield = lambda: True
    run.drive()
    assert (run.state, run.activations, run.story) == (RunState.COMPLETED, 3, ["ship success"] * 3)


def test_the_version_is_that_of_the_start() -> None:
    """``run()`` and its steps take the branch that the run has begun with."""
    seen: list[int] = []

    class Versioned(Workflow[None]):
        version = 3

        def run(self) -> None:
            seen.append(self.version)
            self.look()

        @step
        def look(self) -> None:
            seen.append(self.version)

    run = MemoryRun(Versioned)
    run.version = 2
    run.drive()
    assert seen == [2, 2]


def test_time_and_chance_are_the_same_on_replay() -> None:
    """``self.now``, ``self.random`` and ``self.uuid4()``: drawn anew, and equal."""
    drawn: list[list[Any]] = []

    class Dice(Workflow[None]):
        def run(self) -> None:
            throw: list[Any] = [self.now, self.random.random(), self.uuid4()]
            drawn.append(throw)
            self.sleep(HOUR)
            throw += [self.now, self.random.randrange(1000), self.uuid4()]
            self.work()
            throw += [self.now, self.uuid4()]
            self.pause()
            throw += [self.now]

        @step
        def work(self) -> None:
            run.clock.travel(HOUR)

    run = MemoryRun(Dice)
    replayed(run).drive()
    run.clock.travel(3 * HOUR)
    run.resume()
    run.drive()
    assert run.state is RunState.COMPLETED
    last = drawn[-1]
    assert len(last) == 9
    assert all(each == last[: len(each)] for each in drawn)
    assert last[3] - last[0] == HOUR
    assert last[6] - last[3] == HOUR
    assert len({last[2], last[5], last[7]}) == 3


def test_two_runs_draw_different_numbers() -> None:
    """Chance belongs to the run."""
    drawn = []

    class Dice(Workflow[None]):
        def run(self) -> None:
            drawn.append((self.random.random(), self.uuid4()))

    driven(Dice)
    driven(Dice)
    assert len({number for number, _ in drawn}) == len({uuid for _, uuid in drawn}) == 2


def test_a_lost_attempt_is_made_again() -> None:
    """A body that a heartbeat has shown and whose worker died is lost, and no attempt is counted."""

    class Long(Workflow[None]):
        def run(self) -> str:
            return self.long()

        @step
        def long(self) -> str:
            assert run.shown is not None
            run.keep(run.shown)
            return "done"

    run = MemoryRun(Long)
    crash_at(run, 0, "before")
    run.drive()
    assert [(row.state, row.outcome, row.attempt) for row in run.journal] == [
        (ExecutionState.FAILED, Outcome.LOST, 1),
        (ExecutionState.COMPLETED, Outcome.SUCCESS, 1),
    ]
    assert run.result == '"done"'
