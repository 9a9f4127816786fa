"""What a driver needs from the world: a run's journal, the time, and a scope for each attempt.

``execution`` knows no database. The engine implements these protocols over the store; unit tests over a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from stepwell.definition.plan import Plan
from stepwell.definition.starting import Starter
from stepwell.entries import Execution, JournalEntry, Settlement, Verdict
from stepwell.execution.cursor import Pages
from stepwell.serialization import RecordRef

__all__ = [
    "Body",
    "ChildFacts",
    "Fact",
    "Journal",
    "Letter",
    "RunFacts",
    "Scope",
    "Succession",
    "TransientConflict",
    "WritesRefused",
]


class TransientConflict(BaseException):
    """The database undid a step's transaction for reasons of its own: the step is simply run again.

    It may pass through the author's code (at a checkpoint), which must not take it for an error of its own.

    Attributes:
        is_cut_off: The connection was ended at the commit: should that go on, it is what the step writes.
    """

    is_cut_off = False


class WritesRefused(Exception):
    """The database refuses to commit what a step wrote: an error of that step.

    Attributes:
        error: What the database said.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Fact(Protocol):
    """One row of the journal, as far as a driver looks at it."""

    @property
    def position(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def outcome(self) -> str | None: ...
    @property
    def args_digest(self) -> str | None: ...
    @property
    def result(self) -> str | None: ...
    @property
    def context_delta(self) -> str | None: ...
    @property
    def cursor(self) -> str | None: ...
    @property
    def continues_from(self) -> int | None: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def scheduled_for(self) -> datetime | None: ...
    @property
    def finished_at(self) -> datetime | None: ...
    @property
    def error_class(self) -> str | None: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def details(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A claimed run, decoded.

    Attributes:
        workflow: The class.
        begins_at: When the run was to begin: at its start, or at the instant that the start named. A first step's wait
            counts from here.
        options: What the start said beyond the columns.
        is_called: Another run has called it and waits for it.
    """

    id: UUID
    workflow: type[Any]
    plan: Plan
    version: int
    args: Mapping[str, Any]
    context: str | None
    current_step: str | None
    queue: str
    priority: int
    begins_at: datetime
    wakeups: int
    stop_request: str | None
    options: Mapping[str, Any]
    is_called: bool = False


@dataclass(frozen=True, slots=True)
class Letter:
    """A signal in the mailbox.

    Attributes:
        payload: As stored; None for a signal without one.
    """

    id: int
    payload: str | None


@dataclass(frozen=True, slots=True)
class ChildFacts:
    """How a run stands that another one waits for; one that was started over stands as the last of its chain.

    Attributes:
        result: As stored.
    """

    id: UUID
    state: str
    reason: str | None = None
    result: str | None = None
    error_class: str | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class Succession:
    """What a run that is started over hands to the one that goes on in its place.

    Attributes:
        run_id: The successor.
        args: Its arguments.
        context: Its context, whole and as a change, as stored; None for an empty one.
    """

    run_id: UUID
    args: Mapping[str, Any]
    context: tuple[str, str] | None


class Scope(Protocol):
    """The surroundings of one attempt at one step."""

    @property
    def hero(self) -> Any:
        """The record that the run is about, read afresh at first use.

        Raises:
            HeroGone: It no longer exists and the class does not say ``hero_optional``.
        """
        ...

    @property
    def session(self) -> Any:
        """The step's database session."""
        ...

    def load(self, ref: RecordRef) -> Any:
        """The record that a reference points to, attached to the step's session.

        Raises:
            RecordGone: There is none any more.
        """
        ...

    def preload(self) -> None:
        """Load the hero now: what follows runs on another thread.

        Raises:
            HeroGone: It no longer exists.
        """
        ...

    def pages(self) -> Pages:
        """Reads queries in pages, for a cursor."""
        ...

    def looking(self) -> AbstractContextManager[None]:
        """For a block in which the author's code is only asked: reading in it opens no transaction of the step's."""
        ...

    @property
    def is_here(self) -> bool:
        """This is the thread that the step's session belongs to."""
        ...

    def has_changes(self) -> bool:
        """Something was written through the session, or through an object that it loaded."""
        ...

    def flush(self) -> None:
        """Send pending changes of records, so that what the database refuses is an error of the body.

        Raises:
            TransientConflict: The database undid the transaction for reasons of its own.
        """
        ...

    def commit(self, entry: JournalEntry) -> Verdict:
        """Commit what was written with this entry, the token's guard last; not accepted: all was rolled back.

        Raises:
            TransientConflict: The database undid the transaction for reasons of its own.
            WritesRefused: It refuses what the step wrote.
        """
        ...

    def committed(self) -> None:
        """The entry is durable: do what was put off until then."""
        ...

    def abandon(self) -> None:
        """Undo all, of a body that was ended in the middle of anything: its connection may be, too."""
        ...

    def close(self) -> None:
        """Undo what is not settled and give everything back."""
        ...


class Body(Protocol):
    """A body under way. Most are over before anybody looks at them."""

    @property
    def name(self) -> str:
        """The step's name."""
        ...

    @property
    def is_called(self) -> bool:
        """``run()`` has called the step."""
        ...

    def shown(self) -> Execution:
        """The row that makes it visible; asked for by another thread than the body's."""
        ...


class Journal(Protocol):
    """A run's journal under a lease, and what goes with it."""

    def now(self) -> datetime:
        """The time by which leases and waits are judged."""
        ...

    def history(self) -> Sequence[Fact]:
        """The rows that count, in their order: those that a rewind superseded are left out."""
        ...

    def report(self, error: BaseException) -> None:
        """Tell the application's error reporter, if it has one."""
        ...

    def unread_signal(self, name: str) -> Letter | None:
        """The oldest signal of this name in the run's mailbox that nobody has read."""
        ...

    def child(self, run_id: UUID) -> ChildFacts | None:
        """How a run stands that this one waits for, newest; None when its row is gone."""
        ...

    def succeed(self, scope: Scope, succession: Succession) -> None:
        """Have the successor made in the scope's transaction, with the run's identity and what is in its mailbox.

        Raises:
            Unstorable: An argument cannot be stored.
        """
        ...

    def details_at_end(self) -> str | None:
        """The details of a run that is about to end, with how many signals nobody has read; None changes nothing."""
        ...

    def open_scope(self) -> Scope:
        """Surroundings for an attempt."""
        ...

    def write(
        self,
        executions: Sequence[Execution],
        *,
        current_step: str | None,
        context: str | None = None,
        settlement: Settlement | None = None,
        scope: Scope | None = None,
        consumes: int | None = None,
    ) -> Verdict:
        """Make it durable, together with what was written through the scope.

        Returns:
            Not accepted: a park was refused because something came; nothing was written.

        Raises:
            LeaseLost: The run is no longer ours; nothing was written.
            TransientConflict: The database undid the scope's transaction; nothing was written.
            WritesRefused: The database refuses what was written through the scope; nothing was written.
        """
        ...

    def ensure_lease(self) -> None:
        """Called before each body: renew a lease that is past its time.

        Raises:
            LeaseLost: It cannot be renewed.
        """
        ...

    def body_starts(self, body: Body) -> None:
        """A body begins; one that outlives a heartbeat is made visible."""
        ...

    def show_progress(self, done: int, total: int | None) -> None:
        """How far the running body has come; made visible by the next heartbeat."""
        ...

    def body_ends(self) -> None:
        """The body is over."""
        ...

    def call_home(self, work: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        """From a coroutine that runs for a step: call a function on the step's own thread."""
        ...

    def run_limited(self, work: Callable[[], Any], timeout: timedelta) -> Any:
        """Run it on this thread, and end it there when its time is up.

        Raises:
            StepTimedOut: It took longer than ``timeout``.
        """
        ...

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any], timeout: timedelta | None) -> Any:
        """Run it on the process's event loop and wait for it.

        Raises:
            StepTimedOut: It took longer than ``timeout`` and was cancelled.
            Interrupted: The worker drains and cancelled it.
        """
        ...

    def should_yield(self) -> bool:
        """The worker drains, or the time slice is used up while others wait: stop at this boundary."""
        ...

    @property
    def is_draining(self) -> bool:
        """The worker takes on nothing more."""
        ...

    @property
    def stop_requested(self) -> bool:
        """Somebody asked the run or its worker to stop."""
        ...

    @property
    def starter(self) -> Starter:
        """The engine."""
        ...
