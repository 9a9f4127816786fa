"""Waiting for an instant: one row that announces the step, and a parked run."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from stepwell.clock import later, require_aware
from stepwell.entries import Settlement
from stepwell.execution.attempts import is_rescheduled, latest_scheduled, stopped_at
from stepwell.execution.journal import Fact
from stepwell.execution.primitives.waiting import DUE, Waited, WaitFailed, ask
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState
from stepwell.texts import shown

__all__ = ["Timer"]

_ENDS: Final = (Outcome.SUCCESS, Outcome.SKIPPED)


class Timer:
    """Holds steps back until they are due."""

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        self._recorder = recorder
        self._runtime = runtime

    def wait_for(self, site: Site) -> Waited:
        """Park the run unless the step is due.

        The instant of ``wait=`` is anchored at the end of the previous step and fixed when first computed; a
        delay before a retry is fixed too. ``wait_until=`` is computed anew each time, so a moved appointment
        moves it; but not one that a person has set.
        """
        recorder, spec = self._recorder, site.spec
        announced = latest_scheduled(recorder.history, site) if recorder.history.open else None
        if announced is None and spec.wait is None and spec.wait_until is None:
            return DUE
        due_at = self._due_at(site, announced)
        if due_at is None or due_at <= recorder.now():
            return DUE
        row = site.row(
            announced.position if announced else recorder.next_position,
            ExecutionState.SCHEDULED,
            attempt=announced.attempt if announced else 1,
            scheduled_for=due_at,
            cursor=announced.cursor if announced else None,
            continues_from=announced.continues_from if announced else None,
        )
        known = announced is not None and announced.scheduled_for == due_at
        reason = Reason.RETRY if announced is not None and announced.attempt > 1 else Reason.TIMER
        settlement = Settlement(RunState.WAITING, reason=reason, wake_at=due_at)
        ended = recorder.park(settlement) if known else recorder.park(settlement, row)
        return Waited(is_due=False, ended=ended)

    def pass_by(self, site: Site) -> Waited:
        """A sleep in ``run()``: park the run until its instant, then note that it is over.

        The instant of ``wait=`` and of a given ``wait_until=`` is fixed when first reached; one that is computed moves
        with what it is computed from.
        """
        recorder, wait_until = self._recorder, site.spec.wait_until
        known = latest_scheduled(recorder.history, site)
        now = recorder.now()
        if (
            known is not None
            and known.scheduled_for is not None
            and (is_rescheduled(known) or not callable(wait_until))
        ):
            until = known.scheduled_for
        elif callable(wait_until):
            until = self._computed(site, wait_until)
        else:
            until = wait_until or later(now, site.spec.wait or timedelta())
        row = site.row(
            known.position if known else recorder.next_position,
            ExecutionState.SCHEDULED,
            scheduled_for=until,
            started_at=known.started_at if known else now,
        )
        if until <= now:
            over = replace(
                row, state=ExecutionState.COMPLETED, outcome=Outcome.SUCCESS, finished_at=now, result="null"
            )
            recorder.record(over, next_step=site.following)
            return DUE
        settlement = Settlement(RunState.WAITING, reason=Reason.TIMER, wake_at=until)
        is_known = known is not None and known.scheduled_for == until
        return Waited(is_due=False, ended=recorder.park(settlement, *(() if is_known else (row,))))

    def _due_at(self, site: Site, announced: Fact | None) -> datetime | None:
        spec = site.spec
        if stopped_at(self._recorder.history, site) is not None:
            return announced.scheduled_for if announced else None
        facts = site.facts(self._recorder.history)
        if facts and is_rescheduled(announced or facts[-1]):
            # A person has said when; a retry that follows has the delay of its policy, if any.
            return announced.scheduled_for if announced else None
        if spec.wait_until is not None:
            computed = self._computed(site, spec.wait_until)
            if announced is None or announced.attempt == 1 or announced.scheduled_for is None:
                return computed
            # The delay before a retry holds too.
            return max(computed, announced.scheduled_for)
        if announced is not None:
            return announced.scheduled_for
        # The step's own wait was over before its first attempt; what follows has delays of its own.
        if spec.wait is None or facts:
            return None
        return later(self._anchor(), spec.wait)

    def _anchor(self) -> datetime:
        """When the previous step ended; for a first step, when the run was to begin."""
        for fact in reversed(self._recorder.history):
            if fact.finished_at is not None and fact.kind == Kind.STEP and fact.outcome in _ENDS:
                return fact.finished_at
        return self._recorder.run.begins_at

    def _computed(self, site: Site, wait_until: Any) -> datetime:
        if isinstance(wait_until, datetime):
            return wait_until
        answer = ask(self._runtime, site, self._recorder.journal.open_scope(), wait_until)
        try:
            return _instant(answer, f"wait_until of step {site.name!r}")
        except TypeError as error:
            raise WaitFailed(error) from error


def _instant(answer: object, what: str) -> datetime:
    if not isinstance(answer, datetime):
        raise TypeError(f"{what} must answer an aware datetime; got {shown(answer)}")
    return require_aware(answer, what)
