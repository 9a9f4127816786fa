"""Repeating something: from tick to tick, each announced in the very entry that ends the one before."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Final

from stepwell.clock import to_micros
from stepwell.definition.calendars import Expired
from stepwell.definition.repeats import Repetition
from stepwell.entries import Execution, Settlement
from stepwell.errors import Undecodable
from stepwell.execution.attempts import attempts_so_far, closed, is_rescheduled, latest_scheduled
from stepwell.execution.outcome import Activated
from stepwell.execution.primitives.approach import Approach
from stepwell.execution.primitives.waiting import DUE, Waited, holds
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.execution.ticks import Tick
from stepwell.logs import facts_logger
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState

__all__ = ["Repeats"]

_log: Final = facts_logger(__name__)
_LOOK_AGAIN: Final = Waited(is_due=False)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Takes a run from tick to tick of one repetition.

    Attributes:
        recorder: The run's journal.
        runtime: What the workflow's methods see.
        approach: The way to a tick's body.
        site: The call of ``repeat()``.
        repetition: When, and until when; its condition is called with the workflow.
    """

    recorder: Recorder
    runtime: ActivationRuntime
    approach: Approach
    site: Site
    repetition: Repetition

    def tick(self) -> Site:
        """The tick at which the repetition stands."""
        latest = self.recorder.history.last_tick(self.site.name, self.site.key)
        if latest is None:
            return self._site(self._first())
        tick = Tick.read(latest)
        if tick is None:
            raise Undecodable(
                f"tick {latest.position} of {self.site.label} cannot be read back: {latest.details!r}"
            )
        return self._site(tick)

    def take(self, site: Site) -> Activated | None:
        """Wait for a tick, and run it once.

        Returns:
            None when the run goes on: look where the repetition stands now. Else how the activation ended.
        """
        ended = self.approach.take(site, lambda: self._waited(site))
        if ended is None and not self.site.facts(self.recorder.history):
            # What it failed by is told; the run did not fail by it.
            self.runtime.failure = None
        return ended

    def _first(self) -> Tick:
        now, start_at = self.recorder.now(), self.repetition.start_at
        try:
            at = self.repetition.interval.first(now, start_at)
        except (OverflowError, ValueError):
            at = datetime.max.replace(tzinfo=UTC)
        anchor = now if start_at is None else start_at
        return Tick(1, _in_zone(at, UTC), _in_zone(anchor, UTC), since=now)

    def _site(self, tick: Tick) -> Site:
        args = (_in_zone(tick.at, self.repetition.interval.zone),) if self.repetition.takes_instant else ()
        return Site(
            self.site.spec,
            self.site.following,
            Kind.TICK,
            key=tick.key(self.site.key),
            is_called=True,
            args=args,
            tick=tick,
            then=lambda row, has_begun: (self._after(tick, row, has_begun),),
        )

    # -- before a tick ------------------------------------------------------------------------------------------

    def _waited(self, site: Site) -> Waited:
        """Look whether it is over, what has expired, and whether the tick is due.

        Raises:
            WaitFailed: What says that it is over raised: an error of this tick.
        """
        recorder, until = self.recorder, self.repetition.until
        if until is not None and holds(self.runtime, site, recorder.journal.open_scope(), until):
            self._end(site)
            return _LOOK_AGAIN
        announced = latest_scheduled(recorder.history, site)
        expired = self._expired(site, recorder.now())
        if expired is not None:
            self._leave_out(site, expired)
            return _LOOK_AGAIN
        due_at = self._due_at(site)
        if due_at <= recorder.now():
            return DUE
        row = replace(
            site.row(recorder.next_position, ExecutionState.SCHEDULED, scheduled_for=due_at),
            attempt=1 + attempts_so_far(recorder.history, site),
        )
        if announced is not None:
            row = replace(
                row,
                position=announced.position,
                cursor=announced.cursor,
                continues_from=announced.continues_from,
            )
        is_known = announced is not None and announced.scheduled_for == due_at
        reason = Reason.RETRY if due_at != _tick_of(site).at and row.attempt > 1 else Reason.TICK
        settlement = Settlement(RunState.WAITING, reason=reason, wake_at=due_at)
        return Waited(is_due=False, ended=recorder.park(settlement, *(() if is_known else (row,))))

    def _due_at(self, site: Site) -> datetime:
        """When the tick is to be run: at its instant, after the delay of a retry, or when a person has said."""
        facts, at = site.facts(self.recorder.history), _tick_of(site).at
        announced = latest_scheduled(self.recorder.history, site)
        if facts and is_rescheduled(announced or facts[-1]):
            return self.recorder.now() if announced is None else announced.scheduled_for or at
        if announced is None or announced.scheduled_for is None:
            return at
        return max(at, announced.scheduled_for)

    def _expired(self, site: Site, now: datetime) -> Expired | None:
        """The ticks that come too late; one that was tried already, or that a person has moved, does not."""
        facts, tick = site.facts(self.recorder.history), _tick_of(site)
        if facts and (
            len(facts) > 1 or facts[0].state != ExecutionState.SCHEDULED or is_rescheduled(facts[0])
        ):
            return None
        try:
            return self.repetition.interval.expired(tick.at, tick.anchor, now, self.repetition.timeout)
        except (OverflowError, ValueError):
            # Its grid ends with the calendar.
            return None

    def _leave_out(self, site: Site, expired: Expired) -> None:
        """All of them in one row, and the first one that counts again is announced with it."""
        recorder, tick = self.recorder, _tick_of(site)
        announced = latest_scheduled(recorder.history, site)
        row = site.row(
            recorder.next_position if announced is None else announced.position,
            ExecutionState.SKIPPED,
            outcome=Outcome.TIMED_OUT,
            scheduled_for=tick.at,
            finished_at=recorder.now(),
            details=json.dumps({"expired": expired.count, "last": to_micros(expired.last)}),
        )
        following = replace(tick, number=tick.number + expired.count, at=expired.then)
        recorder.record(row, self._announced(following, row), next_step=self.site.following)
        run = recorder.run
        facts = {"run_id": str(run.id), "workflow": run.plan.workflow, "step": self.site.label}
        _log.warning(
            "ticks of a repetition were left out, since they had expired",
            extra={"action": "repeat.expired", "count": expired.count, **facts},
        )

    # -- after a tick -------------------------------------------------------------------------------------------

    def _after(self, tick: Tick, row: Execution, has_begun: bool) -> Execution:
        """What is recorded together with the end of a tick: the next one, or that there is none."""
        if row.state is ExecutionState.FAILED and (self.repetition.fails or not has_begun):
            # Whose condition is broken would never know when to stop: that ends it, whatever on_error says.
            return self.site.row(
                self._position_after(row),
                ExecutionState.FAILED,
                outcome=Outcome.FAILED,
                started_at=tick.since,
                finished_at=row.finished_at,
                error_class=row.error_class,
                error_message=row.error_message,
            )
        done = tick.done + (row.outcome is Outcome.SUCCESS)
        try:
            at = self.repetition.interval.after(tick.at, tick.anchor)
        except (OverflowError, ValueError):
            # Beyond the end of the calendar: never.
            at = datetime.max.replace(tzinfo=UTC)
        return self._announced(replace(tick, number=tick.number + 1, at=at, done=done), row)

    def _announced(self, tick: Tick, row: Execution) -> Execution:
        return self._site(tick).row(
            self._position_after(row), ExecutionState.SCHEDULED, scheduled_for=tick.at
        )

    def _position_after(self, row: Execution) -> int:
        return max(self.recorder.next_position, row.position + 1)

    def _end(self, site: Site) -> None:
        """It is over: the tick that was announced does not come, and the call is answered."""
        recorder, tick, now = self.recorder, _tick_of(site), self.recorder.now()
        announced = latest_scheduled(recorder.history, site)
        rows = (
            [] if announced is None else [closed(announced, ExecutionState.CANCELED, Outcome.CANCELED, now)]
        )
        over = self.site.row(
            recorder.next_position,
            ExecutionState.COMPLETED,
            outcome=Outcome.SUCCESS,
            started_at=tick.since,
            finished_at=now,
            result=recorder.codec.dumps(tick.done, what=f"result of {self.site.label}"),
        )
        recorder.record(*rows, over, next_step=self.site.following)


def _in_zone(instant: datetime, zone: tzinfo) -> datetime:
    """The instant as the zone's clocks show it; one that they cannot show any more, as the last that UTC knows."""
    try:
        return instant.astimezone(zone)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _tick_of(site: Site) -> Tick:
    if site.tick is None:
        raise TypeError(f"{site.label} is no tick")
    return site.tick
