"""A place on a run's road: which step or wait, and which of its calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stepwell.definition.plan import StepSpec
from stepwell.entries import Execution
from stepwell.execution.history import History
from stepwell.execution.journal import Fact
from stepwell.execution.ticks import Tick
from stepwell.states import BODIES, ExecutionState, Kind

__all__ = ["Site"]

_ORDINAL: Final = re.compile(r"#\d+$")


@dataclass(frozen=True, slots=True)
class Site:
    """What the rows of one step or wait of one run have in common.

    Attributes:
        spec: The step; of a wait in ``run()``, one that only waits.
        following: Where the run stands once it is over; None past the last step.
        kind: The kind of its rows.
        key: What tells repeated calls in ``run()`` apart, as stored; None in declared workflows.
        is_called: It is called from ``run()``, so that it has no waits besides and its failure can be caught.
        args: What the step is called with.
        kwargs: The same, by name.
        digest: Of the arguments; None when there are none or they do not count.
        tick: Which tick of a repetition it is, if it is one.
        then: The rows that are written in the entry with which it ends for good; called with its own row and whether
            its body has begun.
    """

    spec: StepSpec
    following: str | None = None
    kind: Kind = Kind.STEP
    key: str | None = None
    is_called: bool = False
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    digest: str | None = None
    tick: Tick | None = None
    then: Callable[[Execution, bool], tuple[Execution, ...]] | None = None

    @property
    def name(self) -> str:
        """The step's name."""
        return self.spec.name

    @property
    def here(self) -> str | None:
        """Where the run stands while it is not over: at this step; ``run()`` itself is no step."""
        return self.following if self.kind is Kind.BODY else self.spec.name

    @property
    def is_wait(self) -> bool:
        """It is a call in ``run()`` that only waits."""
        return self.is_called and self.kind not in BODIES

    @property
    def label(self) -> str:
        """The site for people: ``ship``, ``ship["A"]#2``, ``remind[tick 3]``."""
        key, number = _parts(self.key)
        if self.kind is Kind.TICK:
            key = f"tick {key}"
        return f"{self.spec.name}{f'[{key}]' if key else ''}{number}"

    def facts(self, history: History) -> Sequence[Fact]:
        """Its rows in the journal, in order."""
        return history.of(self.kind, self.spec.name, self.key)

    def row(self, position: int, state: ExecutionState, **more: Any) -> Execution:
        """A row of it."""
        if self.tick is not None:
            more = self.tick.kept(more)
        return Execution(
            position=position,
            name=self.spec.name,
            key=self.key,
            kind=self.kind,
            args_digest=self.digest,
            state=state,
            **more,
        )


def _parts(key: str | None) -> tuple[str, str]:
    """The key proper, and ``#2`` of a repeated call: canonical text never ends like that."""
    if key is None:
        return "", ""
    found = _ORDINAL.search(key)
    return (key, "") if found is None else (key[: found.start()], found.group())
