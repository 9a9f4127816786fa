"""The workbench: an engine, a clock that a test moves, and a worker that works only when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import URL, Engine

from stepwell.clock import ManualClock, require_aware
from stepwell.definition.registry import find_workflow
from stepwell.engine.engine import Stepwell
from stepwell.engine.run import Run
from stepwell.engine.step_executions import StepExecution
from stepwell.errors import RunFailed
from stepwell.execution.outcome import Activated
from stepwell.states import BODIES, LIVE, RunState
from stepwell.store.schema import metadata
from stepwell.testing.assertions import Assertions
from stepwell.testing.crashes import CrashPoint, Trap, WorkerDied
from stepwell.testing.engines import borrow, open_engine
from stepwell.testing.hands import Hands
from stepwell.testing.tracebacks import without_library_frames
from stepwell.worker.claimer import Claimed

__all__ = ["Workbench"]

_MOST_ACTIVATIONS: Final = 1000


class Workbench(Assertions):
    """Runs workflows on the calling thread; time stands still except when the test moves it.

    Nothing happens by itself: a started run waits until :meth:`drain`, :meth:`run_next_step` or
    :meth:`run_to_end` is called. What chance adds to delays is left out, so a retry comes exactly when its
    policy says.

    Args:
        database: Where the runs are. None makes a SQLite database of its own, in a temporary file. A URL or a
            SQLAlchemy ``Engine`` names another one, which gets the tables if it has none. A ``Stepwell`` is
            used as it is; until :meth:`close` its clock is one that the test moves.
        start: The instant at which the clock begins; now, by default. A ``Stepwell`` that has a
            ``ManualClock`` keeps it.
        raise_errors: When a run fails, raise the error of its step in the test.

    Attributes:
        engine: The engine; the process's default until :meth:`close`.
        clock: Its clock.
        raise_errors: As above; may be changed at any time.

    Raises:
        StoreError: The database is one in memory, to which steps cannot have connections of their own.

    Example:
        >>> from stepwell import Workflow, step
        >>> class Greeting(Workflow):
        ...     @step(wait=timedelta(days=30))
        ...     def greet(self): ...
        >>> with Workbench() as bench:
        ...     run = Greeting.start()
        ...     state = bench.run_to_end(run)
        ...     bench.assert_steps(run, "greet")
        >>> print(state)
        completed
    """

    def __init__(
        self,
        database: Stepwell | Engine | URL | str | None = None,
        *,
        start: datetime | None = None,
        raise_errors: bool = True,
    ) -> None:
        self.raise_errors = raise_errors
        with ExitStack() as stack:
            self.clock = ManualClock(start)
            if isinstance(database, Stepwell):
                self.engine = database
                if isinstance(database.clock, ManualClock):
                    self.clock = database.clock
            else:
                self.engine = open_engine(database, self.clock, stack)
            borrow(self.engine, self.clock, stack)
            self._hands = Hands(self.engine)
            stack.callback(self._hands.close)
            self._closing = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Put the process's default engine back, end all threads, and drop a database that was made here."""
        self._closing.close()

    @property
    def url(self) -> URL:
        """The URL of the database, for an application's own SQLAlchemy engine on it."""
        return self.engine.database.engine.url

    # -- time ---------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """What the time is."""
        return self.clock.now()

    def travel(self, duration: timedelta) -> datetime:
        """Let time pass while nobody works; what has become due meanwhile is done by the next :meth:`drain`.

        Returns:
            The new instant.
        """
        return self.clock.travel(duration)

    def travel_to(self, instant: datetime) -> datetime:
        """Let time pass until this instant.

        Raises:
            ValueError: It is over.
            TypeError: It has no time zone.
        """
        return self.clock.travel(require_aware(instant, "travel_to()") - self.now)

    # -- work ---------------------------------------------------------------------------------------

    def drain(self, *, max_activations: int = _MOST_ACTIVATIONS) -> int:
        """Drive what is due now, run after run, until nothing is; time stands still.

        Args:
            max_activations: How often runs may be taken up before it is taken for an endless loop.

        Returns:
            How often a run was taken up.

        Raises:
            Exception: The error of a step by which a run failed, with ``raise_errors``. The rest stays due.
            AssertionError: There was no end to it.
        """
        __tracebackhide__ = True
        count = 0
        while (claimed := self._hands.claim_next()) is not None:
            if count == max_activations:
                raise AssertionError(f"runs were taken up {count} times, and there is still something due.")
            self._drive(claimed)
            count += 1
        return count

    def run_next_step(self, run: Run) -> StepExecution | None:
        """Make one attempt at the run's next step, and answer its entry in the journal.

        Time passes until the step is due. Other runs stay as they are.

        Returns:
            None if no step can be attempted: the run is over, it has stopped, or it waits for somebody.

        Raises:
            Exception: The error of the step, if the run failed by it and with ``raise_errors``.
        """
        __tracebackhide__ = True
        before = _ended(run)
        for _ in range(_MOST_ACTIVATIONS):
            claimed = self._hands.claim(run.id)
            if claimed is not None:
                self._drive(claimed, is_one_step=True)
                made = [row for position, row in _ended(run).items() if position not in before]
                if made:
                    return made[-1]
                continue
            instant = _due_at(run)
            if instant is None:
                return None
            self._travel_up_to(instant)
        self._fail(run, f"the run was taken up {_MOST_ACTIVATIONS} times, and no step was attempted")

    def run_to_end(self, run: Run, *, max_activations: int = _MOST_ACTIVATIONS) -> RunState:
        """Drive the run until it is over, has stopped, or waits for somebody without a limit.

        Time passes by itself. Other runs are driven too, each at its instant, since the run may depend on
        them. A lease that a dead worker left behind runs out.

        Args:
            run: The run.
            max_activations: How often runs may be taken up before it is taken for an endless loop.

        Returns:
            The state in which the run is left.

        Raises:
            Exception: The error of a step by which a run failed, with ``raise_errors``.
            AssertionError: The run did not come to an end.
        """
        __tracebackhide__ = True
        for _ in range(max_activations):
            claimed = self._hands.claim_next()
            if claimed is not None:
                self._drive(claimed)
                continue
            instant = _due_at(run)
            if instant is None:
                return run.state
            self._travel_up_to(min(instant, self._hands.next_instant() or instant))
        self._fail(run, f"the run has come to no end after {max_activations} activations")

    def run_iterations(self, run: Run, count: int) -> StepExecution | None:
        """Run the resumable step that the run is at for so many items, and interrupt it there.

        What ``checkpoint_every=`` puts off is not recorded earlier: the step ends at its next checkpoint.

        Args:
            run: The run.
            count: How many items.

        Returns:
            The entry in the journal, as of :meth:`run_next_step`.

        Raises:
            ValueError: The run is not at a resumable step, or the count is not positive.
        """
        __tracebackhide__ = True
        if count < 1:
            raise ValueError(f"count must be positive; got {count}")
        with _limited(run, count):
            return self.run_next_step(run)

    @contextmanager
    def crash_at(self, point: CrashPoint | str, *, step: str | None = None, nth: int = 1) -> Iterator[None]:
        """Let the worker die at a place in the block, which ends there.

        The run's lease is left behind. :meth:`run_to_end` waits until it has run out and goes on, as another
        worker would; by hand, :meth:`travel` past it and :meth:`drain`.

        Args:
            point: The place, by its name: see :class:`CrashPoint`.
            step: At this step only; None: at the first step that comes there.
            nth: Which time, from 1, for steps that come there often: the third checkpoint, the second attempt.

        Raises:
            AssertionError: The block has ended and no worker has come there.
            ValueError: There is no such place.

        Example:
            >>> from stepwell import Workflow, step
            >>> class Order(Workflow):
            ...     @step
            ...     def charge(self):
            ...         print("charged with the key of", self.idempotency_key[37:])
            >>> with Workbench() as bench:
            ...     run = Order.start()
            ...     with bench.crash_at("after_body", step="charge"):
            ...         bench.run_to_end(run)
            ...     print(bench.run_to_end(run))
            charged with the key of charge
            charged with the key of charge
            completed
        """
        __tracebackhide__ = True
        if self._hands.trap is not None:
            raise RuntimeError("crash_at() is in force already: a worker dies once.")
        trap = self._hands.trap = Trap(CrashPoint(point), step, nth)
        try:
            yield
        except WorkerDied as died:
            if died.trap is not trap:
                raise
        finally:
            self._hands.trap = None
        if not trap.is_sprung:
            raise AssertionError(f"no worker has died {trap}; visits: {trap.visits}.")

    def delete_all_runs(self) -> None:
        """Forget every run in the database, for tests that share one."""
        with self.engine.database.begin() as connection:
            for table in metadata.sorted_tables:
                connection.execute(table.delete())

    def _drive(self, claimed: Claimed, *, is_one_step: bool = False) -> None:
        __tracebackhide__ = True
        activated = self._hands.drive(claimed, is_one_step=is_one_step)
        if self.raise_errors and activated is not None and activated.swallowed is not None:
            self._fail(
                self.engine.run(claimed.run.id),
                f"run() caught at {activated.swallowed} what ends an activation, and went on: let BaseException pass",
            )
        if self.raise_errors and activated is not None and activated.state is RunState.FAILED:
            raise self._error_of(self.engine.run(claimed.run.id), activated)

    def _error_of(self, run: Run, activated: Activated) -> BaseException:
        info = run.info()
        error = activated.error or RunFailed(
            run.id, info.reason or "", error_class=info.error_class, error_message=info.error_message
        )
        error.add_note(self.timeline(run))
        return without_library_frames(error)

    def _travel_up_to(self, instant: datetime) -> None:
        self.clock.travel(max(timedelta(), instant - self.now))


def _ended(run: Run) -> dict[int, StepExecution]:
    return {row.position: row for row in run.steps if row.kind in BODIES and row.finished_at is not None}


def _due_at(run: Run) -> datetime | None:
    """When the run will go on by itself; None if it will not."""
    row = run.info()
    return (row.wake_at or row.lease_expires_at) if row.state in LIVE else None


@contextmanager
def _limited(run: Run, count: int) -> Iterator[None]:
    """Let the run's current step, in its class, end after so many items."""
    workflow: Any = find_workflow(run.workflow)
    plan, name = workflow.plan, run.current_step
    spec = None if name is None else plan.find(name)
    if spec is None or not spec.is_resumable:
        raise ValueError(f"run_iterations() needs a run at a resumable step; this one is at {name!r}.")
    limited = replace(spec, max_iterations=min(count, spec.max_iterations or count))
    workflow.plan = replace(plan, steps=tuple(limited if each is spec else each for each in plan.steps))
    try:
        yield
    finally:
        workflow.plan = plan
