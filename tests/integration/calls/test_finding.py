"""Open runs by key, by hero or by arguments: found, signalled and woken without their ids."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from stepwell import (
    DefinitionError,
    RunAlreadyExists,
    RunError,
    RunNotFound,
    RunNotLive,
    StepFailed,
    Workflow,
    WrongArguments,
    step,
)
from stepwell.states import RunState
from stepwell.testing import Workbench
from tests.integration.town import Person, Town

AT_ONCE = timedelta()
OPEN: set[str] = set()
known: dict[str, Any] = {}


class Order(Workflow):
    """Identified by two of its arguments."""

    workflow_name = "finding.Order"
    unique_by = ("shop", "number")

    def run(self, shop: str, number: int = 1, note: str = "") -> Any:
        return self.wait_for_signal("review")


class Anonymous(Workflow):
    workflow_name = "finding.Anonymous"

    def run(self) -> Any:
        self.continue_if(lambda: "gate" in OPEN)
        return self.wait_for_signal("review")


class Once(Workflow):
    workflow_name = "finding.Once"
    unique_by = "number"
    unique_for = "ever"

    def run(self, number: int) -> int:
        return number


class Care(Workflow[Person]):
    """One open run for each person."""

    workflow_name = "finding.Care"

    def run(self) -> Any:
        return self.wait_for_signal("review")


class Letter(Workflow[Person]):
    """Several open runs for each person."""

    workflow_name = "finding.Letter"
    unique_by = ("hero", "subject")

    def run(self, subject: str) -> Any:
        return self.wait_for_signal("review")


class Export(Workflow):
    """Called by its account, and never the same."""

    workflow_name = "finding.Export"
    identified_by = "account"

    def run(self, account: str, page: int = 1) -> Any:
        return self.wait_for_signal("review")


class Import(Workflow):
    """Called by one argument, unique by another."""

    workflow_name = "finding.Import"
    identified_by = staticmethod(lambda account: ("import", account))
    unique_by = "file"

    def run(self, account: str, file: str) -> Any:
        return self.wait_for_signal("review")


@pytest.fixture(autouse=True)
def _close() -> None:
    OPEN.clear()


def test_a_run_is_found_by_the_arguments_that_identify_it(bench: Workbench) -> None:
    """Those with defaults may be left out; others do not matter."""
    first, second = Order.start("a", note="x"), Order.start("a", 2)
    assert Order.find(shop="a") == first
    assert Order.find(shop="a", number=2, note="whatever") == second
    assert Order.signal("review", "ok", shop="a", number=2)
    bench.drain()
    assert second.result(AT_ONCE) == "ok"
    assert first.state is RunState.AWAITING


def test_a_run_is_found_by_its_key(bench: Workbench) -> None:
    """What ``with_options(key=)`` has named, the same reaches."""
    run = Anonymous.with_options(key=("a", 7)).start()
    bench.drain()
    assert Anonymous.find(key=("a", 7)) == run
    OPEN.add("gate")
    assert Anonymous.wake(key=("a", 7))
    bench.drain()
    assert Anonymous.with_options(key=("a", 7)).signal("review", "ok", idempotency_key="1")
    assert Anonymous.signal("review", "again", key=("a", 7), idempotency_key="1") is False
    bench.drain()
    assert run.result(AT_ONCE) == "ok"


def test_a_run_is_found_by_its_hero(town: Town) -> None:
    """By the record that it is about, alone or with further arguments."""
    ada, bob = town.person("Ada"), town.person("Bob")
    with Workbench(town.well, raise_errors=False) as bench:
        run, other = Care.start(ada), Care.start(bob)
        letter = Letter.start(ada, "hello")
        assert Care.find(hero=ada) == run
        assert Letter.find(hero=ada) == letter
        assert Letter.find(hero=ada, subject="hello") == letter
        Care.signal("review", "ok", hero=ada)
        bench.drain()
        assert run.result(AT_ONCE) == "ok"
        assert other.state is RunState.AWAITING
        Letter.start(ada, "again")
        with pytest.raises(RunError, match="several open runs of Letter are about hero="):
            Letter.find(hero=ada)


def test_a_run_that_is_called_something_is_found_by_that(bench: Workbench) -> None:
    """``identified_by`` names runs without making them unique."""
    run = Export.start("a")
    assert run.info().key == '"a"'
    assert run.info().active_key is None
    assert Export.find(account="a") == run
    assert Export.find(account="a", page=7) == run
    Export.start("a")
    with pytest.raises(RunError, match="several open runs of Export are about account='a'"):
        Export.find(account="a")


def test_names_and_uniqueness_are_separate(bench: Workbench) -> None:
    """The one is what a run is called by, the other is what there is once."""
    run = Import.start("a", "x")
    assert run.info().key == '["import","a"]' or "import" in (run.info().key or "")
    Import.start("a", "y")
    with pytest.raises(RunAlreadyExists):
        Import.start("b", "x")
    assert Import.find(file="x") == run
    with pytest.raises(RunError, match="several open runs"):
        Import.find(account="a")


def test_a_name_must_be_of_an_argument() -> None:
    """As ``unique_by``, it is looked at when the class is created."""
    with pytest.raises(DefinitionError, match="identified_by names 'stranger', which is no parameter of run"):

        class Wrong(Workflow):
            identified_by = "stranger"

            def run(self, account: str) -> None: ...


def test_that_nobody_is_there_is_said(bench: Workbench) -> None:
    """An error by default; with ``missing="ignore"`` an answer."""
    with pytest.raises(RunNotFound, match="no run of Order with shop='a' is open"):
        Order.signal("review", shop="a")
    assert Order.signal("review", shop="a", missing="ignore") is False
    assert Order.wake(shop="a", missing="ignore") is False
    assert Order.find(shop="a", missing="ignore") is None
    run = Order.start("a")
    run.cancel()
    with pytest.raises(RunNotFound):
        Order.find(shop="a")


def test_paused_and_failed_runs_are_open(bench: Workbench) -> None:
    """A signal is kept for them."""
    run = Order.start("a")
    bench.drain()
    run.pause()
    Order.signal("review", "ok", shop="a")
    run.resume()
    bench.drain()
    assert run.result(AT_ONCE) == "ok"


def test_a_run_for_life_that_is_over_is_not_live(bench: Workbench) -> None:
    """Its identity is taken for good, and nobody reads what is sent there."""
    Once.start(1)
    bench.drain()
    with pytest.raises(RunNotLive, match="is completed: it is over"):
        Once.signal("review", number=1)
    assert Once.signal("review", number=1, missing="ignore") is False


@pytest.mark.parametrize(
    ("cls", "said", "told"),
    [
        (Order, {}, "say which run is meant, by key="),
        (Order, {"number": 1}, "is unique by 'shop'"),
        (Order, {"stranger": 1}, r"run\(\) takes no 'stranger'"),
        (Order, {"key": 1, "shop": "a"}, "key= says it all; leave shop out"),
        (Order, {"shop": "a", "missing": "perhaps"}, "missing must be"),
        (Anonymous, {"number": 1}, r"run\(\) takes no 'number'"),
    ],
)
def test_what_identifies_no_run_is_refused(
    bench: Workbench, cls: type[Any], said: dict[str, Any], told: str
) -> None:
    """A slip is an error, also where a missing run is none."""
    with pytest.raises(WrongArguments, match=told):
        cls.find(**{"missing": "ignore", **said})


def test_a_signal_joins_the_callers_transaction(bench: Workbench) -> None:
    """The run that was started in it is found there, and the signal is sent if it commits."""
    engine = bench.engine.database.engine
    for commits in (False, True):
        with Session(engine) as session:
            shop = Order.with_options(session=session)
            shop.start("a")
            assert shop.signal("review", "ok", shop="a")
            if commits:
                session.commit()
    bench.drain()
    assert [row.state for row in bench.engine.runs(Order).infos()] == ["completed"]


class Sender(Workflow):
    """Signals another run, where it may and where it may not."""

    workflow_name = "finding.Sender"

    def run(self, is_in_step: bool) -> Any:
        if is_in_step:
            try:
                return self.send()
            except StepFailed as error:
                return error.message
        told = []
        for act in (
            lambda: Order.signal("review", "ok", shop="a"),
            lambda: Order.find(shop="a"),
            lambda: known["run"].result(),
            lambda: known["run"].cancel(),
            lambda: known["run"].state,
            lambda: Order.start("b"),
        ):
            try:
                act()
            except RunError as error:
                told.append(str(error))
        return told

    @step
    def send(self) -> bool:
        return Order.signal("review", "ok", shop="a")


def test_a_step_signals_by_identity(bench: Workbench) -> None:
    """With the step's own transaction: exactly once with it."""
    run = Order.start("a")
    Sender.start(is_in_step=True)
    bench.drain()
    bench.drain()
    assert run.result(AT_ONCE) == "ok"


def test_the_body_of_run_speaks_to_no_other_run(bench: Workbench) -> None:
    """Each replay would do it again; the message says where it belongs."""
    known["run"] = Order.start("a")
    run = Sender.start(is_in_step=False)
    bench.drain()
    told = run.result(AT_ONCE)
    assert len(told) == 6
    assert all("the body of run()" in text for text in told), told


def test_the_names_are_kept_for_every_workflow() -> None:
    """A step of one of these names would hide it."""
    with pytest.raises(DefinitionError, match="'signal' is a name that every workflow keeps for itself"):

        class Wrong(Workflow):
            @step
            def signal(self) -> None: ...  # type: ignore[override]  # that is what is refused
