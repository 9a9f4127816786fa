"""Things that recur: until something is so, at fixed instants, and what happens when they fail or come too late."""

from __future__ import annotations

from datetime import datetime, timedelta

from examples.outside import Service
from stepwell import Retry, Workflow, step

mail = Service()
payments = Service()
reports = Service()


class Notifications(Workflow):
    """A reminder that may fail, and payments that must not."""

    def run(self, user: str) -> None:
        self.repeat(self.remind, every=timedelta(days=3), until=self.is_onboarded)
        self.repeat(self.process_payments, every=timedelta(hours=1), until=self.all_paid, on_error="fail")

    @step
    def remind(self, scheduled_at: datetime) -> None:
        """A function with a parameter is given the instant at which it was to run; it may run a little later."""
        mail("remind", self.args["user"], scheduled_at)

    @step(on_exception=Retry(ConnectionError))
    def process_payments(self) -> None:
        payments("process", self.args["user"])

    def is_onboarded(self) -> bool:
        return mail.knows("onboarded", self.args["user"])

    def all_paid(self) -> bool:
        return payments.knows("paid", self.args["user"])


class DailyReports(Workflow):
    """At the same time each day, for the day that is meant, however late it is."""

    def run(self, start_at: datetime) -> int:
        return self.repeat(
            self.report,
            every=timedelta(days=1),
            start_at=start_at,
            timeout=timedelta(hours=2),  # what could not run within two hours, after an outage, is left out
            until=self.is_over,
            on_error="fail",
            name="daily_reports",
        )

    @step(on_exception=Retry(attempts=5))
    def report(self, scheduled_at: datetime) -> None:
        reports("report", scheduled_at.date().isoformat())

    def is_over(self) -> bool:
        return reports.knows("over")
