"""What the demo says: texts made from what was set up and counted."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from stepwell.demo.app import LEASE
from stepwell.demo.mail import REFUSES_ONE_IN, Traffic
from stepwell.demo.onboarding import BONUS, DAY, Onboarding
from stepwell.demo.progress import STEPS
from stepwell.demo.proof import Proof

__all__ = ["held_text", "introduction", "ledger_table", "recovery_text", "traffic_text"]

_WIDTH: Final = max(map(len, STEPS))
_SAID_WIDTH: Final = 69
"""What an ordinary terminal has, less the time at the beginning of a line."""


def introduction(customers: int) -> str:
    """What is about to happen."""
    steps = "\n".join(f"    {_step_text(spec.name, spec.wait)}" for spec in Onboarding.plan.steps)
    return f"""\
Stepwell demo: {customers} new customers, one onboarding run for each, on SQLite.

  Each run goes through {len(STEPS)} steps; a day lasts {DAY.total_seconds():g} s here:
{steps}
  Every step writes one row into a ledger through self.session. The mail gateway
  refuses one mail in {REFUSES_ONE_IN}; a Retry policy sends it again. In the middle of it all
  the worker process is killed with SIGKILL, and another one is started.
"""


def _step_text(name: str, wait: timedelta | None) -> str:
    return name if wait is None else f"{name:<{_WIDTH}}  {wait / DAY:g} days later"


def held_text(places: Iterable[str | None]) -> Sequence[str]:
    """How many runs a killed worker held, and at which steps they stood; in lines to be indented."""
    counted = Counter(place or "their end" for place in places)
    where = ", ".join(f"{number} at {place}" for place, number in counted.most_common())
    number = counted.total()
    text = f"It held {number} run{'s' * (number != 1)}{': ' * bool(where)}{where}."
    return textwrap.wrap(text, _SAID_WIDTH)


def ledger_table(proof: Proof) -> Sequence[str]:
    """The ledger's rows, counted for each step."""
    numbers = ("rows", "customers", "missing", "doubled")
    head = _table_line("step", *numbers)
    rows = [_table_line(count.step, *(getattr(count, name) for name in numbers)) for count in proof.counts]
    credited = proof.customers - proof.wrong_credits
    money = f"  {credited} of {proof.customers} accounts hold the bonus of {BONUS} exactly once."
    strangers = [f"  {proof.strangers} rows belong to no known step or customer."] if proof.strangers else []
    return [head, *rows, money, *strangers]


def _table_line(step: str, *numbers: object) -> str:
    return f"  {step:<{_WIDTH}}" + "".join(f"  {number!s:>9}" for number in numbers)


def traffic_text(traffic: Traffic) -> str:
    """What the mail gateway saw: effects outside the database happen at least once."""
    text = (
        f"  The mail gateway refused {traffic.refused} mails, sent again by policy, "
        f"and accepted {traffic.accepted}."
    )
    if not traffic.repeated:
        return text
    return (
        f"{text}\n  Sent twice, since the worker died before it had recorded that: {traffic.repeated}.\n"
        "  The gateway knew such mails by self.idempotency_key and dropped them."
    )


def recovery_text(at_seconds: float, held: int) -> str:
    """What was killed and what became of it."""
    lease = f"{LEASE.total_seconds():g} s"
    return (
        f"Killed:     worker-1, {at_seconds:.1f} s after the start, with {held} runs in its hands.\n"
        f"Recovered:  all {held} of them, by worker-2, once their leases of {lease} had run out."
    )
