"""Long steps that hypothesis makes up: how a body goes through its items, and what befalls the run meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from hypothesis import strategies as st
from sqlalchemy import select

from stepwell import Retry, Run, RunError, Workflow, resumable_step
from stepwell.entries import Settlement
from stepwell.states import ATTENTION
from tests.integration.interruptions.stage import ITEMS, Died, Item, Stage, write_line

__all__ = ["EVENTS", "WALKS", "Trip", "Walk"]

HOUR: Final = timedelta(hours=1)
_MOST_RESUMES: Final = 50
_RANKED: Final = sorted(range(1, ITEMS + 1), key=lambda n: (-(n // 3), n))


@dataclass(frozen=True)
class Walk:
    """A resumable step: how it goes, its options, at which items it fails once, and whether a heartbeat shows it."""

    style: str
    size: int
    every: int
    iterations: int | None
    fails_at: frozenset[int]
    delay: timedelta
    shows: bool

    @property
    def items(self) -> list[int]:
        """What it goes through, in its order."""
        return (_RANKED if self.style == "by rank" else list(range(1, ITEMS + 1)))[: self.size]


WALKS = st.builds(
    Walk,
    style=st.sampled_from(
        ["sequence", "select", "by rank", "batches", "set", "generator", "async generator", "skip_to"]
    ),
    size=st.sampled_from([0, 1, *range(3, ITEMS + 1)]),
    every=st.integers(1, 3),
    iterations=st.sampled_from([None, 1, 2, 3]),
    fails_at=st.frozensets(st.integers(1, ITEMS), max_size=2),
    delay=st.sampled_from([timedelta(), HOUR]),
    shows=st.booleans(),
)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 12), st.sampled_from(["pause", "pause", "resume", "skip", "cancel", "show", "wake"])
    ),
    max_size=3,
).map(lambda events: tuple(sorted(events)))


class Trip:
    """A run of one long step, with its fate."""

    def __init__(self, stage: Stage, walk: Walk, crashes: Any = frozenset(), events: Any = ()) -> None:
        self.stage = stage
        self.walk = walk
        self.crashes = crashes
        self.events = list(events)
        self.boundaries: Counter[str] = Counter()
        self.failed: set[int] = set()
        self.given: set[str] = set()
        self.has_just_begun = False
        self.workflow = self.made()
        self.run: Run = self.workflow.with_options(engine=stage.well).start()

    def made(self) -> Any:
        walk, trip = self.walk, self

        class Trip(Workflow):
            max_recoveries = 100
            policies = [Retry(ConnectionError, attempts=9, wait=walk.delay)]

            def before_step(self, step: str) -> None:
                trip.has_just_begun = True

            go = resumable_step(name="go", checkpoint_every=walk.every, max_iterations=walk.iterations)(
                self.body()
            )

        return Trip

    def body(self) -> Any:
        def plain(workflow: Any) -> None:
            self.go_through(workflow)

        def yielding(workflow: Any) -> Iterator[Any]:
            for item in self.rest(workflow):
                self.do(workflow, item)
                yield item

        async def async_yielding(workflow: Any) -> AsyncIterator[Any]:
            for item in self.rest(workflow):
                await workflow.in_session(lambda session, item=item: self.do(workflow, item))
                yield item

        return {"generator": yielding, "async generator": async_yielding}.get(self.walk.style, plain)

    def go_through(self, workflow: Any) -> None:
        if self.walk.style in ("set", "skip_to"):
            self.go_by_hand(workflow)
            return
        for item in self.iterated(workflow.cursor):
            self.do(workflow, item)

    def iterated(self, cursor: Any) -> Iterator[int]:
        chosen = select(Item).where(Item.id.in_(self.walk.items))
        match self.walk.style:
            case "sequence":
                yield from cursor.iterate(self.walk.items)
            case "select":
                yield from (record.id for record in cursor.iterate(chosen, page=3))
            case "by rank":
                yield from (record.id for record in cursor.iterate(chosen, key=Item.rank, page=3))
            case "batches":
                for batch in cursor.batches(chosen, size=2):
                    yield from (record.id for record in batch)

    def go_by_hand(self, workflow: Any) -> None:
        for item in self.rest(workflow):
            self.do(workflow, item)
            if self.walk.style == "set":
                workflow.cursor.set(item)
            else:
                workflow.cursor.skip_to(item, wait=HOUR if item % 2 else None)

    def rest(self, workflow: Any) -> list[int]:
        return [item for item in self.walk.items if item > (workflow.cursor.value or 0)]

    def do(self, workflow: Any, item: int) -> None:
        if self.walk.shows and self.has_just_begun:
            self.has_just_begun = False
            self.stage.show()
        write_line(workflow, f"item {item}")
        workflow.context["count"] = workflow.context.get("count", 0) + 1
        if item in self.walk.fails_at and item not in self.failed:
            self.failed.add(item)
            raise ConnectionError

    def at_boundary(self, moment: str, settlement: Settlement | None) -> None:
        number = self.boundaries[moment]
        self.boundaries[moment] += 1
        while moment == "with" and self.events and number >= self.events[0][0]:
            self.give(self.events.pop(0)[1])
        if (number, moment) in self.crashes:
            raise Died

    def give(self, verb: str) -> None:
        try:
            if verb == "show":
                self.stage.show()
            else:
                getattr(self.run, verb)()
                self.given.add(verb)
        except RunError:
            # It is not to be had in this state.
            return

    def go(self) -> Trip:
        """To the end; a person resumes what stops."""
        for _ in range(_MOST_RESUMES):
            self.stage.drive(self.run, self.at_boundary)
            if self.run.state not in ATTENTION:
                return self
            self.run.resume()
        raise AssertionError(f"does not come to an end: {self.run.explain()}")
