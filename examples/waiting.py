"""Three ways to wait: for a while, for a condition that is polled, and for one that is looked at when told."""

from __future__ import annotations

from datetime import timedelta

from examples.outside import Service
from stepwell import Backoff, Retry, Workflow, step

mail = Service()
api = Service()


class UserOnboarding(Workflow):
    """For a while: the instant is journaled, and no thread sleeps."""

    def run(self, address: str) -> None:
        self.send(address, "welcome")
        self.sleep(timedelta(hours=1), name="welcome_delay")
        self.send(address, "tutorial")
        self.sleep(timedelta(days=2), name="tutorial_followup")
        self.send(address, "feedback")

    @step(key_by="what")
    def send(self, address: str, what: str) -> None:
        mail(what, address)


class Migration(Workflow):
    """For a condition that nobody announces: it is polled, and errors of its own are named."""

    def run(self) -> str:
        ready = self.wait_until(
            self.is_ready,
            timeout=timedelta(minutes=30),
            every=timedelta(minutes=2),
            default=False,
            on_exception=Retry(TimeoutError, ConnectionError, backoff=Backoff(timedelta(seconds=1))),
        )
        return self.migrate() if ready else "not today"

    def is_ready(self) -> bool:
        return api.knows("healthy")

    @step
    def migrate(self) -> str:
        return api("migrate")


class OnlinePayment(Workflow):
    """For a condition that a webhook makes true: nothing happens until ``run.wake()``."""

    unique_by = "order_id"

    def run(self, order_id: str) -> None:
        self.request()
        self.continue_if(self.is_confirmed, name="payment_gateway")
        self.fulfill()
        self.continue_if(self.is_confirmed, name="inventory_system")  # the same condition, another gate
        self.close()

    def is_confirmed(self) -> bool:
        return api.knows("confirmed", self.args["order_id"])

    @step
    def request(self) -> None:
        api("request", self.args["order_id"])

    @step
    def fulfill(self) -> None:
        api("fulfill", self.args["order_id"])
        api.facts.clear()

    @step
    def close(self) -> None:
        api("close", self.args["order_id"])


def on_webhook(order_id: str) -> None:
    """What has come true is written down first; then the run looks. For a run that is over, that is nothing."""
    api.learn("confirmed", order_id)
    OnlinePayment.wake(order_id=order_id, missing="ignore")
