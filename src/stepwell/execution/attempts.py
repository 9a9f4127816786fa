"""Counting attempts: from the journal, so that a restart forgets nothing and a new deploy moves nothing."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import Final

from stepwell.definition.plan import Plan
from stepwell.entries import Execution
from stepwell.execution.history import History
from stepwell.execution.journal import Fact
from stepwell.execution.site import Site
from stepwell.states import RESUMING, ExecutionState, Kind, Outcome

__all__ = [
    "BESIDE",
    "RESCHEDULED",
    "SELF",
    "attempts_so_far",
    "closed",
    "closed_waits",
    "is_final",
    "is_rescheduled",
    "is_success",
    "key_renewals",
    "latest_scheduled",
    "policy_details",
    "retries_by_label",
    "stopped_at",
]

SELF: Final = "self.retry"
"""The label under which the retries are counted that a step asks for itself."""
RESCHEDULED: Final = json.dumps({"rescheduled": True})
"""The details of a row whose instant a person has set; there may be others."""
_COUNTED: Final = frozenset(
    {Outcome.RETRIED, Outcome.FAILED, Outcome.PAUSED, Outcome.TIMED_OUT, Outcome.CANCELED}
)

BESIDE: Final = frozenset({Kind.BODY, Kind.COMMAND, Kind.RECOVERY, Kind.CONTEXT})
"""Kinds of rows that stand for no call of ``run()``."""


def policy_details(label: str, *, is_set: bool = False, kept: str | None = None) -> str:
    """What a retried row stores: what it is counted by, whether a person had set its instant, and what was kept."""
    known = json.loads(kept or "{}")
    return json.dumps({**known, "policy": label, **({"rescheduled": True} if is_set else {})})


def is_rescheduled(fact: Fact) -> bool:
    """A person has set the instant of this row, or that of an attempt before it: nothing is computed any more."""
    return RESCHEDULED[1:-1] in (fact.details or "")


def attempts_so_far(history: History, site: Site) -> int:
    """How many bodies have run here and not succeeded; one lost with its worker is a recovery."""
    return sum(fact.outcome in _COUNTED for fact in site.facts(history))


def retries_by_label(history: History, site: Site) -> Counter[str]:
    """How often in a row this step was retried under each policy's label.

    The count begins anew with a success of the step and with a person's ``resume``.
    """
    counts: Counter[str] = Counter()
    command = next((fact for fact in reversed(history.commands) if fact.name in RESUMING), None)
    progressed_at = _last_progress(history) if site.kind is Kind.BODY else 0
    for fact in site.facts(history):
        if fact.position < progressed_at or (command is not None and _is_before(fact, command)):
            continue
        if fact.outcome in (Outcome.RETRIED, Outcome.TIMED_OUT):
            counts[_label(fact)] += 1
        elif fact.outcome in (Outcome.SUCCESS, Outcome.SKIPPED):
            counts.clear()
    return counts


def _last_progress(history: History) -> int:
    """The position of the last call that ``run()`` came past."""
    for fact in reversed(history):
        # A tick is announced by the end of the one before it.
        has_come_past = is_final(fact) or fact.outcome == Outcome.CONTINUED or fact.kind == Kind.TICK
        if fact.kind not in BESIDE and has_come_past:
            return fact.position
    return 0


def is_success(fact: Fact) -> bool:
    """The row says that a call in ``run()`` has succeeded."""
    return fact.outcome == Outcome.SUCCESS and fact.state == ExecutionState.COMPLETED


def is_final(fact: Fact) -> bool:
    """The row says how a call in ``run()`` ended; one that was retried, paused or lost does not."""
    match fact.state:
        case ExecutionState.COMPLETED:
            return fact.outcome != Outcome.CONTINUED
        case ExecutionState.SKIPPED:
            return True
        case ExecutionState.FAILED:
            is_timeout = fact.outcome == Outcome.TIMED_OUT and '"policy"' not in (fact.details or "")
            return fact.outcome == Outcome.FAILED or is_timeout
    return False


def _is_before(fact: Fact, command: Fact) -> bool:
    """It was over when the command came; a row may have been announced before it and have ended after."""
    if fact.finished_at is None or command.finished_at is None:
        return fact.position < command.position
    return (fact.finished_at, fact.position) < (command.finished_at, command.position)


def _label(fact: Fact) -> str:
    try:
        details = json.loads(fact.details or "{}")
        return str(details.get("policy", "*"))
    except (ValueError, AttributeError):
        return "*"


def key_renewals(history: History, plan: Plan, site: Site) -> int:
    """How often a person who rewound the run gave this step a new idempotency key."""
    renewals = [fact for fact in history.commands if fact.details and '"new_keys": true' in fact.details]
    if plan.is_procedural:
        # Its rows were superseded if it was among the steps that run again: those that count came later.
        first = min((fact.position for fact in site.facts(history)), default=history.last + 1)
        return sum(fact.position < first for fact in renewals)
    order = [each.name for each in plan.steps]
    begins = [json.loads(fact.details or "{}").get("from_step") for fact in renewals]
    # A step that is gone by now: whatever runs after such a rewind came after it.
    return sum(begin not in order or order.index(begin) <= order.index(site.name) for begin in begins)


def latest_scheduled(history: History, site: Site) -> Fact | None:
    """The row that announces this step's next attempt, if one was written."""
    found: Fact | None = None
    for fact in history.open.values():
        if fact.name == site.name and fact.kind == site.kind and fact.key == site.key:
            found = fact
    return found


def stopped_at(history: History, site: Site) -> Fact | None:
    """The last execution of a resumable step, if there is a cursor in it from which the step goes on.

    Such a step is under way: what it waited for is behind it.
    """
    facts = site.facts(history)
    return facts[-1] if facts and facts[-1].cursor is not None else None


def closed_waits(
    history: History, step: str, state: ExecutionState, outcome: Outcome, at: datetime
) -> tuple[Execution, ...]:
    """The rows that end what a declared step still waits for (a signal, a gate, a poll), when it ends itself."""
    waits = [fact for fact in history.open.values() if fact.name == step and fact.kind != Kind.STEP]
    if state is ExecutionState.COMPLETED:
        # The step did without.
        state, outcome = ExecutionState.SKIPPED, Outcome.SKIPPED
    return tuple(closed(fact, state, outcome, at) for fact in waits)


def closed(fact: Fact, state: ExecutionState, outcome: Outcome, at: datetime) -> Execution:
    """The row that ends an unfinished one for a reason from outside."""
    return Execution(
        position=fact.position,
        name=fact.name,
        key=fact.key,
        # It says which row it is, and is not written again: one that a newer version knows is no obstacle.
        kind=Kind(fact.kind) if fact.kind in set(Kind) else Kind.STEP,
        state=state,
        outcome=outcome,
        attempt=fact.attempt,
        args_digest=fact.args_digest,
        cursor=fact.cursor,
        continues_from=fact.continues_from,
        scheduled_for=fact.scheduled_for,
        started_at=fact.started_at,
        finished_at=at,
        details=fact.details,
    )
