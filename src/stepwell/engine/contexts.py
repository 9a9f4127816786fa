"""A run's context from outside: a mapping as of now, and the way to change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from stepwell.definition.starting import StartOptions
from stepwell.errors import RunNotFound
from stepwell.execution.changes import change_in, taken_out
from stepwell.execution.context import Context, handed_over
from stepwell.requests import ContextChange
from stepwell.store.mailbox import context_and_changes
from stepwell.texts import storable_or_none

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["RunContext", "current_context"]


class RunContext(Mapping[str, Any]):
    """A run's context as it was when it was asked for: a copy, whose values may be changed without any effect.

    :meth:`update` and :meth:`delete` change the context itself, and this copy with it. They do so whatever state the
    run is in, until it is over: what they change is kept, and the run sees it from the next step on that it comes to,
    or where it waits, with its next look at what it waits for. A gate looks at once.
    """

    __slots__ = ("_by", "_context", "_engine", "_options", "_run_id")

    @classmethod
    def of(cls, engine: Stepwell, run_id: UUID) -> RunContext:
        """The run's context as it is now; that of one that its starter has not committed yet can only be changed.

        Raises:
            Undecodable: It cannot be read.
        """
        try:
            return cls(engine, run_id, current_context(engine, run_id))
        except RunNotFound:
            return cls(engine, run_id, None)

    def __init__(
        self,
        engine: Stepwell,
        run_id: UUID,
        context: Context | None,
        options: StartOptions | None = None,
        by: str | None = None,
    ) -> None:
        self._engine = engine
        self._run_id = run_id
        self._context = context
        self._options = options or StartOptions()
        self._by = by

    def __getitem__(self, name: str) -> Any:
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)

    def __repr__(self) -> str:
        return f"RunContext({dict(self._read)!r})"

    @property
    def _read(self) -> Context:
        if self._context is None:
            raise RunNotFound.of(self._run_id)
        return self._context

    def __setitem__(self, name: str, value: object) -> None:
        raise TypeError(f"what is set here would change a copy only: write run.context.update({name}=...)")

    def __delitem__(self, name: str) -> None:
        raise TypeError(
            f"what is taken out here would change a copy only: write run.context.delete({name!r})"
        )

    def with_options(
        self, *, by: str | None = None, session: Any = None, connection: Any = None
    ) -> RunContext:
        """The same, to be changed otherwise than by default.

        Args:
            by: Who changes it, for the history.
            session: Change it if and only if this session's transaction commits.
            connection: The same with a connection.
        """
        options = replace(self._options, session=session, connection=connection)
        return RunContext(self._engine, self._run_id, self._context, options, storable_or_none(by))

    def update(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Set values, by name: plain JSON, 16 KiB each, as in a step.

        Durability:
            Committed when this returns, or with the caller's transaction. Inside a step it is committed with the step's
            journal entry: exactly once, or not at all.

        Raises:
            RunNotLive: The run is over.
            RunNotFound: There is no such run.
            Unstorable: A value is not plain JSON, or too large; nothing was changed.
            RunError: Called in the body of ``run()``, which would repeat it at each replay.
        """
        change = handed_over({**(values or {}), **named}, self._engine.codec)
        if change is not None:
            self._change(change[1])

    def delete(self, *names: str) -> None:
        """Take names out; one that is not there does not matter.

        Durability:
            As that of :meth:`update`.

        Raises:
            RunNotLive: The run is over.
            RunNotFound: There is no such run.
            RunError: Called in the body of ``run()``.
        """
        if names:
            self._change(taken_out(names))

    def _change(self, delta: str) -> None:
        change = ContextChange(delta, self._by, self._engine.now())
        self._engine.signals.change_context(self._run_id, change, self._options)
        if self._context is not None:
            self._context.apply(delta)


def current_context(engine: Stepwell, run_id: UUID) -> Context:
    """What a run's context is, with what was changed from outside and not taken up yet.

    Raises:
        RunNotFound: There is no such run.
        Undecodable: It cannot be read.
    """
    with engine.reading() as connection:
        found = context_and_changes(connection, run_id)
    if found is None:
        raise RunNotFound.of(run_id)
    text, changes = found
    context = Context(text, engine.codec)
    for change in changes:
        context.apply(change_in(change).delta)
    return context
