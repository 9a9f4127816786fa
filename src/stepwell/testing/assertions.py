"""What a test says about a run; each message shows the run's history."""

from __future__ import annotations

from typing import Any, NoReturn

from stepwell.engine.engine import Stepwell
from stepwell.engine.run import Run
from stepwell.engine.step_executions import StepExecution, stored_journal
from stepwell.states import BODIES, Outcome, RunState
from stepwell.testing.timeline import timeline

__all__ = ["Assertions"]


class Assertions:
    """Assertions about the runs of an engine.

    Attributes:
        engine: The engine.
    """

    engine: Stepwell

    def timeline(self, run: Run) -> str:
        """The run's history as text: where it stands and why, and a line for each entry of its journal."""
        return timeline(run.info(), stored_journal(self.engine, run.id), self.engine.now())

    def assert_state(self, run: Run, state: RunState | str, *, reason: str | None = None) -> None:
        """The run is in this state, and for this reason if one is given.

        Raises:
            AssertionError: It is in another one.
            ValueError: There is no such state.
        """
        __tracebackhide__ = True
        info = run.info()
        if info.state != RunState(state):
            self._fail(run, f"the run is {info.state}, not {RunState(state).value}")
        if reason is not None and info.reason != reason:
            self._fail(run, f"the run is {info.state} for the reason {info.reason!r}, not {reason!r}")

    def assert_steps(self, run: Run, *names: str) -> None:
        """These steps have succeeded, in this order, and no other.

        Raises:
            AssertionError: Others have, or in another order.
        """
        __tracebackhide__ = True
        done = [row.name for row in _attempts(run) if row.outcome == Outcome.SUCCESS]
        if done != list(names):
            self._fail(run, f"{_listed(done)} succeeded, not {_listed(names)}")

    def assert_step(
        self, run: Run, name: str, *, outcome: Outcome | str = Outcome.SUCCESS, attempt: int | None = None
    ) -> StepExecution:
        """An attempt at this step has ended in this way; answer its entry, the latest if there are several.

        Args:
            run: The run.
            name: The step.
            outcome: How: ``success``, ``retried``, ``continued``, ``skipped``, ``canceled``, ``failed``,
                ``paused``, ``lost`` or ``timed_out``.
            attempt: Which attempt, from 1; None: any.

        Raises:
            AssertionError: None has.
            ValueError: There is no such outcome.
        """
        __tracebackhide__ = True
        wanted = Outcome(outcome)
        ended = [row for row in _attempts(run) if row.name == name and row.outcome is not None]
        found = [row for row in ended if row.outcome == wanted and attempt in (None, row.attempt)]
        if found:
            return found[-1]
        which = f"attempt {attempt}" if attempt else "no attempt"
        had = _listed([str(row.outcome) for row in ended])
        verb = "has not" if attempt else "has"
        self._fail(run, f"{which} at step {name!r} {verb} ended with {wanted.value}: it has {had}")

    def assert_cursor(self, run: Run, value: Any) -> None:
        """The run's current step, or its last one, stands at this cursor; None: it has none.

        Raises:
            AssertionError: It stands elsewhere.
        """
        __tracebackhide__ = True
        step = run.current_step
        rows = [row for row in _attempts(run) if step in (None, row.name)]
        cursor = rows[-1].cursor if rows else None
        if cursor != value:
            self._fail(run, f"the cursor stands at {cursor!r}, not at {value!r}")

    def _fail(self, run: Run, what: str) -> NoReturn:
        __tracebackhide__ = True
        raise AssertionError(f"{what}.\n{self.timeline(run)}")


def _attempts(run: Run) -> list[StepExecution]:
    return [row for row in run.steps if row.kind in BODIES and row.superseded_at is None]


def _listed(names: Any) -> str:
    return ", ".join(names) or "nothing"
