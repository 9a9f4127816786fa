"""The examples that come from AJ/DC's guides, each driven to its end, and into the ends that are none."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from examples import (
    agent,
    appointments,
    closing_accounts,
    csv_imports,
    imports,
    licenses,
    payouts,
    pipeline,
    reviews,
    sweeps,
    time_off,
    webhooks,
)
from examples.records import Account, Appointment, Chat, License, Line, Payout, TimeOff
from stepwell import RunAlreadyExists, RunNotLive
from stepwell.testing import Workbench

DAY = timedelta(days=1)
WEEK = timedelta(weeks=1)


def look_again(session: Session, record: object) -> None:
    """In a new transaction: MariaDB shows the old one what was there when it began."""
    session.rollback()
    session.refresh(record)


# -- pipeline ---------------------------------------------------------------------------------------------------


def test_a_pipeline_tells_how_far_it_is(stepwell: Workbench) -> None:
    """Each step has a claim of its own; what they share is in the context, and a screen hears of each."""
    run = pipeline.Publication.start(document="a")
    assert stepwell.drain() == 3
    stepwell.assert_state(run, "completed")
    assert run.context == {"level": "low", "metadata": {"pages": 3, "language": "en"}}
    assert [call[0] for call in pipeline.screen.calls] == ["extract", "translate", "publish"]


def test_a_pipeline_that_is_stopped_by_a_helper_goes_on_at_that_step(stepwell: Workbench) -> None:
    """The reason is on the run; resumed, the step runs again, and the ones before it do not."""
    pipeline.llm.learn("suspicious", "translate")
    run = pipeline.Publication.start(document="a")
    stepwell.drain()
    stepwell.assert_state(run, "paused", reason="high")
    assert run.current_step == "translate"

    pipeline.llm.facts.clear()
    run.resume()
    assert stepwell.run_to_end(run) == "completed"
    assert [call[0] for call in pipeline.llm.calls] == ["extract", "translate", "translate", "publish"]


# -- timers -----------------------------------------------------------------------------------------------------


def a_license(stepwell: Workbench, session: Session, expires_in: timedelta = 30 * DAY) -> License:
    license = License(expires_at=stepwell.now + expires_in)
    session.add(license)
    session.commit()
    return license


def test_a_license_is_reminded_of_expires_and_is_revoked(stepwell: Workbench, session: Session) -> None:
    """Two weeks before its date, at its date, and two weeks after."""
    license = a_license(stepwell, session)
    run = licenses.LicenseLifecycle.start(license)
    stepwell.drain()
    assert run.info().wake_at == license.expires_at - 2 * WEEK

    stepwell.travel_to(license.expires_at - 2 * WEEK)
    stepwell.drain()
    assert licenses.mail.calls == [("expires in two weeks", license.id)]
    stepwell.travel_to(license.expires_at)
    stepwell.drain()
    look_again(session, license)
    assert license.state == "expired"

    begin = stepwell.now
    assert stepwell.run_to_end(run) == "completed"
    look_again(session, license)
    assert (license.state, stepwell.now - begin) == ("revoked", 2 * WEEK)


def test_a_date_that_moves_in_the_record_moves_the_timer(stepwell: Workbench, session: Session) -> None:
    """The run wakes, asks again, and waits for the new date; nobody told it."""
    license = a_license(stepwell, session)
    run = licenses.LicenseLifecycle.start(license)
    stepwell.drain()
    license.expires_at += 10 * DAY
    session.commit()

    stepwell.travel(16 * DAY)
    stepwell.drain()
    assert licenses.mail.calls == []
    assert run.info().wake_at == license.expires_at - 2 * WEEK


def test_a_license_that_is_renewed_begins_anew(stepwell: Workbench, session: Session) -> None:
    """The old run is canceled, the new one has the new date; one license has one run at a time."""
    license = a_license(stepwell, session)
    old = licenses.LicenseLifecycle.start(license)
    stepwell.drain()
    new = licenses.renew(session, license, license.expires_at + 365 * DAY)
    session.commit()
    stepwell.drain()
    assert (old.state, new.state) == ("canceled", "waiting")
    assert new.info().wake_at == license.expires_at - 2 * WEEK


def test_a_daily_starter_starts_nothing_twice(stepwell: Workbench, session: Session) -> None:
    """Only licenses that expire soon, and each once."""
    soon = a_license(stepwell, session)
    soon.expires_at -= DAY
    a_license(stepwell, session, 400 * DAY)
    assert len(licenses.start_those_that_expire_soon(session, stepwell.now)) == 1
    session.commit()
    assert licenses.start_those_that_expire_soon(session, stepwell.now) == []
    assert stepwell.engine.runs(licenses.LicenseLifecycle).count() == 1


def test_an_appointment_that_moves_has_one_reminder(stepwell: Workbench, session: Session) -> None:
    """Half an hour before the new time."""
    appointment = Appointment()
    first = appointments.schedule(session, appointment, stepwell.now + DAY)
    session.commit()
    stepwell.drain()
    second = appointments.schedule(session, appointment, stepwell.now + 2 * DAY)
    session.commit()
    begin = stepwell.now
    assert stepwell.run_to_end(second) == "completed"
    assert (first.state, stepwell.now - begin) == ("canceled", 2 * DAY - timedelta(minutes=30))
    assert appointments.mail.calls == [("remind", appointment.id)]


def test_an_appointment_that_was_called_off_reminds_nobody(stepwell: Workbench, session: Session) -> None:
    """The body looks, and leaves the step out."""
    appointment = Appointment(is_called_off=True)
    run = appointments.schedule(session, appointment, stepwell.now + DAY)
    session.commit()
    assert stepwell.run_to_end(run) == "completed"
    stepwell.assert_step(run, "remind", outcome="skipped")
    assert appointments.mail.calls == []


def test_an_account_is_deleted_after_its_grace(stepwell: Workbench, session: Session) -> None:
    """Thirty days later; asked for in a transaction that was rolled back, never."""
    account = Account()
    session.add(account)
    session.commit()
    closing_accounts.close(session, account)
    session.rollback()
    assert stepwell.engine.runs().count() == 0

    run = closing_accounts.close(session, account)
    session.commit()
    begin = stepwell.now
    assert stepwell.run_to_end(run) == "completed"
    look_again(session, account)
    assert (account.state, stepwell.now - begin) == ("deleted", 30 * DAY)


def test_an_account_that_is_opened_again_stays(stepwell: Workbench, session: Session) -> None:
    """The run is found by the account, and canceled; the account may be closed once more."""
    account = Account()
    session.add(account)
    session.commit()
    run = closing_accounts.close(session, account)
    session.commit()
    stepwell.drain()
    closing_accounts.reopen(session, stepwell.engine, account)
    stepwell.assert_state(run, "canceled", reason="reopened")

    closing_accounts.close(session, account)
    session.commit()
    assert stepwell.engine.runs(closing_accounts.AccountClosing).live().count() == 1


# -- signals ----------------------------------------------------------------------------------------------------


def test_an_import_that_is_confirmed_is_applied(stepwell: Workbench) -> None:
    """Also where the confirmation comes before anybody waits for it."""
    run = imports.BulkImport.start(import_id="i-1")
    stepwell.drain()
    stepwell.assert_state(run, "awaiting", reason="signal")
    run.signal("confirmation", True)
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == "applied"

    early = imports.BulkImport.start(import_id="i-2")
    early.signal("confirmation", True)
    assert stepwell.drain() == 1
    assert early.result() == "applied"
    with pytest.raises(RunNotLive):
        early.signal("confirmation", True)


@pytest.mark.parametrize("answer", [None, False])
def test_an_import_that_is_not_confirmed_is_destroyed(stepwell: Workbench, answer: bool | None) -> None:
    """After ten minutes of silence, or after a no."""
    run = imports.BulkImport.start(import_id="i-1")
    begin = stepwell.now
    if answer is not None:
        run.signal("confirmation", answer)
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == "destroyed"
    assert stepwell.now - begin == (timedelta(minutes=10) if answer is None else timedelta())


def a_payout(session: Session) -> Payout:
    payout = Payout(amount=70)
    session.add(payout)
    session.commit()
    return payout


def test_a_payout_is_credited_when_the_bank_says_so(stepwell: Workbench, session: Session) -> None:
    """The webhook finds the run by the payout, and counts once; a second start is an error that carries the run."""
    payout = a_payout(session)
    run = payouts.PayoutRun.start(payout)
    with pytest.raises(RunAlreadyExists) as caught:
        payouts.PayoutRun.start(payout)
    assert caught.value.run == run
    stepwell.drain()

    event = {"id": "evt-1", "status": "paid", "amount": 70}
    assert payouts.on_webhook(session, payout, event)
    session.commit()
    assert not payouts.on_webhook(session, payout, event)
    session.commit()
    assert stepwell.run_to_end(run) == "completed"
    look_again(session, payout)
    assert payout.state == "credited"
    assert [call[:2] for call in payouts.bank.calls] == [("withdraw", 70), ("credit", 70)]


def test_a_payout_that_is_overdue_stops_and_waits_again(stepwell: Workbench, session: Session) -> None:
    """Paused after three days; resumed, there are three more, and the withdrawal is not repeated."""
    payout = a_payout(session)
    run = payouts.PayoutRun.start(payout)
    begin = stepwell.now
    assert stepwell.run_to_end(run) == "paused"
    assert stepwell.now - begin == 3 * DAY
    assert "WaitTimedOut" in (run.info().error_class or "")

    run.resume()
    stepwell.drain()
    stepwell.assert_state(run, "awaiting", reason="signal")
    run.signal("payment", {"status": "paid", "amount": 70})
    assert stepwell.run_to_end(run) == "completed"
    assert [call[0] for call in payouts.bank.calls] == ["withdraw", "credit"]


def test_a_payment_that_failed_stops_the_payout_and_says_why(stepwell: Workbench, session: Session) -> None:
    """The reason is on the run; a person who has sorted it out leaves the step out, or cancels."""
    run = payouts.PayoutRun.start(a_payout(session))
    stepwell.drain()
    run.signal("payment", {"status": "refused", "amount": 0})
    assert stepwell.run_to_end(run) == "paused"
    stepwell.assert_state(run, "paused", reason="payment refused")

    run.resume()
    assert stepwell.run_to_end(run) == "paused"
    run.cancel("nothing to be done")
    stepwell.assert_state(run, "canceled")


def test_a_clear_case_is_not_reviewed(stepwell: Workbench) -> None:
    """A wait that is not reached leaves no trace."""
    run = reviews.PostReview.start(post="hello")
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == "approved"
    assert [row.kind for row in run.steps] == ["step", "step"]


@pytest.mark.parametrize(("answer", "verdict"), [("approved", "approved"), (None, "rejected")])
def test_a_doubtful_case_waits_for_an_hour(stepwell: Workbench, answer: str | None, verdict: str) -> None:
    """It stands in the queue of reviews; without an answer it is rejected."""
    run = reviews.PostReview.start(post="well?")
    begin = stepwell.now
    stepwell.drain()
    assert reviews.review_queue(stepwell.engine) == [run]
    if answer is not None:
        run.signal("review", answer)
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == verdict
    assert reviews.review_queue(stepwell.engine) == []
    assert stepwell.now - begin == (timedelta() if answer else timedelta(hours=1))


def test_approvers_decide_in_any_order(stepwell: Workbench, session: Session) -> None:
    """The second one is earlier, and is read when it is his turn; one no is enough."""
    request = TimeOff()
    session.add(request)
    session.commit()
    run = time_off.TimeOffApproval.start(request, approvers=["ann", "bob"])
    stepwell.drain()
    run.signal("decision_bob", "rejected")
    assert stepwell.drain() == 1
    stepwell.assert_state(run, "awaiting", reason="signal")
    run.signal("decision_ann", "approved")
    assert stepwell.run_to_end(run) == "completed"
    look_again(session, request)
    assert (run.result(), request.state) == ("rejected", "rejected")


def test_an_approver_who_stays_silent_stops_the_run(stepwell: Workbench, session: Session) -> None:
    """Any number of times, each with a fresh deadline; nobody is notified twice."""
    request = TimeOff()
    session.add(request)
    session.commit()
    run = time_off.TimeOffApproval.start(request, approvers=["ann"])
    for _ in range(3):
        begin = stepwell.now
        assert stepwell.run_to_end(run) == "paused"
        stepwell.assert_state(run, "paused", reason="ann is silent")
        assert stepwell.now - begin == 3 * DAY
        run.resume()
    run.signal("decision_ann", "approved")
    assert stepwell.run_to_end(run) == "completed"
    assert (run.result(), len(time_off.mail.calls)) == ("approved", 1)


# -- stops ------------------------------------------------------------------------------------------------------


def an_import(session: Session, *lines: str) -> Account:
    csv_imports.FILES["a.csv"] = list(lines)
    account = Account(quota_bytes=5)
    session.add(account)
    session.commit()
    return account


def imported(session: Session) -> list[str]:
    session.expire_all()
    return list(session.scalars(select(Line.text).order_by(Line.id)))


def test_an_import_over_quota_goes_on_behind_its_last_line(stepwell: Workbench, session: Session) -> None:
    """Paused with the error; once there is room, nothing is lost and nothing is there twice."""
    account = an_import(session, "aa", "bb", "cc", "dd")
    run = csv_imports.CsvImport.start(account, file="a.csv")
    assert stepwell.run_to_end(run) == "paused"
    assert "QuotaExceeded" in (run.info().error_class or "")
    assert stepwell.engine.runs(csv_imports.CsvImport).in_state("paused").for_hero(account).first() == run
    assert imported(session) == ["aa", "bb"]

    account.quota_bytes = 100
    session.commit()
    run.resume()
    assert stepwell.run_to_end(run) == "completed"
    assert imported(session) == ["aa", "bb", "cc", "dd"]


def test_an_import_of_a_broken_file_is_over(stepwell: Workbench, session: Session) -> None:
    """Canceled with its error; the account may try another file."""
    account = an_import(session, "aa", "\0")
    run = csv_imports.CsvImport.start(account, file="a.csv")
    assert stepwell.run_to_end(run) == "canceled"
    assert "MalformedFile" in (run.info().error_class or "")
    csv_imports.FILES["a.csv"] = ["cc"]
    assert stepwell.run_to_end(csv_imports.CsvImport.start(account, file="a.csv")) == "completed"


def test_an_import_whose_worker_dies_loses_and_doubles_no_line(stepwell: Workbench, session: Session) -> None:
    """The line and the cursor are one transaction, wherever the worker dies; a deploy in the middle is no trouble."""
    account = an_import(session, *"abcde")
    run = csv_imports.CsvImport.start(account, file="a.csv")
    for place in ("before_checkpoint", "after_checkpoint"):
        with stepwell.crash_at(place, nth=2):
            stepwell.run_to_end(run)
        stepwell.travel(timedelta(minutes=5))
        stepwell.run_iterations(run, 1)
    assert stepwell.run_to_end(run) == "completed"
    assert imported(session) == ["a", "b", "c", "d", "e"]


def test_an_agent_asks_before_it_does_harm(stepwell: Workbench) -> None:
    """As often as it wants to; nothing that it has thought or done is repeated."""
    agent.SCRIPT[:] = [{"tool": "search"}, {"tool": "delete"}, {"tool": "delete"}, {"answer": "done"}]
    run = agent.Agent.start(question="tidy up")
    for approvals in range(2):
        assert stepwell.run_to_end(run) == "paused"
        stepwell.assert_state(run, "paused", reason="tool_approval")
        assert len(agent.tools.calls) == 1 + approvals
        run.resume()
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == "done"
    assert [call[1] for call in agent.model.calls] == [1, 3, 5, 7]


def test_an_agent_is_told_that_a_tool_was_refused(stepwell: Workbench) -> None:
    """What a person has decided is written down elsewhere; the run looks when it goes on."""
    agent.SCRIPT[:] = [{"tool": "delete"}, {"answer": "left as it is"}]
    run = agent.Agent.start(question="tidy up")
    stepwell.run_to_end(run)
    agent.tools.learn("refused", "delete")
    run.resume()
    assert stepwell.run_to_end(run) == "completed"
    assert (run.result(), agent.tools.calls) == ("left as it is", [])


# -- one at a time ----------------------------------------------------------------------------------------------


def test_a_webhook_that_comes_twice_starts_one_run(stepwell: Workbench) -> None:
    """The identity is in the payload; when the first run is over, the step itself must know."""
    payload = {"data": {"object": {"id": "ch-1"}}}
    first = webhooks.ChargeImport.start(payload=payload)
    again = webhooks.ChargeImport.start(payload=payload)
    assert (first == again, again.created) == (True, False)
    stepwell.run_to_end(first)

    late = webhooks.ChargeImport.start(payload=payload)
    assert late.created
    stepwell.run_to_end(late)
    assert webhooks.ledger.calls == [("import", "ch-1")]


def test_a_charge_may_be_imported_once_for_ever(stepwell: Workbench) -> None:
    """The identity is not free when the run is over."""
    payload = {"data": {"object": {"id": "ch-1"}}}
    first = webhooks.OnlyEver.start(payload=payload)
    stepwell.run_to_end(first)
    again = webhooks.OnlyEver.start(payload=payload)
    assert (first == again, again.created) == (True, False)


def test_a_sweep_goes_on_beside_which_no_other_begins(stepwell: Workbench, session: Session) -> None:
    """Interrupted, it goes on from its cursor; started again meanwhile, it is the same one."""
    session.add_all([Chat(is_old=number % 2 == 0) for number in range(450)])
    session.commit()
    run = sweeps.sweep()
    stepwell.drain()
    stepwell.assert_state(run, "completed")
    assert session.scalars(select(Chat.is_old)).all() == [False] * 225

    session.add_all([Chat(is_old=True) for _ in range(250)])
    session.commit()
    second = sweeps.sweep()
    with stepwell.crash_at("after_checkpoint"):
        stepwell.run_to_end(second)
    assert sweeps.sweep() == second
    assert stepwell.run_to_end(second) == "completed"
    assert session.scalars(select(Chat.is_old)).all() == [False] * 225
