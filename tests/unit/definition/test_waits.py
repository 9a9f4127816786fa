"""What steps can wait for besides an instant: signals, gates and conditions that are polled."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell.definition.plan import MethodCall, StepSpec
from stepwell.definition.resumable import resumable_step
from stepwell.definition.steps import step
from stepwell.definition.waits import Poll, Signal
from stepwell.definition.workflow import Workflow
from tests.unit.definition.sample import refusal

MINUTE = timedelta(minutes=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Shipping(Workflow):
    def is_paid(self) -> bool:
        return "paid" in self.context

    async def later(self) -> bool:
        return True

    def needy(self, what: str) -> bool:
        return True

    @step
    def prepare(self) -> None: ...


def spec(function: Any = None, **options: Any) -> StepSpec:
    """The plan's view of a step with these options, in a subclass of Shipping."""

    class Tried(Shipping):
        probe = step(**options)(function or (lambda self: None))

    found = Tried.plan.find("probe")
    assert isinstance(found, StepSpec)
    return found


class TestSignals:
    def test_a_name_is_short_for_a_signal(self) -> None:
        """``awaits="review"`` waits for ever."""
        assert spec(awaits="review").awaits == Signal("review")
        assert spec(awaits="review").awaits == spec(awaits=Signal("review")).awaits
        assert spec().awaits is None

    def test_a_default_of_none_is_a_default(self) -> None:
        """A wait that answers None and one that raises are different things."""
        assert Signal("x", MINUTE, None).has_default
        assert not Signal("x", MINUTE).has_default

    def test_the_step_takes_the_payload_or_not(self) -> None:
        """By its one parameter without a default, whatever that is called."""

        def with_payload(self: Any, verdict: str) -> None: ...

        def without(self: Any) -> None: ...

        def with_extras(self: Any, verdict: str, /, currency: str = "usd", *, note: str = "") -> None: ...

        def with_keywords(self: Any, *, note: str = "", **more: Any) -> None: ...

        functions = (with_payload, without, with_extras, with_keywords)
        assert [spec(each, awaits="review").takes_payload for each in functions] == [True, False, True, False]

    def test_a_decorator_that_tells_what_it_wraps_is_looked_through(self) -> None:
        """The payload's parameter is the wrapped function's."""

        def review(self: Any, verdict: str) -> None: ...

        @functools.wraps(review)
        def wrapped(*args: Any) -> Any:
            return review(*args)

        assert spec(wrapped, awaits="review").takes_payload

    def test_async_and_resumable_steps_take_payloads_too(self) -> None:
        """How the body runs has nothing to do with what it is given."""

        class Review(Workflow):
            @step(awaits="a")
            async def decide(self, verdict: str) -> None: ...

            @resumable_step(awaits="b")
            def follow(self, verdict: str) -> Iterator[int]:
                yield 1

        assert [each.takes_payload for each in Review.plan.steps] == [True, True]

    def test_without_awaits_nobody_gives_a_payload(self) -> None:
        """A gate and a poll have none."""

        def review(self: Any, verdict: str) -> None: ...

        for options in ({}, {"gate": "is_paid"}, {"wait_until": Poll("is_paid", MINUTE)}):
            assert refusal(lambda: spec(review, **options)).startswith(  # noqa: B023 - called at once
                "Tried.probe: nobody gives this step verdict: steps that run by themselves"
            )


def two(self: Any, verdict: str, reason: str) -> None: ...
def keyword(self: Any, *, verdict: str) -> None: ...
def optional(self: Any, verdict: str = "none") -> None: ...
def catching(self: Any, *verdicts: str) -> None: ...
def covered(*args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (two, "awaits a signal and is given its payload, by position: nobody gives it reason"),
        (keyword, "awaits a signal and is given its payload, by position: nobody gives it verdict"),
        (
            optional,
            "awaits a signal, whose payload goes to a parameter without a default; verdict has one. Take it "
            "away, or write a * in front of verdict if that is not the payload",
        ),
        (
            catching,
            "awaits a signal, and *args does not tell whether it takes the payload. Name the parameter; a "
            "decorator in between needs functools.wraps",
        ),
        (
            covered,
            "awaits a signal, and *args does not tell whether it takes the payload. Name the parameter; a "
            "decorator in between needs functools.wraps",
        ),
    ],
)
def test_a_function_that_leaves_the_payload_open_is_refused(function: Any, text: str) -> None:
    """A payload must neither be lost in silence nor stop the step when it comes, days later."""
    assert refusal(lambda: spec(function, awaits="review")) == f"Tried.probe: this step {text}"


class TestConditions:
    def test_a_gate_is_always_something_to_call(self) -> None:
        """A method's name and a function both end as a function of the workflow."""
        workflow = Shipping()
        workflow.context["paid"] = True
        for given in ("is_paid", lambda self: self.is_paid()):
            gate = spec(gate=given).gate
            assert gate is not None
            assert (gate(workflow), gate(Shipping())) == (True, False)
        assert spec().gate is None

    def test_a_poll_is_no_instant(self) -> None:
        """The plan keeps what is polled apart from what is waited for."""
        polled, fixed = spec(wait_until=Poll("is_paid", MINUTE, timeout=2 * MINUTE)), spec(wait_until=NOON)
        assert (polled.wait_until, fixed.poll) == (None, None)
        assert polled.poll == Poll(MethodCall("is_paid"), MINUTE, timeout=2 * MINUTE)

    def test_a_poll_asks_its_condition(self) -> None:
        """Given as a name or as a function, read by the plan or not; any answer counts as yes or no."""
        paid = Shipping()
        paid.context["paid"] = True
        for poll in (Poll("is_paid", MINUTE), Poll(lambda self: self.context.get("paid"), MINUTE)):
            read = spec(wait_until=poll).poll
            assert read is not None
            for each in (poll, read):
                assert (each.is_met(paid), each.is_met(Shipping())) == (True, False)

    def test_a_default_lets_the_step_run(self) -> None:
        """Whatever it is, None included."""
        assert Poll("is_paid", MINUTE, MINUTE, None).has_default
        assert not Poll("is_paid", MINUTE, MINUTE).has_default

    def test_an_instant_comes_before_a_signal_or_a_gate(self) -> None:
        """The step waits for both, one after the other."""
        for before in ({"wait": MINUTE}, {"wait_until": NOON}):
            assert spec(**before, awaits="review").awaits == Signal("review")
            assert spec(**before, gate="is_paid").gate is not None


POLL = Poll("is_paid", MINUTE)

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"awaits": 5}, "awaits must be a signal's name, Signal(name, timeout=...) or Child(...); got 5"),
    (
        {"awaits": Signal},
        "awaits must be a signal's name, Signal(name, timeout=...) or Child(...); got <class ",
    ),
    ({"awaits": ""}, "awaits: signal name must not be empty, nor begin or end with a space; got ''"),
    ({"awaits": Signal("x" * 191)}, "awaits: signal name must have at most 190 characters; got 191"),
    ({"awaits": Signal(5)}, "awaits: signal name must be a string; got 5"),  # type: ignore[arg-type]
    (
        {"awaits": Signal("x", timeout=30)},  # type: ignore[arg-type]
        "awaits: timeout must be a timedelta, such as timedelta(days=2); got 30",
    ),
    ({"awaits": Signal("x", timeout=timedelta())}, "awaits: timeout must be more than zero; got 0:00:00"),
    (
        {"awaits": Signal("x", default=None)},
        "awaits: default is for a wait that runs out; give a timeout too",
    ),
    ({"gate": True}, "gate must be a method's name or a function of the workflow; got True"),
    ({"gate": "is_payed"}, "gate='is_payed' names no method of the class"),
    ({"gate": "prepare"}, "gate='prepare' must name an ordinary method; got <step 'prepare'>"),
    ({"gate": "needy"}, "gate='needy' must take only the workflow; it also wants what"),
    (
        {"gate": "later"},
        "gate='later' is async: the coroutine that it makes would always count as true. Use a plain function",
    ),
    (
        {"gate": lambda: True},
        "gate takes no parameter, and is called with the workflow: write lambda self: ...",
    ),
    (
        {"wait_until": Signal("x")},
        "wait_until must be an aware datetime, a Poll, a method's name or a function of the workflow; got ",
    ),
    (
        {"wait_until": Poll(True, MINUTE)},  # type: ignore[arg-type]
        "wait_until=Poll: condition must be a method's name or a function of the workflow; got True",
    ),
    (
        {"wait_until": Poll("is_payed", MINUTE)},
        "wait_until=Poll: condition='is_payed' names no method of the class",
    ),
    (
        {"wait_until": Poll("later", MINUTE)},
        "wait_until=Poll: condition='later' is async: the coroutine that it makes would always count as true",
    ),
    (
        {"wait_until": Poll("is_paid", 30)},  # type: ignore[arg-type]
        "wait_until=Poll: every must be a timedelta, such as timedelta(days=2); got 30",
    ),
    (
        {"wait_until": Poll("is_paid", timedelta())},
        "wait_until=Poll: every must be more than zero; got 0:00:00",
    ),
    (
        {"wait_until": Poll("is_paid", MINUTE, timeout=-MINUTE)},
        "wait_until=Poll: timeout must be more than zero; got -1 day, 23:59:00",
    ),
    (
        {"wait_until": Poll("is_paid", MINUTE, default=1)},
        "wait_until=Poll: default is for a wait that runs out; give a timeout too",
    ),
    ({"awaits": "x", "gate": "is_paid"}, "awaits and gate exclude each other; give one of them"),
    (
        {"wait": MINUTE, "wait_until": POLL},
        "wait and wait_until exclude each other; give one of them",
    ),
    (
        {"awaits": "x", "wait_until": POLL},
        "wait_until=Poll(...) and awaits exclude each other: a step waits for one condition, and before it "
        "for an instant. Ask for the other in the step, or in a step before",
    ),
    (
        {"gate": "is_paid", "wait_until": POLL},
        "wait_until=Poll(...) and gate exclude each other: a step waits for one condition",
    ),
]


@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_a_bad_wait_is_refused_when_the_class_is_created(options: dict[str, Any], text: str) -> None:
    """The message names the class, the step, the option and what is wanted instead."""
    assert refusal(lambda: spec(**options)).startswith(f"Tried.probe: {text}")


def test_conditions_see_no_names_of_the_class_body() -> None:
    """A gate or a polled condition that reads one would fail when it is asked, days later."""

    def gated() -> None:
        class Gated(Workflow):
            limit = 3

            @step(gate=lambda self: limit > 2)  # type: ignore[name-defined]  # noqa: F821
            def work(self) -> None: ...

    def polled() -> None:
        class Polled(Workflow):
            limit = 3

            @step(wait_until=Poll(lambda self: limit > 2, MINUTE))  # type: ignore[name-defined]  # noqa: F821
            def work(self) -> None: ...

    assert "Gated.work: gate reads the global 'limit', which exists in the class body only" in refusal(gated)
    assert "Polled.work: wait_until=Poll: condition reads the global 'limit'" in refusal(polled)


def test_none_means_not_said() -> None:
    """An option computed to None is as good as left out, and excludes nothing."""
    said = spec(awaits=None, gate=None, wait_until=POLL)
    assert (said.awaits, said.gate) == (None, None)
