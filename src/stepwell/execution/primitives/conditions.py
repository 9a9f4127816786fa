"""Waiting for something to happen: a signal, a gate, a condition that is polled.

Each parks the run by compare-and-set on the counter that was seen before looking, so that what comes between the
look and the park is never lost. What ended a wait is a row of the journal: a retry of the step finds it there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from stepwell.clock import from_micros, later, to_micros
from stepwell.definition.waits import Poll, Signal
from stepwell.entries import Execution, Settlement
from stepwell.errors import Undecodable, Unstorable, WaitTimedOut
from stepwell.execution.attempts import stopped_at
from stepwell.execution.journal import Fact
from stepwell.execution.primitives.calls import Calls
from stepwell.execution.primitives.waiting import DUE, Waited, WaitFailed, holds
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.execution.suspension import find_suspension
from stepwell.states import UNFINISHED, ExecutionState, Kind, Outcome, Reason, RunState

__all__ = ["Conditions"]

_COUNTING: Final = (*UNFINISHED, ExecutionState.COMPLETED)


class Conditions:
    """Holds steps back until what they wait for has happened."""

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        self._recorder = recorder
        self._runtime = runtime
        self._calls = Calls(recorder, runtime)

    def wait_for(self, site: Site) -> Waited:
        """Park the run unless what the step waits for has happened.

        Raises:
            WaitFailed: It ran out, or the author's condition raised: an error of the step, before its body.
        """
        spec = site.spec
        if spec.awaits is not None:
            return self._signal(site, spec.awaits)
        if spec.child is not None:
            return self._calls.wait_for(site, spec.child)
        is_under_way = not site.is_wait and stopped_at(self._recorder.history, site) is not None
        if (spec.gate is None and spec.poll is None) or is_under_way:
            # A step that is under way has its wait behind it.
            return DUE
        if spec.gate is not None:
            return self._gate(site, spec.gate)
        return DUE if spec.poll is None else self._poll(site, spec.poll)

    # -- signals ------------------------------------------------------------------------------------------------

    def _signal(self, site: Site, wanted: Signal) -> Waited:
        recorder = self._recorder
        known = self._known(site, Kind.SIGNAL)
        if known is not None and known.state == ExecutionState.COMPLETED:
            return self._answered(known.result)
        now = recorder.now()
        deadline = known.scheduled_for if known else _after(now, wanted.timeout)
        row = self._row(site, Kind.SIGNAL, known, deadline)
        letter = recorder.journal.unread_signal(wanted.name)
        # Both there at the moment of looking: the signal wins.
        if letter is not None:
            arrived = _ended(row, now, Outcome.SUCCESS, letter.payload or "null")
            recorder.record(arrived, next_step=site.name, consumes=letter.id)
            return self._answered(arrived.result)
        if deadline is not None and now >= deadline:
            # Of a deadline that is an instant, what is left of it by now says nothing.
            waited = max(timedelta(), deadline - (row.started_at or now))
            what = f"signal {wanted.name!r} did not come within {waited}"
            return self._ran_out(site, row, now, wanted, what)
        return self._park(
            Settlement(RunState.AWAITING, reason=Reason.SIGNAL, wake_at=deadline), row, is_new=known is None
        )

    # -- gates --------------------------------------------------------------------------------------------------

    def _gate(self, site: Site, condition: Callable[[Any], object]) -> Waited:
        known = self._known(site, Kind.GATE)
        row = self._row(site, Kind.GATE, known, None)
        if self._holds(site, condition):
            self._pass(site, row, is_announced=known is not None and known.state in UNFINISHED)
            return DUE
        is_new = known is None or known.state not in UNFINISHED
        return self._park(Settlement(RunState.AWAITING, reason=Reason.GATE), row, is_new=is_new)

    # -- polls --------------------------------------------------------------------------------------------------

    def _poll(self, site: Site, poll: Poll) -> Waited:
        recorder = self._recorder
        known = self._known(site, Kind.POLL)
        if known is not None and known.state == ExecutionState.COMPLETED:
            return DUE
        began = recorder.now()
        deadline = _stored_deadline(known or self._failed_look(site)) or _after(began, poll.timeout)
        row = self._row(site, Kind.POLL, known, None)
        if known is not None and known.scheduled_for is not None and began < known.scheduled_for:
            # Woken ahead of its time (a pause and a resume): what remains of the interval is kept.
            return self._park(
                Settlement(RunState.WAITING, reason=Reason.POLL, wake_at=known.scheduled_for),
                row,
                is_new=False,
            )
        details = None if deadline is None else json.dumps({"deadline": to_micros(deadline)})
        try:
            is_met = self._holds(site, poll.is_met)
        except WaitFailed as failure:
            now = recorder.now()
            if deadline is not None and now >= deadline and find_suspension(failure.error) is None:
                what = f"its condition did not hold within {poll.timeout}, and raised at the last look"
                return self._ran_out(site, row, now, poll, what, failure.error)
            failure.details, failure.give_up_at = details, deadline
            if deadline is not None and known is None and not site.is_called:
                failure.kept = replace(row, details=details)
            raise
        if is_met:
            self._pass(site, row, is_announced=known is not None)
            return DUE
        now = recorder.now()
        if deadline is not None and now >= deadline:
            return self._ran_out(site, row, now, poll, f"its condition did not hold within {poll.timeout}")
        again = later(now, poll.every)
        again = again if deadline is None else min(again, deadline)
        row = replace(row, scheduled_for=again, details=details)
        return self._park(Settlement(RunState.WAITING, reason=Reason.POLL, wake_at=again), row, is_new=True)

    def _failed_look(self, site: Site) -> Fact | None:
        """The row of a look that is repeated at once, in ``run()``: the wait goes on."""
        facts = site.facts(self._recorder.history) if site.is_wait else ()
        return facts[-1] if facts and facts[-1].outcome == Outcome.RETRIED else None

    # -- common -------------------------------------------------------------------------------------------------

    def _known(self, site: Site, kind: Kind) -> Fact | None:
        """The row of this wait, unless it ran out: after an error that was retried the wait begins anew."""
        facts = self._recorder.history.of(kind, site.name, _key_of(site, kind))
        return facts[-1] if facts and facts[-1].state in _COUNTING else None

    def _row(self, site: Site, kind: Kind, known: Fact | None, until: datetime | None) -> Execution:
        is_open = known is not None and known.state in UNFINISHED
        return Execution(
            position=known.position if known is not None and is_open else self._recorder.next_position,
            name=site.name,
            key=_key_of(site, kind),
            kind=kind,
            state=ExecutionState.SCHEDULED,
            scheduled_for=until,
            started_at=known.started_at if known is not None and is_open else self._recorder.now(),
            details=known.details if known is not None and is_open else None,
        )

    def _park(self, settlement: Settlement, row: Execution, *, is_new: bool) -> Waited:
        recorder = self._recorder
        ended = recorder.park(settlement, row) if is_new else recorder.park(settlement)
        return Waited(is_due=False, ended=ended)

    def _pass(self, site: Site, row: Execution, *, is_announced: bool) -> None:
        """What was waited for holds.

        A declared step's wait that was never written down is not written down as over either; ``run()`` must
        find it again.
        """
        if is_announced or site.is_called:
            self._recorder.record(
                _ended(row, self._recorder.now(), Outcome.SUCCESS, "null"), next_step=site.name
            )

    def _ran_out(
        self,
        site: Site,
        row: Execution,
        now: datetime,
        wait: Signal | Poll,
        what: str,
        error: BaseException | None = None,
    ) -> Waited:
        if wait.has_default:
            try:
                text = self._recorder.codec.dumps(wait.default, what=f"default of step {site.name!r}")
            except Unstorable as refusal:
                raise WaitFailed(refusal) from refusal
            self._recorder.record(_ended(row, now, Outcome.TIMED_OUT, text), next_step=site.name)
            return self._answered(text)
        failed = replace(
            row, state=ExecutionState.FAILED, outcome=Outcome.TIMED_OUT, finished_at=now, error_message=what
        )
        ran_out = WaitTimedOut(f"step {site.name!r}: {what}.")
        ran_out.__cause__ = error
        raise WaitFailed(ran_out, failed)

    def _answered(self, text: str | None) -> Waited:
        try:
            value = None if text is None else self._recorder.codec.loads(text, what="payload of the signal")
        except Undecodable as error:
            raise WaitFailed(error) from error
        return Waited(is_due=True, payload=value)

    def _holds(self, site: Site, condition: Callable[[Any], object]) -> bool:
        return holds(self._runtime, site, self._recorder.journal.open_scope(), condition)


def _key_of(site: Site, kind: Kind) -> str | None:
    """A declared step's signal has its name here; what is called from ``run()`` has the call's own key."""
    awaits = site.spec.awaits
    return awaits.name if kind is Kind.SIGNAL and awaits is not None and not site.is_called else site.key


def _ended(row: Execution, at: datetime, outcome: Outcome, result: str) -> Execution:
    return replace(row, state=ExecutionState.COMPLETED, outcome=outcome, finished_at=at, result=result)


def _after(now: datetime, timeout: Any) -> datetime | None:
    return None if timeout is None else later(now, timeout)


def _stored_deadline(known: Fact | None) -> datetime | None:
    if known is None or known.details is None:
        return None
    try:
        micros = json.loads(known.details).get("deadline")
        return None if micros is None else from_micros(micros)
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise Undecodable(f"the deadline of {known.name!r} cannot be read back: {known.details!r}") from error
