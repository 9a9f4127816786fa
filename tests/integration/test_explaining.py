"""What a run says about itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import update

from stepwell import Poll, Run, Signal, Workflow, step
from stepwell.requests import StopRequest
from stepwell.store.schema import runs
from stepwell.testing import Workbench


class ExplainedReview(Workflow):
    @step(awaits=Signal("verdict"))
    def decide(self, verdict: str) -> None: ...

    @step(gate=lambda self: "open" in self.context)
    def enter(self) -> None: ...


class ExplainedPayment(Workflow):
    @step(wait_until=Poll(lambda self: False, every=timedelta(minutes=5)))
    def settle(self) -> None: ...


def test_a_run_tells_what_it_waits_for_and_who_can_release_it() -> None:
    """The signal by its name, the gate with the verb that opens it, the poll with its next look."""
    with Workbench() as bench:
        run, payment = ExplainedReview.start(), ExplainedPayment.start()
        bench.drain()
        assert "for the signal 'verdict': run.signal('verdict') sends it" in run.explain()
        assert "(the next look at its condition)" in payment.explain()
        run.signal("verdict", "yes")
        bench.drain()
        assert "for its gate to open: run.wake() makes it look again" in run.explain()
        run.cancel("enough")
        bench.travel(timedelta(hours=2))
        assert "was canceled 2 hours ago (enough)" in run.explain()


class ExplainedErrand(Workflow):
    @step
    def go(self) -> None:
        ACTS.pop()(self)

    @step(wait=timedelta(days=1))
    def come_back(self) -> None: ...


ACTS: list[Any] = []


def test_a_run_tells_who_stopped_it() -> None:
    """The person that the journal names; a run that stopped by itself, or is stopped by nobody known, names nobody."""
    with Workbench() as bench:
        hers, nobodys = start_errand(lambda self: None), start_errand(lambda self: None)
        bench.drain()
        hers.pause("lunch", by="ann")
        nobodys.pause("lunch")
        assert "was paused by ann at step 'come_back' since 0 s (lunch)" in hers.explain()
        assert "was paused at step 'come_back' since 0 s (lunch)" in nobodys.explain()
        hers.resume(by="ann")
        bench.drain()
        hers.cancel("enough", by="bob")
        assert "was canceled by bob 0 s ago (enough)" in hers.explain()
        itself = start_errand(lambda self: self.pause("by itself"))
        bench.drain()
        assert "was paused at step 'go' since 0 s (by itself)" in itself.explain()


def test_a_run_tells_what_is_asked_of_it() -> None:
    """Who asks, when, and why, while no worker has come to it; on a run that was over by then, that it was too late."""
    with Workbench() as bench:
        told: list[str] = []

        def ask(self: Any) -> None:
            run = bench.engine.run(self.run_id)
            run.pause("lunch", by="ann")
            told.append(run.explain())

        start_errand(ask)
        bench.drain()
        assert told[0].endswith(
            ". ann asked to pause it 0 s ago (lunch); a worker does that at the next step boundary."
        )

        run = start_errand(lambda self: None)
        for state in ("ready", "completed"):
            with bench.engine.database.begin() as connection:
                broken = update(runs).where(runs.c.id == run.id)
                connection.execute(broken.values(stop_request="{broken", state=state))
            assert ("A stop request is on it that cannot be read." in run.explain()) is (state == "ready")
        late = StopRequest("cancel", "enough", None, bench.now - timedelta(hours=2)).text()
        with bench.engine.database.begin() as connection:
            connection.execute(update(runs).where(runs.c.id == run.id).values(stop_request=late))
        assert run.explain().endswith(
            " Somebody asked to cancel it 2 hours ago (enough), which was too late."
        )


def start_errand(act: Any) -> Run:
    ACTS.insert(0, act)
    return ExplainedErrand.start()
