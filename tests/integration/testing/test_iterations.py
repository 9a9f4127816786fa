"""Resumable steps, so many items at a time."""

from __future__ import annotations

import pytest

from stepwell import RunState, Workflow, resumable_step
from stepwell.testing import Workbench
from tests.integration.testing.examples import Import, Month, lines, open_ledger


@pytest.fixture
def ledger(bench: Workbench) -> Workbench:
    """The workbench, with the application's tables."""
    open_ledger(bench)
    return bench


def test_so_many_items_and_no_more(ledger: Workbench) -> None:
    """Each call goes on from the cursor and is one execution in the journal; the last one ends the step."""
    run = Import.start(count=5)
    for outcome, done in [("continued", 2), ("continued", 4), ("success", 5)]:
        row = ledger.run_iterations(run, 2)
        assert row is not None
        assert (row.outcome, len(lines(ledger))) == (outcome, done)
        if outcome == "continued":
            ledger.assert_cursor(run, done)
    ledger.assert_steps(run, "rows")
    assert ledger.run_to_end(run) is RunState.COMPLETED


def test_the_cursor_stands_where_the_last_item_ended(ledger: Workbench) -> None:
    """``assert_cursor`` compares with what is stored; before the first checkpoint there is none."""
    run = Import.start(count=5)
    ledger.assert_cursor(run, None)
    ledger.run_iterations(run, 3)
    ledger.assert_cursor(run, 3)
    with pytest.raises(AssertionError, match=r"stands at 3, not at 4(.|\n)*rows +continued +cursor 3"):
        ledger.assert_cursor(run, 4)


def test_afterwards_the_step_has_its_own_limits_again(ledger: Workbench) -> None:
    """What the test asked for holds for one call, also when that call raises."""
    before = Import.plan
    run = Import.start(count=4)
    ledger.run_iterations(run, 1)
    assert Import.plan is before
    ledger.run_to_end(run)
    assert [row.outcome for row in run.steps if row.name == "rows"] == ["continued", "success"]


def test_a_tighter_limit_of_the_step_stands(stepwell: Workbench) -> None:
    """A step that stops by itself after two items is not made to do five."""

    class Slow(Workflow):
        @resumable_step(max_iterations=2)
        def items(self) -> None:
            for _ in self.cursor.iterate(range(10)):
                pass

    run = Slow.start()
    stepwell.run_iterations(run, 5)
    stepwell.assert_cursor(run, 2)


def test_only_resumable_steps_have_items(stepwell: Workbench) -> None:
    """Asked at another step, or for no item at all, it says what is wrong and runs nothing."""
    run = Month.start()
    with pytest.raises(ValueError, match="needs a run at a resumable step; this one is at 'one'"):
        stepwell.run_iterations(run, 1)
    with pytest.raises(ValueError, match="positive"):
        stepwell.run_iterations(run, 0)
    assert run.steps == []
