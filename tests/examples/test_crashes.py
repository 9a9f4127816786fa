"""Wherever a worker dies in an example, it comes to the end that it would have come to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from examples import (
    agent,
    charges,
    csv_imports,
    files,
    imports,
    licenses,
    memory,
    orders,
    payouts,
    pipeline,
    reminders,
    reviews,
    time_off,
    waiting,
)
from examples.outside import Service
from examples.records import Account, License, Payout, TimeOff
from stepwell import Run
from stepwell.testing import CrashPoint, Workbench

pytestmark = pytest.mark.slow

Beginning = Callable[[Workbench, Session], Run]


def a_record(session: Session, record: Any) -> Any:
    session.add(record)
    session.commit()
    return record


def a_small_order(bench: Workbench, session: Session) -> Run:
    orders.shop.learn("paid", "o")
    return orders.PaidOrder.start(order_id="o")


def a_big_order(bench: Workbench, session: Session) -> Run:
    for fact in ("paid", "compliant", "delivered"):
        orders.shop.learn(fact, "big")
    return orders.OrderProcessing.start(order_id="big")


def an_upload(bench: Workbench, session: Session) -> Run:
    return files.FileProcessing.start(file_id="f")


def a_charge(bench: Workbench, session: Session) -> Run:
    charges.bank.learn("settled")
    return charges.CardCharge.start(amount=1)


def an_onboarding(bench: Workbench, session: Session) -> Run:
    return waiting.UserOnboarding.start(address="ada")


def a_migration(bench: Workbench, session: Session) -> Run:
    waiting.api.learn("healthy")
    return waiting.Migration.start()


def reports(bench: Workbench, session: Session) -> Run:
    reminders.reports.learn("over")
    return reminders.DailyReports.start(start_at=bench.now + timedelta(days=1))


def totals(bench: Workbench, session: Session) -> Run:
    return memory.Totals.start(user="ada")


def a_confirmed_import(bench: Workbench, session: Session) -> Run:
    run = imports.BulkImport.start(import_id="i")
    run.signal("confirmation", True)
    return run


def a_review(bench: Workbench, session: Session) -> Run:
    return reviews.PostReview.start(post="well?")


def an_approval(bench: Workbench, session: Session) -> Run:
    run = time_off.TimeOffApproval.start(a_record(session, TimeOff()), approvers=["ann", "bob"])
    run.signal("decision_bob", "approved")
    run.signal("decision_ann", "approved")
    return run


def a_conversation(bench: Workbench, session: Session) -> Run:
    agent.SCRIPT[:] = [{"tool": "search"}, {"tool": "read"}, {"answer": "done"}]
    return agent.Agent.start(question="why")


def a_publication(bench: Workbench, session: Session) -> Run:
    return pipeline.Publication.start(document="d")


def a_license(bench: Workbench, session: Session) -> Run:
    return licenses.LicenseLifecycle.start(a_record(session, License(expires_at=bench.now + timedelta(30))))


def a_payout(bench: Workbench, session: Session) -> Run:
    run = payouts.PayoutRun.start(a_record(session, Payout(amount=7)))
    run.signal("payment", {"status": "paid", "amount": 7})
    return run


def a_csv_import(bench: Workbench, session: Session) -> Run:
    csv_imports.FILES["a.csv"] = list("abcd")
    return csv_imports.CsvImport.start(a_record(session, Account()), file="a.csv")


EVERY = [
    a_small_order,
    a_big_order,
    an_upload,
    a_charge,
    an_onboarding,
    a_migration,
    reports,
    totals,
    a_confirmed_import,
    a_review,
    an_approval,
    a_conversation,
    a_publication,
    a_license,
    a_payout,
    a_csv_import,
]


def the_end(bench: Workbench, run: Run) -> dict[str, Any]:
    """What does not depend on when it was, or on what it is called."""
    rows = [row for row in run.steps if row.outcome in ("success", "failed", "skipped", "timed_out")]
    volatile = {"execution_id", "processed_at", "completed_at"}
    return {
        "state": run.state,
        "context": {name: value for name, value in run.context.items() if name not in volatile},
        "journal": [(row.kind, row.name, row.key, row.outcome) for row in rows],
    }


@pytest.mark.parametrize("begin", EVERY, ids=lambda begin: begin.__name__)
def test_a_worker_that_dies_in_an_example_changes_no_end(
    stepwell: Workbench, session: Session, begin: Beginning
) -> None:
    """At each place that a worker comes to; where that is quick, the second time too."""
    stepwell.raise_errors = False
    times = (1, 2) if stepwell.engine.database.dialect.has_one_writer else (1,)
    undisturbed: dict[str, Any] = {}
    died = 0
    for point, nth in [(None, 1), *((point, nth) for point in CrashPoint for nth in times)]:
        for service in Service.everywhere:
            service.forget()
        stepwell.delete_all_runs()
        run = begin(stepwell, session)
        if point is not None:
            died += dies_at(stepwell, run, point, nth)
        stepwell.run_to_end(run)
        undisturbed = undisturbed or the_end(stepwell, run)
        assert the_end(stepwell, run) == undisturbed, f"{point} {nth}"
    assert undisturbed["state"] == "completed"
    assert died >= len(times)


def dies_at(bench: Workbench, run: Run, point: CrashPoint, nth: int) -> bool:
    """Whether a worker came to that place; if not, the run has come to its end."""
    try:
        with bench.crash_at(point, nth=nth):
            bench.run_to_end(run)
    except AssertionError:
        return False
    return True
