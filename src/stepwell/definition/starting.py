"""What a class asks of an engine when it is started, and which engine that is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from uuid import UUID

from stepwell.definition.runtime import current
from stepwell.errors import StoreError

if TYPE_CHECKING:
    # For the type checkers of users only: a start answers the engine's handle, which nothing here looks into.
    from stepwell.definition.finding import IfMissing, Wanted
    from stepwell.engine.run import Run

__all__ = [
    "CONFLICT_MODES",
    "OPTION_NAMES",
    "Call",
    "ConflictMode",
    "Parentage",
    "StartOptions",
    "Starter",
    "default_engine",
    "set_default_engine",
    "starter_for",
]

ConflictMode = Literal["reject", "skip", "replace"]
CONFLICT_MODES: Final[tuple[ConflictMode, ...]] = ("reject", "skip", "replace")


@dataclass(frozen=True, slots=True)
class Call:
    """A workflow with the hero and the arguments of one start, already checked against the class.

    Attributes:
        workflow: The class.
        hero: The record that the run is about, or None.
        args: The start's keyword arguments, by name.
    """

    workflow: type[Any]
    hero: Any = None
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Everything about a start that is not an argument of the workflow; None means "as the class says".

    Attributes:
        session: The caller's database session: the run exists if its transaction commits.
        connection: The same, as a connection; excludes ``session``.
        engine: The engine; by default the one that drives the current run, else the process's default.
        key: The identity of the run, named by hand.
        queue: The queue that its steps run in.
        priority: 0 is the most urgent.
        at: When the first step becomes due: an aware instant, or a duration from now.
        on_conflict: What to do when the identity is taken.
        same_args: ``on_conflict="skip"`` answers only for a run with the same arguments.
    """

    session: Any = None
    connection: Any = None
    engine: Starter | None = None
    key: object = None
    queue: str | None = None
    priority: int | None = None
    at: datetime | timedelta | None = None
    on_conflict: ConflictMode | None = None
    same_args: bool = True


@dataclass(frozen=True, slots=True)
class Parentage:
    """What makes a run the child of another one.

    Attributes:
        run_id: The child's own id: a start that is repeated finds the run that it has made.
        parent_id: The parent.
        branch: What the child is to it, for people: the name of the call.
        open_branch: What the child carries until it is over: who waits, and at which place of its journal.
    """

    run_id: UUID
    parent_id: UUID
    branch: str
    open_branch: str


OPTION_NAMES: Final = tuple(option.name for option in fields(StartOptions))


class Starter(Protocol):
    """The engine, as far as a class needs it."""

    def start(self, call: Call, options: StartOptions) -> Run:
        """Start one run and return a handle on it."""
        ...

    def start_many(self, calls: Iterable[Call], options: StartOptions) -> list[Run]:
        """Start many runs in few statements and return their handles in the same order."""
        ...

    def find(self, wanted: Wanted, options: StartOptions, missing: IfMissing) -> Run | None:
        """The open run that is meant; None if there is none and that is no error."""
        ...

    def start_child(self, call: Call, options: StartOptions, parentage: Parentage) -> Run:
        """Start a run for the one whose step or call is active here, in its transaction."""
        ...


_default: Starter | None = None


def set_default_engine(engine: Starter | None) -> None:
    """Make ``engine`` the one that ``Workflow.start`` uses in this process; None takes it away."""
    global _default  # noqa: PLW0603 - the one piece of state that a process shares
    _default = engine


def default_engine() -> Starter:
    """The engine that ``Workflow.start`` uses when no other is named.

    Raises:
        StoreError: There is none yet.
    """
    if _default is None:
        raise StoreError(
            'there is no default engine in this process. Create one first, Stepwell("sqlite:///app.db"), '
            "or name one: with_options(engine=...)."
        )
    return _default


def starter_for(options: StartOptions) -> Starter:
    """The engine to start with: the one named, else the one that drives the current run, else the default."""
    if options.engine is not None:
        return options.engine
    runtime = current.get()
    return default_engine() if runtime is None else runtime.starter
