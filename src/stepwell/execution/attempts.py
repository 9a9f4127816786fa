"""Counting attempts: from the journal, so that a restart forgets nothing and a new deploy moves nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from stepwell.definition.plan import Plan, StepSpec
from stepwell.entries import Execution
from stepwell.execution.journal import Fact
from stepwell.states import UNFINISHED, ExecutionState, Kind, Outcome

__all__ = [
    "SELF",
    "attempts_so_far",
    "closed_waits",
    "key_renewals",
    "latest_scheduled",
    "policy_details",
    "retries_by_label",
    "stopped_at",
]

SELF: Final = "self.retry"
"""The label under which the retries are counted that a step asks for itself."""
_COUNTED: Final = frozenset(
    {Outcome.RETRIED, Outcome.FAILED, Outcome.PAUSED, Outcome.TIMED_OUT, Outcome.CANCELED}
)


def policy_details(label: str) -> str:
    """What a retried row stores to be counted by."""
    return json.dumps({"policy": label})


def attempts_so_far(facts: Iterable[Fact], step: str) -> int:
    """How many bodies of this step have run and not succeeded; one lost with its worker is a recovery."""
    return sum(fact.name == step and fact.kind == Kind.STEP and fact.outcome in _COUNTED for fact in facts)


def retries_by_label(facts: Iterable[Fact], step: str) -> Counter[str]:
    """How often in a row this step was retried under each policy's label.

    The count begins anew with a success of the step and with a person's ``resume``.
    """
    counts: Counter[str] = Counter()
    for fact in facts:
        if fact.kind == Kind.COMMAND:
            counts.clear()
        elif fact.name != step or fact.kind != Kind.STEP:
            continue
        elif fact.outcome in (Outcome.RETRIED, Outcome.TIMED_OUT):
            counts[_label(fact)] += 1
        elif fact.outcome in (Outcome.SUCCESS, Outcome.SKIPPED):
            counts.clear()
    return counts


def _label(fact: Fact) -> str:
    try:
        details = json.loads(fact.details or "{}")
        return str(details.get("policy", "*"))
    except (ValueError, AttributeError):
        return "*"


def key_renewals(facts: Iterable[Fact], plan: Plan, spec: StepSpec) -> int:
    """How often a person who rewound the run gave this step a new idempotency key."""
    order = [each.name for each in plan.steps]
    renewals = 0
    for fact in facts:
        if fact.kind == Kind.COMMAND and fact.details and '"new_keys": true' in fact.details:
            begin = json.loads(fact.details).get("from_step")
            # A step that is gone by now: whatever runs after such a rewind came after it.
            renewals += begin not in order or order.index(begin) <= order.index(spec.name)
    return renewals


def latest_scheduled(facts: Iterable[Fact], step: str) -> Fact | None:
    """The row that announces this step's next attempt, if one was written."""
    found: Fact | None = None
    for fact in facts:
        if fact.name == step and fact.kind == Kind.STEP and fact.state in UNFINISHED:
            found = fact
    return found


def stopped_at(facts: Sequence[Fact], step: str) -> Fact | None:
    """The last execution of a resumable step, if there is a cursor in it from which the step goes on.

    Such a step is under way: what it waited for is behind it.
    """
    for fact in reversed(facts):
        if fact.name == step and fact.kind == Kind.STEP:
            return fact if fact.cursor is not None else None
    return None


def closed_waits(
    facts: Iterable[Fact], step: str, state: ExecutionState, outcome: Outcome, at: datetime
) -> tuple[Execution, ...]:
    """The rows that end what a step still waits for (a signal, a gate, a poll), when the step itself ends."""
    if state is ExecutionState.COMPLETED:
        # The step did without.
        state, outcome = ExecutionState.SKIPPED, Outcome.SKIPPED
    return tuple(
        Execution(
            position=fact.position,
            name=fact.name,
            key=fact.key,
            kind=Kind(fact.kind),
            state=state,
            outcome=outcome,
            scheduled_for=fact.scheduled_for,
            started_at=fact.started_at,
            finished_at=at,
            details=fact.details,
        )
        for fact in facts
        if fact.name == step and fact.kind != Kind.STEP and fact.state in UNFINISHED
    )
