"""Several people decide, in whatever order: one signal for each of them; who stays silent stops the run."""

from __future__ import annotations

from datetime import timedelta

from examples.outside import Service
from examples.records import TimeOff
from stepwell import WaitTimedOut, Workflow, step

mail = Service()


class TimeOffApproval(Workflow[TimeOff]):
    def run(self, approvers: list[str]) -> str:
        self.notify(approvers)
        for approver in approvers:
            if self.decision_of(approver) == "rejected":
                return self.settle("rejected")
        return self.settle("approved")

    def decision_of(self, approver: str) -> str:
        """Part of run(): waits for one approver. What others send in the meantime is kept."""
        while True:
            try:
                decision: str = self.wait_for_signal(f"decision_{approver}", timeout=timedelta(days=3))
            except WaitTimedOut:
                self.pause(f"{approver} is silent")  # a person looks after it; then there are three more days
            else:
                return decision

    @step
    def notify(self, approvers: list[str]) -> None:
        for approver in approvers:
            mail("please decide", approver)

    @step
    def settle(self, verdict: str) -> str:
        self.hero.state = verdict
        return verdict
