"""One run's journal as both drivers write it: positions, context, and the counter that closes races."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import reduce
from typing import Final

from stepwell.entries import Execution, Settlement, honoured
from stepwell.execution.attempts import BESIDE
from stepwell.execution.changes import change_in, held_through, holding, merged
from stepwell.execution.context import Context
from stepwell.execution.deltas import AT_START, Deltas, is_seen_later
from stepwell.execution.history import History, repetition_of
from stepwell.execution.journal import Fact, Journal, Letter, RunFacts, Scope, Succession
from stepwell.execution.outcome import Activated
from stepwell.execution.suspension import LeaseLost
from stepwell.requests import CONTEXT_MAIL, StopRequest
from stepwell.serialization import Codec
from stepwell.states import TERMINAL, UNFINISHED, ExecutionState, Kind, Outcome, Reason, RunState
from stepwell.texts import details_of

__all__ = ["RESULT_LIMIT", "Recorder"]

RESULT_LIMIT: Final = 1024 * 1024
_LOOK_AT_CALLER: Final = timedelta(minutes=10)
_REPEATED: Final = frozenset({Kind.TICK, Kind.REPEAT})


class Recorder:
    """Writes a run's journal, entry by entry.

    Attributes:
        history: The rows that count, those written by this activation included.
        current_step: The step that the run is at; None past the last one.
        wakeups: The run's counter as last seen: what came after is not known yet.
        stop_request: What somebody asks of the run, as last seen.
        wake_by: A parked run is woken at this instant at the latest.
        settled: How this activation left the run, once it has.
        checkpoints: How many checkpoints were tried so far.
        chance: Answers from 0 to 1, for delays that are not to be the same for all.
    """

    def __init__(
        self,
        journal: Journal,
        run: RunFacts,
        codec: Codec,
        *,
        result_limit: int = RESULT_LIMIT,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.journal = journal
        self.run = run
        self.codec = codec
        self.result_limit = result_limit
        self.chance = chance
        # A replay begins with nothing, and makes each recorded change again where it was made.
        self.context = Context(None if run.plan.is_procedural else run.context, codec)
        self.current_step = run.current_step
        self.wakeups = run.wakeups
        self.stop_request = run.stop_request
        self.steps_done = 0
        self.wake_by: datetime | None = None
        self.settled: Settlement | None = None
        self.checkpoints = 0
        self.history = History(journal.history())
        self._deltas = Deltas(self.context)
        self._looked_at = 0
        self._is_replaying = self._is_compared = False

    @property
    def next_position(self) -> int:
        """The position of the next new row."""
        return self.history.last + 1

    def now(self) -> datetime:
        return self.journal.now()

    def record(
        self,
        *rows: Execution,
        next_step: str | None,
        scope: Scope | None = None,
        consumes: int | None = None,
    ) -> None:
        """Make rows durable, with the context that their step changed and what it wrote through its scope.

        Args:
            rows: The finished step first.
            next_step: The step that the run is at afterwards.
            scope: Its writes are committed too; None leaves them to be undone.
            consumes: The signal that the first row answers with.

        Raises:
            LeaseLost: Nothing was written.
        """
        if not self._write(rows, next_step, scope, consumes=consumes):
            raise LeaseLost

    # -- the context, from outside ------------------------------------------------------------------------------

    def take_up_changes(self) -> None:
        """What others have changed in the context is journaled, and holds from here on.

        Raises:
            Undecodable: It cannot be read.
        """
        self._look_for_changes("update")

    def take_up_first_changes(self) -> None:
        """``run()`` is about to be called: what others have changed before it called anything holds from its top.

        Raises:
            Undecodable: It cannot be read.
        """
        if all(fact.kind in BESIDE and not is_seen_later(fact) for fact in self.history):
            self._look_for_changes(AT_START)

    def _look_for_changes(self, name: str) -> None:
        while self.wakeups != self._looked_at:
            # Whatever comes after the look has moved the counter again.
            seen = self.wakeups
            letter = self.journal.unread_signal(CONTEXT_MAIL)
            if letter is None:
                self._looked_at = seen
            else:
                self._take_up(letter, name)

    def _take_up(self, letter: Letter, name: str) -> None:
        change = change_in(letter.payload)
        row = Execution(
            self.next_position,
            name,
            Kind.CONTEXT,
            ExecutionState.COMPLETED,
            Outcome.SUCCESS,
            context_delta=change.delta,
            finished_at=self.now(),
            details=change.note(),
        )
        # Without what run() has changed since its last call: that belongs to the next one.
        verdict = self.journal.write(
            (row,),
            current_step=self.current_step,
            context=self.context.stored_with(change.delta),
            consumes=letter.id,
        )
        self.wakeups, self.stop_request = verdict.wakeups, verdict.stop_request
        self.context.apply(change.delta)
        self._remember((row,), self.current_step)

    # -- replay -------------------------------------------------------------------------------------------------

    def begin_replay(self) -> None:
        """``run()`` begins at its top: the context is as it was at the start."""
        self._deltas.begin(self.history)
        self._is_replaying = True

    def replay(self, facts: Sequence[Fact]) -> None:
        """A call is answered by these rows: what they changed is changed now, and what was changed before them.

        That is whatever has an earlier position, as on the first pass: the changes of a call that was tried anew come
        after those of the calls that were made between its attempts.
        """
        if self._deltas and facts:
            self._deltas.reach(facts[-1].position)

    def catch_up(self) -> None:
        """Nothing more is answered by what was loaded: the context is what the whole journal says."""
        self._deltas.catch_up()

    # -- writing ------------------------------------------------------------------------------------------------

    def _write(
        self,
        rows: tuple[Execution, ...],
        next_step: str | None,
        scope: Scope | None = None,
        settlement: Settlement | None = None,
        consumes: int | None = None,
    ) -> bool:
        """Write one entry; False when it was refused because something came, which is known then."""
        changes = self.context.changes()
        whole = None
        if changes is None:
            whole = self._outdated()
        else:
            whole, delta = changes
            # What a person did is no call that a replay comes past: no change is found again there.
            if rows and rows[0].kind is not Kind.COMMAND:
                rows = (replace(rows[0], context_delta=delta), *rows[1:])
        rows = self._handed_on(rows) if rows and rows[0].kind in _REPEATED else rows
        rows = tuple(map(self._with_earlier_changes, rows)) if self.history.open else rows
        verdict = self.journal.write(
            rows,
            current_step=next_step,
            context=whole,
            settlement=settlement,
            scope=scope,
            consumes=consumes,
        )
        self.wakeups, self.stop_request = verdict.wakeups, verdict.stop_request
        if not verdict.accepted:
            return False
        if whole is not None:
            self._is_compared = True
            self.context.committed()
        self._remember(rows, next_step)
        self.settled = settlement
        return True

    def _outdated(self) -> str | None:
        """The whole context, where a replay has come to another one than the run's row says.

        What was rewound, or was changed by code that is gone, is in no row that counts any more.
        """
        # A declared workflow has its context from there, and a replay that has not begun has none yet.
        if not self._is_replaying or self._is_compared or self._deltas:
            return None
        self._is_compared = True
        return None if self.context.is_stored_as(self.run.context) else self.context.stored_text()

    def _with_earlier_changes(self, row: Execution) -> Execution:
        """A row that is written again keeps the changes that it recorded before: they were made, too.

        Those from outside that came since are between the two, and have higher positions: it holds them itself.
        """
        known = self.history.open.get(row.position)
        if known is None:
            return row
        if not self.run.plan.is_procedural:
            return replace(row, context_delta=merged(known.context_delta, row.context_delta))
        through = held_through(known.context_delta)
        outside = self.history.changes_behind(max(row.position, through))
        delta = reduce(merged, [*outside, row.context_delta], known.context_delta)
        if outside:
            through = self.history.outside[-1].position
        return replace(row, context_delta=holding(delta, through) if delta and through else delta)

    def _handed_on(self, rows: tuple[Execution, ...]) -> tuple[Execution, ...]:
        """What all ticks of a repetition have changed goes from each to the next, so that only the last one counts."""
        first = rows[0]
        site = (first.name, repetition_of(first.key))
        delta = merged(self.history.ticks_changes(*site), first.context_delta)
        return tuple(
            replace(row, context_delta=delta)
            if row.kind in _REPEATED and (row.name, repetition_of(row.key)) == site
            else row
            for row in rows
        )

    def park(self, settlement: Settlement, *rows: Execution, scope: Scope | None = None) -> Activated | None:
        """Leave the run in ``settlement`` unless something came since the counter was last seen.

        Returns:
            None when something came: the rows are durable, the lease is still ours, and the driver looks
            again. With a scope nothing is: what was written through it is undone.
        """
        settlement = self._woken_in_time(settlement)
        if self._write(rows, self.current_step, scope, replace(settlement, seen_wakeups=self.wakeups)):
            return self._activated(settlement)
        if rows and scope is None:
            self.record(*rows, next_step=self.current_step)
        return None

    def _woken_in_time(self, settlement: Settlement) -> Settlement:
        if self.run.is_called and settlement.state is RunState.AWAITING:
            # Should whoever calls its caller off die before it is told, it looks for itself.
            look_at = self.now() + _LOOK_AT_CALLER
            settlement = replace(settlement, wake_at=min(settlement.wake_at or look_at, look_at))
        if self.wake_by is None or settlement.state not in (RunState.WAITING, RunState.AWAITING):
            return settlement
        if self.wake_by <= self.now():
            # It has passed, and that is known: what comes of it has its own instant.
            return settlement
        return replace(settlement, wake_at=min(settlement.wake_at or self.wake_by, self.wake_by))

    def end(
        self,
        settlement: Settlement,
        *rows: Execution,
        scope: Scope | None = None,
        orphans: Sequence[str] = (),
    ) -> Activated:
        """Leave the run for good. It ends as it ends: a stop request that came too late stays on its row.

        Args:
            settlement: How.
            *rows: What is journaled with it.
            scope: Its writes are committed too.
            orphans: Recorded calls that the code does not reach any more, for whoever looks at the run.
        """
        frees = self.run.options.get("unique_for") != "ever"
        if self.wakeups or orphans:
            # Somebody has sent something: without that there is no mailbox to be looked into.
            details = self.journal.details_at_end()
            if orphans:
                details = json.dumps({**details_of(details), "orphans": list(orphans)})
            settlement = replace(settlement, details=details)
        self._write(rows, self.current_step, scope, replace(settlement, frees_identity=frees))
        request = StopRequest.parse(self.stop_request)
        return replace(self._activated(settlement), successor=None if request is None else request.successor)

    def hand_over(self, succession: Succession, *rows: Execution) -> Activated | None:
        """End the run and have another one go on in its place, unless something came since it was last looked at.

        Returns:
            None when something came: nothing was written, and the driver looks again.

        Raises:
            TransientConflict: The database undid it for reasons of its own.
            WritesRefused: The database refuses it.
        """
        scope = self.journal.open_scope()
        try:
            self.journal.succeed(scope, succession)
            settlement = Settlement(
                RunState.COMPLETED,
                reason=Reason.CONTINUED,
                seen_wakeups=self.wakeups,
                frees_identity=True,
                details=json.dumps({"continued_as": str(succession.run_id)}),
            )
            if not self._write(rows, None, scope, settlement):
                return None
            return self._activated(settlement)
        finally:
            scope.close()

    def honour(
        self,
        request: StopRequest,
        settlement: Settlement,
        *rows: Execution,
        next_step: str | None,
        scope: Scope | None = None,
    ) -> Activated | None:
        """Leave the run as somebody asked, and note who did, unless something came since it was last looked at.

        Args:
            request: What is asked.
            settlement: How that leaves the run.
            *rows: What is journaled with it.
            next_step: The step that the run is at afterwards.
            scope: Its writes are committed too.

        Returns:
            None when something came: nothing was written, and the driver looks again.
        """
        if settlement.state in TERMINAL:
            frees = self.run.options.get("unique_for") != "ever"
            settlement = replace(settlement, frees_identity=frees, details=self.journal.details_at_end())
            # What was to come next does not come any more.
            rows = tuple(row for row in rows if row.state not in UNFINISHED)
        settlement = replace(settlement, answers_request=True, seen_wakeups=self.wakeups)
        position = max([self.history.last, *(row.position for row in rows)]) + 1
        noted = (*rows, honoured(request, position, self.now()))
        if not self._write(noted, next_step, scope, settlement):
            return None
        return replace(self._activated(settlement), successor=request.successor)

    def stop(
        self, settlement: Settlement, *rows: Execution, next_step: str | None, scope: Scope | None = None
    ) -> Activated | None:
        """Leave the run until a person acts, unless somebody has asked for something stronger meanwhile.

        Returns:
            None when the step that the run is still at is to be skipped: the rows are durable, and the driver
            looks again.
        """
        while True:
            ended: Activated | None = None
            match StopRequest.parse(self.stop_request):
                case StopRequest(verb="cancel") as request:
                    canceled = Settlement(RunState.CANCELED, reason=request.reason)
                    ended = self.honour(request, canceled, *rows, next_step=next_step, scope=scope)
                case StopRequest(verb="skip", step=step) if step == next_step and not _is_body(rows):
                    self.record(*rows, next_step=next_step, scope=scope)
                    return None
                case StopRequest(verb="pause") as request:
                    # It stands still, if not for that.
                    ended = self.honour(request, settlement, *rows, next_step=next_step, scope=scope)
                case _:
                    checked = replace(settlement, answers_request=True, seen_wakeups=self.wakeups)
                    if self._write(rows, next_step, scope, checked):
                        ended = self._activated(settlement)
            if ended is not None:
                return ended

    def hand_back(
        self, *, reason: Reason | None = None, queue: str | None = None, priority: int | None = None
    ) -> Activated:
        """Give the run back, due at once: to another queue, to whoever is next, or as the worker drains."""
        settlement = Settlement(
            RunState.READY, reason=reason, due_at=self.now(), queue=queue, priority=priority
        )
        self._write((), self.current_step, None, settlement)
        return replace(self._activated(settlement), ready_in=queue or self.run.queue)

    def answer(self) -> Activated | None:
        """The stop request was done, or is void: give the run back without it.

        Returns:
            None when another request came in its place: the driver looks again.
        """
        settlement = Settlement(RunState.READY, due_at=self.now(), answers_request=True)
        activated = self.park(settlement)
        return None if activated is None else replace(activated, ready_in=self.run.queue)

    def _activated(self, settlement: Settlement) -> Activated:
        return Activated(settlement.state, self.steps_done, settlement.reason, settlement.wake_at)

    def _remember(self, rows: Sequence[Execution], next_step: str | None) -> None:
        for row in rows:
            self.history.remember(row)
        self.current_step = next_step


def _is_body(rows: Sequence[Execution]) -> bool:
    """It is ``run()`` itself that stops, and there is no step to be left out."""
    return bool(rows) and rows[0].kind is Kind.BODY
