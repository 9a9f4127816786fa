"""A payout: withdraw, wait for the bank's webhook, credit. A duplicate is an error, and trouble waits for a person."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from examples.outside import Service
from examples.records import Payout
from stepwell import Pause, Signal, WaitTimedOut, Workflow, step

bank = Service()


class PayoutRun(Workflow[Payout]):
    """``on_conflict`` stays "reject": a second start raises ``RunAlreadyExists``."""

    @step
    def withdraw(self) -> None:
        bank("withdraw", self.hero.amount, self.idempotency_key)
        self.hero.state = "withdrawn"

    @step(awaits=Signal("payment", timeout=timedelta(days=3)), on_exception=Pause(WaitTimedOut))
    def check(self, payment: dict[str, Any]) -> None:
        """Overdue, the run is paused, and waits for three more days once it is resumed."""
        if payment["status"] != "paid":
            self.pause(f"payment {payment['status']}")  # after resume() the step reads the same payment again
        self.context["amount"] = payment["amount"]

    @step
    def credit(self) -> None:
        bank("credit", self.context["amount"], self.idempotency_key)
        self.hero.state = "credited"


def on_webhook(session: Session, payout: Payout, event: dict[str, Any]) -> bool:
    """The webhook finds the run by the payout alone. Delivered twice it counts once, and for no run not at all."""
    sender = PayoutRun.with_options(session=session)
    return sender.signal("payment", event, hero=payout, idempotency_key=event["id"], missing="ignore")
