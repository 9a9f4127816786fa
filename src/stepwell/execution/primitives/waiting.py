"""What comes of looking at something that a step waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from stepwell.definition.functions import truth_of
from stepwell.definition.plan import Plan, StepSpec
from stepwell.entries import Execution
from stepwell.errors import RunError
from stepwell.execution.context import Context
from stepwell.execution.journal import Scope
from stepwell.execution.outcome import Activated
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.execution.suspension import CancelRequested, LeaseLost, SkipRequested, Suspension

__all__ = ["DUE", "WaitFailed", "Waited", "ask", "holds", "refuse_changes", "verdict_of"]


class WaitFailed(Exception):
    """A wait ran out, or the author's condition raised: an error of that step, before its body.

    Attributes:
        error: The error that the step's policies decide about.
        row: The wait's own row, which ends in the same write as the step's attempt; None leaves it open.
        details: What the wait keeps for its next attempt, if it is one that is called from ``run()``.
        give_up_at: When the wait ends, whatever the policies say about this error.
        kept: The wait's own row, if it goes on with the step's next attempt.
    """

    def __init__(
        self, error: BaseException, row: Execution | None = None, details: str | None = None
    ) -> None:
        super().__init__()
        self.error = error
        self.row = row
        self.details = details
        self.give_up_at: datetime | None = None
        self.kept: Execution | None = None


@dataclass(frozen=True, slots=True)
class Waited:
    """What came of looking.

    Attributes:
        is_due: The step may run.
        ended: The activation has ended (parked); None with ``is_due`` false means: look again.
        payload: What a signal brought.
    """

    is_due: bool
    ended: Activated | None = None
    payload: Any = None


DUE: Final = Waited(is_due=True)


def holds(runtime: ActivationRuntime, site: Site, scope: Scope, condition: Callable[[Any], object]) -> bool:
    """Whether the author's condition holds.

    Raises:
        WaitFailed: It raised, said a verb, or changed something; or its answer is neither true nor false.
    """
    return bool(ask(runtime, site, scope, lambda workflow: truth_of(condition(workflow))))


def verdict_of(plan: Plan, spec: StepSpec, workflow: Any) -> Suspension | None:
    """What ``@cancel_if`` and ``skip_if`` say about a step; the one beats the other."""
    for condition in plan.cancel_conditions:
        if truth_of(condition.function(workflow)):
            return CancelRequested(condition.name)
    skips = spec.skip_if is not None and truth_of(spec.skip_if(workflow))
    return SkipRequested() if skips else None


def ask(runtime: ActivationRuntime, site: Site, scope: Scope, function: Callable[[Any], Any]) -> Any:
    """What the author's function says about something that a step waits for.

    Raises:
        WaitFailed: It raised, said a verb, or changed something.
    """
    try:
        with runtime.attempting(site, scope) as workflow, scope.looking():
            answer = function(workflow)
            if runtime.asked is not None:
                raise runtime.asked
            refuse_changes(scope, runtime.context, site)
            return answer
    except LeaseLost:
        raise
    except BaseException as error:
        raise WaitFailed(runtime.asked or error) from error
    finally:
        runtime.context.roll_back()
        scope.close()


def refuse_changes(scope: Scope, context: Context, site: Site) -> None:
    """Raise if what was only asked has written something: nobody would commit it, or anybody."""
    changed = "a record" if scope.has_changes() else "the context" if context.is_changed() else None
    if changed is not None:
        raise RunError(
            f"a condition of step {site.name!r} changed {changed}. Conditions are looked at, not journaled: "
            "move the change into the step."
        )
