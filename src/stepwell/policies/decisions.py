"""From an error to a decision: one pure function.

For an error, the first policy that fits is taken: the step's that name errors, the step's blanket one, the
class's that name errors (latest first), the class's blanket one (latest first). Where none fits the run
fails. Nothing here runs a step, waits or writes.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from stepwell.policies.values import Handler, Policy, Retry, Verb

__all__ = ["Decision", "decide"]

_NO_WAIT: Final = timedelta()


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about an error.

    Attributes:
        verb: The act.
        label: The policy's label, under which a retry is counted; empty where no policy fitted.
        wait: The delay before a retry.
        reason: Why, in words for a person; None where the error itself says it.
        report: The error reporter hears of it. For ``HANDLE`` ask ``policy.reports`` once the verb is known.
        handler: The author's function, for ``HANDLE``.
        policy: The policy that decided; None where no policy fitted.
    """

    verb: Verb
    label: str = ""
    wait: timedelta = _NO_WAIT
    reason: str | None = None
    report: bool = True
    handler: Callable[..., Any] | None = None
    policy: Policy | None = None


def decide(
    error: BaseException,
    *,
    step: Sequence[Policy] = (),
    workflow: Sequence[Policy] = (),
    counts: Mapping[str, int] | None = None,
    random: Callable[[], float] = _random.random,
    passed: Iterable[Policy] = (),
) -> Decision:
    """What to do about an error that a step raised.

    Args:
        error: The error.
        step: The step's own policies.
        workflow: The class's policies, base classes' first.
        counts: By label, how often in a row the body has been run and retried already.
        random: Answers from 0 (inclusive) to 1 (exclusive), for the jitter.
        passed: Handlers that were asked already and left the error to the policies after them.
    """
    asked = set(map(id, passed))
    for scope, ordered in ((step, _by_rank(step)), (workflow, _by_rank(workflow[::-1]))):
        for policy in ordered:
            if id(policy) not in asked and policy.matches(error):
                return _apply(policy, scope, counts or {}, random)
    return Decision(Verb.FAIL)


def _by_rank(policies: Sequence[Policy]) -> list[Policy]:
    return sorted(policies, key=lambda policy: policy.is_blanket)


def _apply(
    policy: Policy, scope: Sequence[Policy], counts: Mapping[str, int], random: Callable[[], float]
) -> Decision:
    if isinstance(policy, Retry):
        return _retry(policy, scope, counts, random)
    handler = policy.function if isinstance(policy, Handler) else None
    reason = None if policy.verb in (Verb.FAIL, Verb.HANDLE) else f"{policy.verb} on {policy.label}"
    return Decision(policy.verb, policy.label, _NO_WAIT, reason, policy.reports(policy.verb), handler, policy)


def _retry(
    policy: Retry, scope: Sequence[Policy], counts: Mapping[str, int], random: Callable[[], float]
) -> Decision:
    label = policy.label
    own, total = counts.get(label, 0) + 1, sum(counts.values()) + 1
    cap = min(other.attempts for other in scope if isinstance(other, Retry))
    if own < policy.attempts and total < cap:
        wait = policy.delay(own, random)
        return Decision(Verb.RETRY, label, wait, None, policy.reports(Verb.RETRY), None, policy)
    verb = Verb(policy.then)
    reason = f"gave up after {total} {'attempt' if total == 1 else 'attempts'} (retry on {label})"
    return Decision(verb, label, _NO_WAIT, reason, policy.reports(verb), None, policy)
