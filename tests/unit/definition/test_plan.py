"""A plan: walking it, and its fingerprint."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell.definition.plan import MethodCall, Plan, StepKind, StepSpec
from stepwell.definition.waits import Poll, Signal
from stepwell.policies import Retry, Skip


def work(workflow: Any) -> None: ...


def other(workflow: Any) -> None: ...


def alive(name: str, **options: Any) -> StepSpec:
    return StepSpec(name, work, **options)


def gone(name: str) -> StepSpec:
    return StepSpec(name, work, StepKind.REMOVED)


PLAN = Plan("W", (gone("a"), alive("b"), gone("c"), alive("d"), gone("e")))


def name_of(spec: StepSpec | None) -> str | None:
    return None if spec is None else spec.name


def test_gravestones_are_found_and_passed_over() -> None:
    """A run on a gravestone goes on with the next living step; nothing starts on one."""
    assert name_of(PLAN.first) == "b"
    assert name_of(PLAN.find("c")) == "c"
    assert {each: name_of(PLAN.after(each)) for each in "abcde"} == {
        "a": "b",
        "b": "d",
        "c": "d",
        "d": None,
        "e": None,
    }


def test_an_unknown_step_is_never_the_last() -> None:
    """A run on a step that the class does not know must not end as if it were done."""
    assert PLAN.find("x") is None
    with pytest.raises(LookupError, match="W has no step 'x'"):
        PLAN.after("x")


def test_an_empty_plan_has_nothing_to_run() -> None:
    """Gravestones alone are nothing to run either; run() is."""
    assert Plan("W").is_empty
    assert Plan("W", (gone("a"),)).is_empty
    assert not Plan("W", is_procedural=True).is_empty
    assert (Plan("W").first, PLAN.is_empty) == (None, False)


@pytest.mark.parametrize(
    "changed",
    [
        Plan("V", (alive("a"),)),
        Plan("W", (alive("b"),)),
        Plan("W", (gone("a"),)),
        Plan("W", (alive("a"), alive("b"))),
        Plan("W", (alive("a", wait=timedelta(days=1)),)),
        Plan("W", (alive("a", wait_until=datetime(2030, 1, 1, tzinfo=UTC)),)),
        Plan("W", (alive("a", poll=Poll(work, timedelta(1))),)),
        Plan("W", (alive("a", awaits=Signal("review")),)),
        Plan("W", (alive("a", gate=work),)),
        Plan("W", (alive("a", kind=StepKind.RESUMABLE),)),
        Plan("W", (alive("a", max_iterations=5),)),
        Plan("W", (alive("a", max_runtime=timedelta(1)),)),
        Plan("W", (alive("a", checkpoint_every=5),)),
        Plan("W", (alive("a", skip_if=MethodCall("toured")),)),
        Plan("W", (alive("a", skip_if=other),)),
        Plan("W", (alive("a", on_exception=(Retry(),)),)),
        Plan("W", (alive("a", key_by="item"),)),
        Plan("W", (alive("a", queue="mail"),)),
        Plan("W", (alive("a", priority=1),)),
        Plan("W", (alive("a", isolated=True),)),
        Plan("W", (alive("a"),), policies=(Skip(),)),
        Plan("W", (alive("a"),), is_procedural=True),
    ],
)
def test_the_fingerprint_tells_plans_apart(changed: Plan) -> None:
    """Any name or option that changes, changes it."""
    original = Plan("W", (alive("a"),))
    assert changed.fingerprint != original.fingerprint
    assert original.fingerprint == Plan("W", (alive("a"),)).fingerprint


@pytest.mark.parametrize(
    "waits",
    [
        [{"awaits": Signal("a")}, {"awaits": Signal("b")}, {"awaits": Signal("a", timedelta(1))}],
        [{"awaits": Signal("a", timedelta(1))}]
        + [{"awaits": Signal("a", timedelta(1), x)} for x in (None, "", 0)],
        [
            {"poll": Poll(work, timedelta(1))},
            {"poll": Poll(other, timedelta(1))},
            {"poll": Poll(work, timedelta(2))},
        ],
        [{"poll": Poll(work, timedelta(1), x)} for x in (None, timedelta(1), timedelta(2))],
        [{"gate": work}, {"gate": other}, {"gate": MethodCall("work")}],
    ],
)
def test_the_fingerprint_tells_waits_apart(waits: list[dict[str, Any]]) -> None:
    """Each value in them counts."""
    assert len({Plan("W", (alive("a", **each),)).fingerprint for each in waits}) == len(waits)


def test_a_default_with_an_address_is_known_by_its_class() -> None:
    """Its own text would be another one in every process."""
    prints = {
        Plan("W", (alive("a", awaits=Signal("a", timedelta(1), object())),)).fingerprint for _ in range(2)
    }
    assert len(prints) == 1


CLASS = """
from datetime import timedelta
from stepwell.definition.resumable import resumable_step
from stepwell.definition.steps import cancel_if, step
from stepwell.definition.waits import Poll, Signal
from stepwell.definition.workflow import Workflow
from stepwell.policies import Retry, handles

class Onboarding(Workflow):
    policies = [Retry(OSError, KeyError, "smtplib.SMTPException")]

    @handles(ValueError)
    def refuse(self, error): ...

    @cancel_if
    def gone(self): ...

    @step(skip_if=lambda self: True, wait_until="gone", key_by=len, timeout=timedelta(seconds=5))
    def greet(self): ...

    @step(awaits=Signal("go", timedelta(days=1), default=object()))
    def look(self, order): ...

    @resumable_step(wait_until=Poll(lambda self: True, timedelta(days=1)), max_iterations=5)
    def follow(self): ...

print(Onboarding.plan.fingerprint)
"""


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    """Neither addresses nor the order of hashing get into it."""
    prints = set()
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", CLASS], env=environment, capture_output=True, text=True, check=True
        )
        prints.add(done.stdout.strip())
    assert len(prints) == 1
    assert len(prints.pop()) == 64
