"""When a run has failed: what it keeps, and how one run or all of them go on from the step that failed."""

from __future__ import annotations

from datetime import timedelta

from examples.outside import Service
from stepwell import Run, Stepwell, Workflow, step

bank = Service()


class Rollover(Workflow):
    unique_by = "contract"

    def run(self, contract: str) -> str:
        self.collect()
        return self.reinvest()

    @step
    def collect(self) -> None:
        bank("collect", self.args["contract"])

    @step
    def reinvest(self) -> str:
        return bank("reinvest", self.args["contract"])


def hanging(well: Stepwell) -> list[Run]:
    """Bodies that take longer than they should. Their leases are renewed: these workers are alive."""
    return well.runs(Rollover).in_state("running").stuck_for(timedelta(minutes=30)).all()


def retry_everything(well: Stepwell) -> int:
    """After an outage: each failed run goes on; what was done stays done. Answers how many there were."""
    return well.runs(Rollover).in_state("failed").resume(by="on-call")
