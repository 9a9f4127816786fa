"""What a run says about itself."""

from __future__ import annotations

from datetime import timedelta

from stepwell import Poll, Signal, Workflow, step
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
