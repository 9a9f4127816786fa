"""Orders: conditions, a branch and a loop over what is known only at run time, and a reminder that recurs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from examples.outside import Service
from stepwell import Workflow, step

shop = Service()


class PaidOrder(Workflow):
    """One thing after the other."""

    unique_by = "order_id"

    def run(self, order_id: str) -> None:
        self.context["execution_id"] = str(self.uuid4())  # the same whenever run() is replayed
        self.wait_until(self.is_paid, every=timedelta(minutes=15), timeout=timedelta(hours=1))
        self.sleep(timedelta(minutes=1), name="fraud_check")
        self.process()
        self.complete()

    def is_paid(self) -> bool:
        return shop.knows("paid", self.args["order_id"])

    @step
    def process(self) -> None:
        shop("process", self.args["order_id"], self.context["execution_id"])
        # A step may ask for the time, other than run(): what it records is not computed again.
        self.context["processed_at"] = datetime.now(UTC).isoformat()

    @step
    def complete(self) -> None:
        shop("complete", self.args["order_id"], self.context["execution_id"])
        self.context["completed_at"] = datetime.now(UTC).isoformat()


class OrderProcessing(Workflow):
    """What no fixed list of steps can say: the way depends on the order."""

    unique_by = "order_id"

    def run(self, order_id: str) -> str:
        self.wait_until(self.is_paid, every=timedelta(minutes=15), timeout=timedelta(hours=48))
        order = self.validate(order_id)
        if order["needs_compliance_check"]:
            self.review_compliance(order_id)
            self.wait_until(self.is_compliant, every=timedelta(hours=1), timeout=timedelta(hours=48))
        for item in order["items"]:
            self.fulfill(item)
        self.repeat(self.remind, every=timedelta(days=3), until=self.is_delivered)
        return self.complete(order_id)

    def is_paid(self) -> bool:
        return shop.knows("paid", self.args["order_id"])

    def is_compliant(self) -> bool:
        return shop.knows("compliant", self.args["order_id"])

    def is_delivered(self) -> bool:
        return shop.knows("delivered", self.args["order_id"])

    @step
    def validate(self, order_id: str) -> dict[str, Any]:
        shop("validate", order_id)
        return {"items": ["book", "pen"], "needs_compliance_check": order_id.startswith("big")}

    @step
    def review_compliance(self, order_id: str) -> None:
        shop("review", order_id)

    @step(key_by="item")
    def fulfill(self, item: str) -> None:
        shop("fulfill", item)

    @step
    def remind(self) -> None:
        shop("remind", self.args["order_id"])

    @step
    def complete(self, order_id: str) -> str:
        return shop("complete", order_id)
