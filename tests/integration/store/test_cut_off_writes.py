"""Writes at which the database ends the connection each time, and takes others: they fail, and hold up nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from stepwell import Run, RunFailed, Stepwell, Worker, Workflow, step
from stepwell.definition.starting import set_default_engine
from stepwell.engine.leases import Lease
from stepwell.engine.step_scope import StepScope
from stepwell.engine.store_journal import Place, StoreJournal
from stepwell.entries import JournalEntry, Verdict
from stepwell.execution.suspension import LeaseLost
from stepwell.states import RunState
from stepwell.store.database import AnswerLost
from tests.integration.store.rig import LEASE, Rig, done, ledger, quiet_place

LARGE = 5_000
MIB = 1024 * 1024
SIZES = {"large": LARGE}
BODIES: list[str] = []


class Declares(Workflow):
    """Its step has a large result."""

    workflow_name = "cut_off.Declares"

    @step
    def first(self) -> None: ...

    @step
    def large(self) -> str:
        BODIES.append("large")
        return "x" * SIZES["large"]


class Calls(Workflow):
    """The same, called from ``run()``."""

    workflow_name = "cut_off.Calls"

    def run(self) -> int:
        self.first()
        return len(self.large())

    @step
    def first(self) -> None: ...

    @step
    def large(self) -> str:
        BODIES.append("large")
        return "x" * SIZES["large"]


class Returns(Workflow):
    """The result is that of ``run()``."""

    workflow_name = "cut_off.Returns"

    def run(self) -> str:
        self.first()
        return "x" * SIZES["large"]

    @step
    def first(self) -> None: ...


class Inserts(Workflow):
    """It has written through its session, too."""

    workflow_name = "cut_off.Inserts"

    @step
    def first(self) -> None: ...

    @step
    def large(self) -> str:
        BODIES.append("large")
        self.session.execute(insert(ledger), {"n": len(BODIES)})
        return "x" * SIZES["large"]


class InsertsInRun(Workflow):
    """The same, called from ``run()``."""

    workflow_name = "cut_off.InsertsInRun"

    def run(self) -> int:
        self.first()
        return len(self.large())

    @step
    def first(self) -> None: ...

    @step
    def large(self) -> str:
        BODIES.append("large")
        self.session.execute(insert(ledger), {"n": len(BODIES)})
        return "x" * SIZES["large"]


class Small(Workflow):
    """Another run of the same worker."""

    workflow_name = "cut_off.Small"
    unique_by = None

    def run(self) -> str:
        return self.small()

    @step
    def small(self) -> str:
        return "small"


@pytest.fixture(autouse=True)
def _nothing_yet() -> Iterator[None]:
    BODIES.clear()
    SIZES["large"] = LARGE
    yield
    set_default_engine(None)


@pytest.fixture
def well(shared_url: str) -> Iterator[Stepwell]:
    well = Stepwell(shared_url)
    yield well
    well.close()


@dataclass
class Cutter:
    """Ends the connection at each write of something large.

    Attributes:
        most: So often; then they are let through.
        tries: How often such a write was tried.
    """

    most: int = 1000
    tries: int = 0
    tokens: set[Any] = field(default_factory=set)

    def look(self, entry: JournalEntry) -> None:
        results = [row.result or "" for row in entry.executions]
        if entry.settlement is not None:
            results.append(entry.settlement.result or "")
        if max(map(len, results), default=0) < LARGE or self.tries >= self.most:
            return
        self.tries += 1
        self.tokens.add(entry.token)
        raise AnswerLost("the server has gone away")


def cutter_on(well: Stepwell, monkeypatch: pytest.MonkeyPatch) -> Cutter:
    """At every write that a step makes, by itself or with what it wrote through its session."""
    cutter = Cutter()
    write, commit = well.database.write, StepScope.commit

    def cut_write(entry: JournalEntry) -> Verdict:
        cutter.look(entry)
        return write(entry)

    def cut_commit(scope: StepScope, entry: JournalEntry) -> Verdict:
        cutter.look(entry)
        return commit(scope, entry)

    monkeypatch.setattr(well.database, "write", cut_write)
    monkeypatch.setattr(StepScope, "commit", cut_commit)
    return cutter


@pytest.fixture
def cutter(well: Stepwell, monkeypatch: pytest.MonkeyPatch) -> Cutter:
    return cutter_on(well, monkeypatch)


@pytest.fixture
def server_well(shared_server_url: str) -> Iterator[Stepwell]:
    """An engine where there is a connection to be ended."""
    well = Stepwell(shared_server_url)
    yield well
    well.close()


@pytest.fixture
def server_cutter(server_well: Stepwell, monkeypatch: pytest.MonkeyPatch) -> Cutter:
    return cutter_on(server_well, monkeypatch)


def failed_with(run: Run, seconds: float = 20.0) -> str:
    """The message with which the run fails before that."""
    with pytest.raises(RunFailed) as failed:
        run.result(timedelta(seconds=seconds))
    # In the answer to a commit MariaDB may say by itself what is wrong.
    assert failed.value.error_class == "stepwell.errors.StoreError" or "1153" in str(failed.value)
    return str(failed.value.error_message)


def in_ledger(well: Stepwell) -> int:
    with well.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(ledger)).scalar_one())


# -- by itself -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Declares, Calls, Returns])
def test_it_fails_the_run_and_says_what_may_be_wrong(
    cls: Any, well: Stepwell, cutter: Cutter, caplog: pytest.LogCaptureFixture
) -> None:
    """After a few tries, each under a token of its own; the worker's other runs go on."""
    run = cls.start()
    others = [Small.start() for _ in range(5)]
    with Worker(well, threads=2):
        assert [other.result(timedelta(seconds=10)) for other in others] == ["small"] * 5
        message = failed_with(run)
        assert Small.start().result(timedelta(seconds=10)) == "small"
    assert message.startswith(
        "the database ends the connection at this write, again and again, and takes others: the server has gone away."
    )
    assert message.endswith(
        "Perhaps it is larger than the server allows (max_allowed_packet on MariaDB): store less, or raise that limit."
    )
    assert cutter.tries == len(cutter.tokens) == 6
    assert len(BODIES) == (cls is not Returns), "a body that has done its work is not run again for that"
    assert "max_allowed_packet" in run.explain()
    told = [record for record in caplog.records if getattr(record, "run_id", None) == str(run.id)]
    assert any("max_allowed_packet" in record.getMessage() for record in told)


def test_one_that_arrives_after_all_is_written(well: Stepwell, cutter: Cutter) -> None:
    """A few broken connections are no reason to fail."""
    cutter.most = 5
    run = Calls.start()
    with Worker(well, threads=1):
        assert run.result(timedelta(seconds=20)) == LARGE
    assert (cutter.tries, len(BODIES)) == (5, 1)


def test_it_can_be_resumed(well: Stepwell, cutter: Cutter) -> None:
    """Once the limit is raised."""
    run = Calls.start()
    with Worker(well, threads=1):
        failed_with(run)
        cutter.most = 0
        run.resume()
        assert run.result(timedelta(seconds=20)) == LARGE


@pytest.mark.parametrize("tries", [1, 3])
def test_a_worker_that_stops_gives_up(tries: int, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tries no more once its grace is over; nothing is written, and the run is another's to take."""
    well = Stepwell(rig.url, clock=rig.clock, default=False)
    held = rig.hold()
    lease = Lease(held.id, held.token, rig.clock.monotonic() + LEASE.total_seconds())
    tried: list[JournalEntry] = []

    def cut(entry: JournalEntry) -> Verdict:
        tried.append(entry)
        raise AnswerLost("gone")

    monkeypatch.setattr(well.database, "write", cut)
    place: Place = replace(quiet_place(), is_abandoned=lambda: len(tried) >= tries)
    journal = StoreJournal(well, lease, place, (), None, hero_is_optional=True)
    with pytest.raises(LeaseLost):
        journal.write([done(1)], current_step="next")
    well.close()
    assert (len(tried), rig.journal(held.id)) == (tries, [])
    assert rig.row(held.id).state == "running"


# -- with a step's own writes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Inserts, InsertsInRun])
def test_a_step_whose_commit_is_cut_off_is_run_a_few_times(
    cls: Any, server_well: Stepwell, server_cutter: Cutter
) -> None:
    """Nothing of it is there, whatever it wrote; the last time it fails, as a plain one does."""
    run = cls.start()
    with Worker(server_well, threads=1):
        assert "max_allowed_packet" in failed_with(run)
        assert Small.start().result(timedelta(seconds=10)) == "small"
    assert len(BODIES) == server_cutter.tries == 6
    assert in_ledger(server_well) == 0
    assert [row.outcome for row in run.steps if row.name == "large"] == ["failed"]


def test_a_step_whose_commit_arrives_after_all_is_there_once(
    server_well: Stepwell, server_cutter: Cutter
) -> None:
    """The bodies before it have left nothing."""
    server_cutter.most = 5
    run = InsertsInRun.start()
    with Worker(server_well, threads=1):
        assert run.result(timedelta(seconds=20)) == LARGE
    assert (len(BODIES), in_ledger(server_well)) == (6, 1)


# -- the server's own limit ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Calls, Returns, InsertsInRun])
def test_a_result_that_mariadb_does_not_take(cls: Any, mariadb_url: str) -> None:
    """Larger than ``max_allowed_packet``: the run fails soon and says so, and its worker goes on."""
    well = Stepwell(mariadb_url, result_limit=64 * MIB)
    with well.database.begin() as connection:
        ledger.create(connection)
        limit = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
    SIZES["large"] = min(limit + MIB, 48 * MIB)
    run = cls.start()
    with Worker(well, threads=2):
        assert "max_allowed_packet" in failed_with(run, seconds=100)
        assert Small.start().result(timedelta(seconds=20)) == "small"
    assert run.state is RunState.FAILED
    assert in_ledger(well) == 0
    assert not json.loads(run.info().result or "null")
    well.close()
