"""The examples that come from ChronoForge's documents, each driven to its end, and into the ends that are none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from examples import charges, files, memory, orders, recovery, reminders, waiting
from stepwell import InvalidTransition, StepFailed, WaitTimedOut
from stepwell.testing import Workbench

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def asked(service: object) -> list[object]:
    return [call[0] for call in service.calls]  # type: ignore[attr-defined]  # a Service


# -- orders -----------------------------------------------------------------------------------------------------


def test_an_order_waits_for_its_payment_and_a_minute(stepwell: Workbench) -> None:
    """Polled, delayed, processed, completed; the id that run() drew is the same in each activation."""
    run = orders.PaidOrder.start(order_id="o-1")
    stepwell.drain()
    stepwell.assert_state(run, "waiting", reason="poll")

    orders.shop.learn("paid", "o-1")
    assert stepwell.run_to_end(run) == "completed"

    execution = run.context["execution_id"]
    assert orders.shop.calls == [("process", "o-1", execution), ("complete", "o-1", execution)]
    assert {"processed_at", "completed_at"} <= run.context.keys()


def test_an_order_that_is_not_paid_in_time_fails_and_may_go_on(stepwell: Workbench) -> None:
    """The wait runs out at its hour; resumed, it waits anew."""
    run = orders.PaidOrder.start(order_id="o-1")
    begin = stepwell.now
    with pytest.raises(WaitTimedOut):
        stepwell.run_to_end(run)
    assert stepwell.now - begin == HOUR
    stepwell.assert_state(run, "failed")

    run.resume()
    stepwell.drain()
    stepwell.assert_state(run, "waiting", reason="poll")
    orders.shop.learn("paid", "o-1")
    assert stepwell.run_to_end(run) == "completed"


def test_an_order_takes_the_way_that_its_data_say(stepwell: Workbench) -> None:
    """Without a compliance check, once for each item, and reminded until it is delivered."""
    orders.shop.learn("paid", "small-1")
    run = orders.OrderProcessing.start(order_id="small-1")
    stepwell.drain()
    for _ in range(2):
        stepwell.travel(3 * DAY)
        stepwell.drain()
    orders.shop.learn("delivered", "small-1")
    assert stepwell.run_to_end(run) == "completed"

    assert asked(orders.shop) == ["validate", "fulfill", "fulfill", "remind", "remind", "complete"]
    assert run.result() == "complete-6"


def test_a_large_order_is_checked_first(stepwell: Workbench) -> None:
    """The branch that another order did not take: reviewed, and held until it is compliant."""
    orders.shop.learn("paid", "big-1")
    run = orders.OrderProcessing.start(order_id="big-1")
    stepwell.drain()
    assert asked(orders.shop) == ["validate", "review"]
    stepwell.assert_state(run, "waiting", reason="poll")

    orders.shop.learn("compliant", "big-1")
    orders.shop.learn("delivered", "big-1")
    assert stepwell.run_to_end(run) == "completed"
    assert asked(orders.shop) == ["validate", "review", "fulfill", "fulfill", "complete"]


def test_an_order_whose_worker_dies_fulfills_no_item_twice_that_was_recorded(stepwell: Workbench) -> None:
    """A replay passes the items that are done, and tries the one that was under way again."""
    orders.shop.learn("paid", "small-1")
    orders.shop.learn("delivered", "small-1")
    run = orders.OrderProcessing.start(order_id="small-1")
    with stepwell.crash_at("after_body", step="fulfill", nth=2):
        stepwell.run_to_end(run)
    assert stepwell.run_to_end(run) == "completed"

    fulfilled = [call[1] for call in orders.shop.calls if call[0] == "fulfill"]
    assert fulfilled == ["book", "pen", "pen"]


# -- files and charges ------------------------------------------------------------------------------------------


def test_an_upload_is_tried_five_times(stepwell: Workbench) -> None:
    """Four failures are got over; each of the two uploads has attempts of its own."""
    files.storage.fail(ConnectionError("reset"), times=4)
    run = files.FileProcessing.start(file_id="f")
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == ["small-1", "large-2"]
    assert [row.attempt for row in run.steps if row.outcome == "success"] == [5, 1, 1, 1]


def test_what_failed_for_good_goes_on_where_it_failed(stepwell: Workbench) -> None:
    """The fifth failure is the run's; resume() gives it five more, and repeats nothing that is done."""
    files.images.fail(ValueError("no picture"), times=3)
    run = files.FileProcessing.start(file_id="f")
    with pytest.raises(StepFailed, match="no picture"):
        stepwell.run_to_end(run)

    run.resume()
    assert stepwell.run_to_end(run) == "completed"
    assert asked(files.storage) == ["upload", "upload", "publish"]


def test_each_error_has_a_delay_of_its_own(stepwell: Workbench) -> None:
    """Four network errors a few seconds apart, then five times the other delay; the tenth attempt succeeds."""
    charges.bank.learn("settled")
    charges.bank.fail(charges.NetworkError(), times=4)
    charges.bank.fail(charges.RateLimited(), times=5)
    run = charges.CardCharge.start(amount=10)
    begin = stepwell.now
    assert stepwell.run_to_end(run) == "completed"
    assert stepwell.assert_step(run, "charge").attempt == 10
    assert stepwell.now - begin == timedelta(seconds=1 + 2 + 4 + 8 + 5 + 10 + 20 + 40 + 80)


def test_attempts_run_out(stepwell: Workbench) -> None:
    """Ten errors of one kind are one too many."""
    charges.bank.fail(charges.NetworkError("gone"), times=10)
    run = charges.CardCharge.start(amount=10)
    with pytest.raises(StepFailed, match="gone"):
        stepwell.run_to_end(run)
    stepwell.assert_state(run, "failed")


def test_a_declined_card_is_not_tried_again(stepwell: Workbench) -> None:
    """The step fails at once, and run() takes another way."""
    charges.bank.fail(charges.CardDeclined("no funds"))
    run = charges.CardCharge.start(amount=10)
    assert stepwell.run_to_end(run) == "completed"
    assert asked(charges.bank) == ["ask"]


def test_a_condition_has_policies_of_its_own(stepwell: Workbench) -> None:
    """What it names is tried again, and nothing else: the class's blanket Retry is not for conditions."""
    run = charges.CardCharge.start(amount=10)
    stepwell.drain()
    charges.bank.doubt(charges.NetworkError("gone"))
    charges.bank.learn("settled")
    assert stepwell.run_to_end(run) == "completed"

    broken = charges.CardCharge.start(amount=20)
    charges.bank.facts.clear()
    stepwell.drain()
    charges.bank.doubt(KeyError("a bug"))
    with pytest.raises(StepFailed, match="a bug"):
        stepwell.run_to_end(broken)


def test_a_call_has_policies_of_its_own(stepwell: Workbench) -> None:
    """Eight attempts at this call, where the class gives five."""
    charges.bank.learn("settled")
    run = charges.CardCharge.start(amount=10)
    with stepwell.crash_at("before_step", step="record"):
        stepwell.run_to_end(run)
    charges.bank.fail(charges.NetworkError(), times=7)
    assert stepwell.run_to_end(run) == "completed"
    assert stepwell.assert_step(run, "record").attempt == 8


# -- waits ------------------------------------------------------------------------------------------------------


def test_mails_of_an_onboarding_keep_their_distances(stepwell: Workbench) -> None:
    """An hour after the first, two days after the second; neither early nor late."""
    run = waiting.UserOnboarding.start(address="ada")
    stepwell.drain()
    stepwell.travel(HOUR - timedelta(seconds=1))
    assert stepwell.drain() == 0
    stepwell.travel(timedelta(seconds=1))
    stepwell.drain()
    assert asked(waiting.mail) == ["welcome", "tutorial"]

    begin = stepwell.now
    assert stepwell.run_to_end(run) == "completed"
    assert stepwell.now - begin == 2 * DAY
    assert asked(waiting.mail) == ["welcome", "tutorial", "feedback"]


def test_a_service_that_becomes_ready_is_noticed(stepwell: Workbench) -> None:
    """The condition is polled, and its named errors are tried again."""
    waiting.api.doubt(TimeoutError("slow"), times=2)
    run = waiting.Migration.start()
    stepwell.drain()
    waiting.api.learn("healthy")
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == "migrate-1"


def test_a_service_that_stays_away_is_not_waited_for_for_ever(stepwell: Workbench) -> None:
    """After half an hour the answer is the default."""
    begin = stepwell.now
    run = waiting.Migration.start()
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == "not today"
    assert stepwell.now - begin == timedelta(minutes=30)


def test_a_gate_is_looked_at_when_it_is_told(stepwell: Workbench) -> None:
    """Time alone does nothing; each wake looks once, and each gate is a gate of its own."""
    run = waiting.OnlinePayment.start(order_id="o-1")
    stepwell.drain()
    stepwell.assert_state(run, "awaiting", reason="gate")
    waiting.api.learn("confirmed", "o-1")
    stepwell.travel(30 * DAY)
    assert stepwell.drain() == 0

    waiting.on_webhook("o-1")
    stepwell.drain()
    assert asked(waiting.api) == ["request", "fulfill"]
    stepwell.assert_state(run, "awaiting", reason="gate")

    waiting.on_webhook("o-1")
    assert stepwell.run_to_end(run) == "completed"
    waiting.on_webhook("o-1")  # delivered twice
    assert asked(waiting.api) == ["request", "fulfill", "close"]


# -- what recurs ------------------------------------------------------------------------------------------------


def test_a_reminder_recurs_until_it_is_not_needed(stepwell: Workbench) -> None:
    """Every three days, each time told when it was due; one that fails is left behind, and the grid stays."""
    begin = stepwell.now
    reminders.payments.learn("paid", "ada")
    run = reminders.Notifications.start(user="ada")
    stepwell.drain()
    for error in (None, ValueError("no such mailbox"), None):
        if error is not None:
            reminders.mail.fail(error)
        stepwell.travel(3 * DAY)
        stepwell.drain()
    reminders.mail.learn("onboarded", "ada")
    assert stepwell.run_to_end(run) == "completed"
    assert [call[2] for call in reminders.mail.calls] == [begin + 3 * DAY, begin + 9 * DAY]


def test_what_must_not_fail_fails_the_run(stepwell: Workbench) -> None:
    """Three attempts, then the run stops; resumed, the same tick is tried again."""
    reminders.mail.learn("onboarded", "ada")
    reminders.payments.fail(ConnectionError("down"), times=3)
    run = reminders.Notifications.start(user="ada")
    with pytest.raises(StepFailed, match="down"):
        stepwell.run_to_end(run)
    stepwell.assert_state(run, "failed")

    run.resume()
    stepwell.drain()
    assert asked(reminders.payments) == ["process"]
    reminders.payments.learn("paid", "ada")
    assert stepwell.run_to_end(run) == "completed"


def test_a_daily_report_is_for_its_day_and_leaves_out_what_was_missed(stepwell: Workbench) -> None:
    """An outage of three days and an hour: what is not more than two hours old is made up for, the rest is not."""
    start = datetime(2030, 1, 30, 8, tzinfo=UTC)
    stepwell.travel_to(start - HOUR)
    run = reminders.DailyReports.start(start_at=start)
    stepwell.drain()
    stepwell.travel_to(start)
    stepwell.drain()
    stepwell.travel(3 * DAY + HOUR)
    stepwell.drain()
    assert [call[1] for call in reminders.reports.calls] == ["2030-01-30", "2030-02-02"]

    reminders.reports.learn("over")
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == 2


# -- memory and recovery ----------------------------------------------------------------------------------------


def test_a_runs_memory_is_committed_with_its_steps(stepwell: Workbench) -> None:
    """Nested changes, defaults and deletions are kept; a worker that dies changes nothing about it."""
    run = memory.Totals.start(user="ada")
    with stepwell.crash_at("after_body", step="count", nth=2):
        stepwell.run_to_end(run)
    assert run.context["totals"] == {"paid": 1, "pending": 1}
    assert stepwell.run_to_end(run) == "completed"
    assert run.result() == {"totals": {"paid": 2, "pending": 0}, "first_paid_by": "ada", "state": "empty++"}


def test_bodies_that_hang_can_be_found(stepwell: Workbench) -> None:
    """By how long ago their state has changed."""
    run = recovery.Rollover.start(contract="a")
    with stepwell.crash_at("after_body", step="collect"):
        stepwell.drain()
    stepwell.travel(timedelta(minutes=30))
    assert recovery.hanging(stepwell.engine) == []
    stepwell.travel(timedelta(seconds=1))
    assert recovery.hanging(stepwell.engine) == [run]


def test_failed_runs_go_on_all_at_once(stepwell: Workbench) -> None:
    """Each one from the step that failed; what has completed cannot be resumed."""
    stepwell.raise_errors = False
    done = recovery.Rollover.start(contract="done")
    stepwell.drain()
    failed = [recovery.Rollover.start(contract=name) for name in ("a", "b")]
    for run in failed:
        with stepwell.crash_at("after_commit", step="collect"):
            stepwell.run_next_step(run)
    recovery.bank.fail(ConnectionError("down"), times=2)
    for run in failed:
        stepwell.run_to_end(run)
    assert [run.state for run in failed] == ["failed", "failed"]

    assert recovery.retry_everything(stepwell.engine) == 2
    stepwell.drain()
    assert [run.state for run in failed] == ["completed", "completed"]
    assert asked(recovery.bank).count("collect") == 3
    with pytest.raises(InvalidTransition):
        done.resume()
