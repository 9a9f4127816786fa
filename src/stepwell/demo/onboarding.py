"""The workflow of the demo: a customer's first days."""

from __future__ import annotations

from datetime import timedelta

from stepwell import Backoff, Retry, Workflow, step
from stepwell.demo import mail
from stepwell.demo.records import Customer, LedgerEntry

DAY = timedelta(seconds=0.5)  # nobody wants to wait for a demo
BONUS = 20


class Onboarding(Workflow[Customer]):
    """Steps run from top to bottom; one that is recorded stays done, whatever happens to the worker."""

    policies = [Retry(mail.GatewayDown, attempts=12, backoff=Backoff(timedelta(seconds=0.2), cap=DAY))]

    @step
    def open_account(self) -> None:
        self.hero.is_active = True
        self.enter("open_account")

    @step
    def send_welcome(self) -> None:
        mail.send(self.hero.email, f"Welcome, {self.hero.name}!", key=self.idempotency_key)
        self.enter("send_welcome")

    @step(wait=3 * DAY)
    def credit_bonus(self) -> None:
        self.hero.credit += BONUS
        self.enter("credit_bonus")

    @step(wait=4 * DAY)
    def ask_how_it_goes(self) -> None:
        mail.send(self.hero.email, "How is it going?", key=self.idempotency_key)
        self.enter("ask_how_it_goes")

    @step
    def complete(self) -> None:
        self.enter("complete")

    def enter(self, step: str) -> None:
        """What is written through self.session commits together with the step: both, or neither."""
        self.session.add(LedgerEntry(customer_id=self.hero.id, step=step))
