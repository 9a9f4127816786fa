"""Thirty days of grace before an account is deleted: asked for and called off together with the account's state."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy.orm import Session

from examples.records import Account
from stepwell import Run, Stepwell, Workflow, cancel_if, step


class AccountClosing(Workflow[Account]):
    @cancel_if
    def was_reopened(self) -> bool:
        """Looked at before the step, in case that the run is still there when the account is open again."""
        return self.hero.state == "open"

    @step(wait=timedelta(days=30))
    def delete(self) -> None:
        self.hero.state = "deleted"


def close(session: Session, account: Account) -> Run:
    """The run is there if and only if the account is closing: one transaction."""
    account.state = "closing"
    return AccountClosing.with_options(session=session).start(account)


def reopen(session: Session, well: Stepwell, account: Account) -> None:
    account.state = "open"
    session.commit()
    for run in well.runs(AccountClosing).live().for_hero(account):
        run.cancel("reopened")
