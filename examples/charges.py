"""Charges: who is tried again, how often and how soon; by class, by step, by error and by call."""

from __future__ import annotations

from datetime import timedelta

from examples.outside import Service
from stepwell import Backoff, Fail, Retry, StepFailed, Workflow, step

bank = Service()


class NetworkError(Exception): ...


class RateLimited(Exception): ...


class CardDeclined(Exception): ...


class CardCharge(Workflow):
    """The policy that names the error decides, and has a delay of its own.

    Each counts its attempts; the smallest number in a list is also the limit for all of them together.
    """

    policies = [Retry(attempts=5, backoff=Backoff(timedelta(seconds=2), cap=timedelta(seconds=60)))]

    def run(self, amount: int) -> str:
        try:
            receipt = self.charge(amount)
        except StepFailed as failure:
            if failure.caused_by(CardDeclined):
                return self.ask_for_another_card()
            raise
        self.wait_until(
            self.is_settled,
            every=timedelta(hours=1),
            # Without this an error in the condition fails the run: the class's Retry is not for conditions.
            on_exception=Retry(NetworkError),
        )
        self.record.with_options(on_exception=Retry(NetworkError, attempts=8))(receipt)
        return receipt

    @step(
        on_exception=[
            Retry(NetworkError, attempts=10),
            Retry(RateLimited, attempts=10, backoff=Backoff(timedelta(seconds=5))),
            Fail(CardDeclined),
        ]
    )
    def charge(self, amount: int) -> str:
        return bank("charge", amount, self.idempotency_key)

    @step
    def ask_for_another_card(self) -> str:
        return bank("ask")

    @step
    def record(self, receipt: str) -> None:
        bank("record", receipt)

    def is_settled(self) -> bool:
        return bank.knows("settled")
