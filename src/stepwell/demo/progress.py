"""How far the demo's runs have come, read from the database while a worker is busy with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select

from stepwell import RunState, Stepwell
from stepwell.demo.onboarding import Onboarding
from stepwell.demo.records import LedgerEntry

__all__ = ["STEPS", "Progress", "read_progress"]

STEPS: Final = tuple(spec.name for spec in Onboarding.plan.steps)


@dataclass(frozen=True, slots=True)
class Progress:
    """One look.

    Attributes:
        seconds: Since the beginning.
        customers: How many runs there are.
        states: How many of them are in each state.
        done: How many rows the ledger has for each step.
        worker: Who is at work.
    """

    seconds: float
    customers: int
    states: Mapping[RunState, int]
    done: Mapping[str, int]
    worker: str

    @property
    def rows(self) -> int:
        """All rows of the ledger."""
        return sum(self.done.values())

    @property
    def share(self) -> float:
        """The share of all steps that is done."""
        return self.rows / (self.customers * len(STEPS))

    @property
    def in_flight(self) -> int:
        """How many runs the worker holds just now."""
        return self.states[RunState.RUNNING]

    @property
    def is_over(self) -> bool:
        """No run has anything left to do."""
        return self.states[RunState.COMPLETED] == self.customers


def read_progress(well: Stepwell, customers: int, seconds: float, worker: str) -> Progress:
    """Look at the runs and the ledger; a reader waits for no writer."""
    runs = well.runs(Onboarding)
    states = {state: runs.in_state(state).count() for state in RunState}
    with well.reading() as connection:
        rows = connection.execute(select(LedgerEntry.step, func.count()).group_by(LedgerEntry.step))
        counted = {step: number for step, number in rows}
    return Progress(seconds, customers, states, {step: counted.get(step, 0) for step in STEPS}, worker)
