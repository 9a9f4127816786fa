"""Questions about runs that read like sentences: ``well.runs(Onboarding).attention().for_hero(user).first()``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from stepwell.clock import require_duration
from stepwell.definition.identity import key_of
from stepwell.engine.heroes import hero_columns
from stepwell.engine.run import Run
from stepwell.errors import InvalidTransition, ResumeRefused, RunNotFound
from stepwell.states import ATTENTION, LIVE, TERMINAL, RunState
from stepwell.store.commands import Answer
from stepwell.store.reads import Order, RunFilter, count_runs, list_runs, run_ids
from stepwell.store.rows import RunRow

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["RunQuery"]

_PAGE: Final = 500


@dataclass(frozen=True)
class RunQuery:
    """A query over runs. Each method answers a narrower query; nothing is read before a result is asked for."""

    _engine: Stepwell
    workflows: tuple[str, ...] | None = None
    _wanted: RunFilter = field(default_factory=RunFilter)
    _order: Order = Order.NEWEST
    _limit: int | None = None

    # -- which runs ---------------------------------------------------------------------------------------------

    def live(self) -> RunQuery:
        """Runs that go on by themselves: ready, running, waiting, awaiting."""
        return self.in_state(*LIVE)

    def attention(self) -> RunQuery:
        """Runs that a person must look at: paused and failed."""
        return self.in_state(*ATTENTION)

    def finished(self) -> RunQuery:
        """Runs that are over: completed and canceled."""
        return self.in_state(*TERMINAL)

    def in_state(self, *states: RunState | str) -> RunQuery:
        """Runs in one of these states.

        Raises:
            ValueError: There is no such state.
        """
        unknown = [state for state in states if state not in set(RunState)]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no state of a run; the states are {', '.join(RunState)}")
        wanted, known = frozenset(RunState(state) for state in states), self._wanted.states
        return self._narrowed(states=wanted if known is None else wanted & frozenset(known))

    def for_hero(self, hero: object) -> RunQuery:
        """Runs about this record."""
        return self._with("hero", hero_columns(hero, self._engine.codec))

    def at_step(self, step: str) -> RunQuery:
        """Runs that stand at this step."""
        return self._with("step", step)

    def with_key(self, key: object) -> RunQuery:
        """Open runs with this identity: what ``with_options(key=)`` or ``unique_by`` gave them."""
        return self._with("digest", key_of(key, self._engine.codec).digest)

    def stuck_for(self, duration: timedelta) -> RunQuery:
        """Runs whose state has not changed for so long. A finished step that goes on at once changes no state."""
        before = self._engine.now() - require_duration(duration, "stuck_for()'s duration")
        known = self._wanted.changed_before
        return self._narrowed(changed_before=before if known is None else min(before, known))

    def newest(self) -> RunQuery:
        """In order of creation, the newest first (the default)."""
        return replace(self, _order=Order.NEWEST)

    def oldest(self) -> RunQuery:
        """In order of creation, the oldest first."""
        return replace(self, _order=Order.OLDEST)

    def limit(self, count: int) -> RunQuery:
        """At most so many."""
        if count < 0:
            raise ValueError(f"a limit is not negative; got {count}")
        return replace(self, _limit=count)

    def _with(self, condition: str, value: object) -> RunQuery:
        """Runs for which this holds, besides all that was said before: two different values hold for none."""
        known = getattr(self._wanted, condition)
        if known is not None and known != value:
            return self._narrowed(ids=())
        return self._narrowed(**{condition: value})

    def _narrowed(self, **conditions: Any) -> RunQuery:
        return replace(self, _wanted=replace(self._wanted, **conditions))

    # -- what is asked ------------------------------------------------------------------------------------------

    def infos(self) -> list[RunRow]:
        """The rows of the runs, in one read."""
        with self._engine.reading() as connection:
            return list_runs(connection, self._filter, self._order, self._limit)

    def all(self) -> list[Run]:
        """Handles on the runs."""
        return [Run(self._engine, row.id, created=False) for row in self.infos()]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.all())

    def first(self) -> Run | None:
        """The first of them, or None."""
        found = self.limit(1 if self._limit is None else min(1, self._limit)).all()
        return found[0] if found else None

    def count(self) -> int:
        """How many there are, whatever the limit."""
        with self._engine.reading() as connection:
            return count_runs(connection, self._filter)

    @property
    def _filter(self) -> RunFilter:
        return replace(self._wanted, workflows=self.workflows)

    # -- what is done to all of them ----------------------------------------------------------------------------

    def pause(self, reason: str | None = None, *, by: str | None = None) -> int:
        """Pause each of them (see ``Run.pause``); answer how many were paused or asked to."""
        return self._each(lambda run: run.pause(reason, by=by))

    def resume(self, *, by: str | None = None) -> int:
        """Resume each of them; answer how many."""
        return self._each(lambda run: run.resume(by=by))

    def cancel(self, reason: str | None = None, *, by: str | None = None, now: bool = False) -> int:
        """Cancel each of them, ``now`` or after the step that runs; answer how many were canceled or asked to."""
        return self._each(lambda run: run.cancel(reason, by=by, now=now))

    def skip(self, reason: str | None = None, *, by: str | None = None) -> int:
        """Skip the current step of each of them; answer how many."""
        return self._each(lambda run: run.skip(reason, by=by))

    def _each(self, command: Callable[[Run], Answer]) -> int:
        """One short transaction a run; one that has moved on in the meantime is passed over."""
        changed = 0
        for run_id in self._ids():
            try:
                changed += command(Run(self._engine, run_id, created=False)) is not Answer.UNCHANGED
            except (InvalidTransition, ResumeRefused, RunNotFound):
                continue
        return changed

    def _ids(self) -> Iterator[UUID]:
        if self._limit is not None:
            # Those that are listed: which ones they are depends on the order.
            yield from sorted(row.id for row in self.infos())
            return
        after = None
        while True:
            with self._engine.reading() as connection:
                page = run_ids(connection, self._filter, _PAGE, after)
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1]
