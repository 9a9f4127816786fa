"""Policies: which one answers an error, and with what."""

from __future__ import annotations

import json
import smtplib
import xml.etree.ElementTree
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.policies import (
    Backoff,
    Cancel,
    Decision,
    Fail,
    Handler,
    Pause,
    Policy,
    Retry,
    Skip,
    Verb,
    decide,
    handles,
)

SECOND = timedelta(seconds=1)


def middle() -> float:
    """No jitter: neither earlier nor later."""
    return 0.5


def decision(error: BaseException, *step: Policy, **more: Any) -> Decision:
    return decide(error, step=step, random=middle, **more)


class TestMatching:
    def test_a_policy_is_for_its_errors_and_their_subclasses(self) -> None:
        """``Retry(OSError)`` meets a ConnectionError, and no ValueError."""
        policy = Retry(OSError)
        assert policy.matches(ConnectionError())
        assert not policy.matches(ValueError())

    def test_a_dotted_name_stands_for_a_class(self) -> None:
        """An error can be named without importing it, its base classes too."""
        assert Retry("smtplib.SMTPException").matches(smtplib.SMTPServerDisconnected())
        assert not Retry("smtplib.SMTPDataError").matches(smtplib.SMTPServerDisconnected())

    def test_a_dotted_name_may_be_the_one_that_people_import(self) -> None:
        """``json.JSONDecodeError`` is defined in json.decoder; both names work."""
        error = json.JSONDecodeError("no", "", 0)
        assert Retry("json.JSONDecodeError").matches(error)
        assert Retry("json.decoder.JSONDecodeError").matches(error)

    @pytest.mark.parametrize("name", ["LookupError", "builtins.LookupError"])
    def test_built_in_errors_need_no_module(self, name: str) -> None:
        """``"LookupError"`` is enough, and means the same with its module."""
        assert Retry(name).matches(KeyError())
        assert Retry(name).label == "LookupError"

    def test_a_name_that_nobody_loaded_matches_nothing(self) -> None:
        """An absent module is no error: what it defines cannot have been raised."""
        assert not Retry("no.such.module.Error").matches(ValueError())

    def test_without_errors_it_is_for_every_exception(self) -> None:
        """A blanket policy leaves exits and interrupts alone; a policy that names them meets them."""
        assert Retry().matches(ValueError())
        assert not Retry().matches(SystemExit())
        assert Retry(SystemExit).matches(SystemExit())

    def test_the_label_does_not_depend_on_how_the_errors_are_written(self) -> None:
        """Counts survive a deploy that reorders the errors or writes one as text."""
        assert Retry(ValueError, smtplib.SMTPException).label == "ValueError|smtplib.SMTPException"
        assert (
            Retry("smtplib.SMTPException", ValueError, ValueError).label == "ValueError|smtplib.SMTPException"
        )
        assert Retry().label == "*"


class TestPrecedence:
    def test_no_policy_fails(self) -> None:
        """An error that nothing absorbs fails the run, and is reported."""
        assert decision(ValueError()) == Decision(Verb.FAIL)

    def test_the_steps_specific_policy_comes_before_its_blanket_one(self) -> None:
        """Wherever it stands in the list."""
        assert decision(ValueError(), Pause(), Skip(ValueError)).verb is Verb.SKIP

    def test_the_first_fitting_one_of_a_step_wins(self) -> None:
        """Within one rank the order of the list decides."""
        assert decision(ConnectionError(), Skip(OSError), Cancel(ConnectionError)).verb is Verb.SKIP

    def test_the_steps_blanket_policy_comes_before_the_class(self) -> None:
        """A step's own word is final for every error that it covers."""
        assert decision(ValueError(), Pause(), workflow=[Skip(ValueError)]).verb is Verb.PAUSE

    def test_what_the_step_does_not_cover_goes_to_the_class(self) -> None:
        """A step's policy for one error says nothing about others."""
        assert decision(ValueError(), Pause(KeyError), workflow=[Skip()]).verb is Verb.SKIP

    def test_of_the_class_the_latest_wins(self) -> None:
        """A subclass's policies come later, and so overrule its base's."""
        assert decision(ValueError(), workflow=[Skip(ValueError), Cancel(ValueError)]).verb is Verb.CANCEL
        assert decision(ValueError(), workflow=[Skip(), Cancel()]).verb is Verb.CANCEL

    def test_of_the_class_specific_ones_come_before_blanket_ones(self) -> None:
        """A blanket policy of a subclass does not hide its base's answer to one error."""
        assert decision(ValueError(), workflow=[Skip(ValueError), Cancel()]).verb is Verb.SKIP

    def test_fail_overrules_the_class(self) -> None:
        """``Fail`` on a step shields it from the class's ``Retry``."""
        assert decision(ValueError(), Fail(ValueError), workflow=[Retry()]).verb is Verb.FAIL


class TestRetry:
    def test_attempts_count_the_first_run_too(self) -> None:
        """``attempts=3`` runs the body three times: two retries, then what ``then`` says."""
        policy = Retry(ValueError, attempts=3, then="pause")
        verbs = [decision(ValueError(), policy, counts={policy.label: n}).verb for n in range(4)]
        assert verbs == [Verb.RETRY, Verb.RETRY, Verb.PAUSE, Verb.PAUSE]

    def test_one_attempt_is_no_retry(self) -> None:
        """``attempts=1`` gives up at once."""
        assert decision(ValueError(), Retry(attempts=1)).reason == "gave up after 1 attempt (retry on *)"

    def test_giving_up_says_why(self) -> None:
        """The reason tells how often it was tried, and on which errors."""
        given_up = decision(KeyError(), Retry(KeyError, then="cancel"), counts={"KeyError": 2})
        assert (given_up.verb, given_up.label) == (Verb.CANCEL, "KeyError")
        assert given_up.reason == "gave up after 3 attempts (retry on KeyError)"

    def test_each_policy_counts_its_own(self) -> None:
        """Retries for one error leave those for another alone."""
        policies = (Retry(KeyError, attempts=5), Retry(ValueError, attempts=5))
        decided = decision(ValueError(), *policies, counts={"KeyError": 2, "ValueError": 1})
        assert (decided.verb, decided.wait) == (Verb.RETRY, 2 * SECOND)

    def test_all_together_are_capped_by_the_smallest(self) -> None:
        """Errors that take turns do not multiply the attempts."""
        policies = (Retry(KeyError, attempts=10), Retry(ValueError, attempts=3))
        assert decision(KeyError(), *policies, counts={"KeyError": 1}).verb is Verb.RETRY
        assert decision(KeyError(), *policies, counts={"KeyError": 1, "ValueError": 1}).verb is Verb.FAIL

    def test_the_class_does_not_cap_the_step(self) -> None:
        """A tight limit of the class has no say in a list that the step gave itself."""
        own = Retry(KeyError, attempts=10)
        assert (
            decision(KeyError(), own, workflow=[Retry(attempts=2)], counts={"KeyError": 5}).verb is Verb.RETRY
        )

    def test_a_fixed_wait_stays_the_same(self) -> None:
        """``wait=`` is the delay of every retry, without jitter."""
        policy = Retry(wait=timedelta(minutes=7), attempts=9)
        assert {decide(ValueError(), step=[policy], counts={"*": n}).wait for n in range(8)} == {
            timedelta(minutes=7)
        }

    def test_by_default_the_delay_doubles(self) -> None:
        """1, 2, 4, 8 … seconds, up to five minutes."""
        policy = Retry(attempts=20)
        waits = [decision(ValueError(), policy, counts={"*": n}).wait for n in range(12)]
        assert [wait // SECOND for wait in waits] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]

    @pytest.mark.parametrize(
        ("arguments", "options", "text"),
        [
            ((), {"attempts": 0}, "Retry: attempts counts the first run too, so it is 1 or more; got 0"),
            ((), {"attempts": True}, "Retry: attempts must be an int; got True"),
            ((), {"attempts": 2.5}, "Retry: attempts must be an int; got 2.5"),
            ((), {"attempts": None}, "Retry: attempts must be an int; got None"),
            ((), {"wait": 30}, "Retry: wait must be a timedelta; got 30"),
            ((), {"wait": -SECOND}, "Retry: wait must not be negative; got -1 day, 23:59:59"),
            (
                (),
                {"wait": SECOND, "backoff": Backoff()},
                "Retry: wait is a fixed delay and backoff a growing one; give one of them",
            ),
            ((), {"backoff": 2}, "Retry: backoff must be a Backoff(...); got 2"),
            (
                (),
                {"then": "retry"},
                "Retry: then must be one of 'fail', 'pause', 'cancel', 'skip'; got 'retry'",
            ),
            (
                (),
                {"report": "sometimes"},
                "Retry: report must be one of 'always', 'never', 'terminal_only'; got 'sometimes'",
            ),
            ((5,), {}, "Retry: an error is an exception class or its dotted name; got 5"),
            ((str,), {}, "Retry: an error is an exception class or its dotted name; got <class 'str'>"),
            (("not a name",), {}, "Retry: 'not a name' is no dotted name such as \"smtplib.SMTPException\""),
            (
                ("SMTPException",),
                {},
                "Retry: 'SMTPException' is no built-in exception; write its module too, "
                '"package.SMTPException"',
            ),
        ],
    )
    def test_bad_values_are_refused(
        self, arguments: tuple[Any, ...], options: dict[str, Any], text: str
    ) -> None:
        """A policy that cannot work is refused where it is written."""
        with pytest.raises((TypeError, ValueError)) as refused:
            Retry(*arguments, **options)
        assert str(refused.value) == text


class TestBackoff:
    @given(
        retry=st.integers(1, 100_000),
        factor=st.floats(1, 100),
        jitter=st.floats(0, 1),
        chance=st.floats(0, 1, exclude_max=True),
    )
    def test_delays_stay_in_their_bounds(
        self, retry: int, factor: float, jitter: float, chance: float
    ) -> None:
        """No delay is negative, nor longer than the cap and its jitter, however often it was tried."""
        backoff = Backoff(factor=factor, jitter=jitter)
        delay = backoff.delay(retry, lambda: chance)
        assert timedelta() <= delay <= backoff.cap * (1 + jitter) + timedelta(microseconds=1)

    def test_jitter_goes_both_ways(self) -> None:
        """Chance moves a delay by up to its share, earlier or later."""
        backoff = Backoff(base=10 * SECOND, jitter=0.1)
        assert backoff.delay(1, lambda: 0.0) == 9 * SECOND
        assert backoff.delay(1, lambda: 1.0) == 11 * SECOND

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"base": 1}, "Backoff: base must be a timedelta; got 1"),
            (
                {"base": timedelta()},
                "Backoff: base must be more than zero and cap no less than base; got 0:00:00, 0:05:00",
            ),
            (
                {"cap": timedelta(milliseconds=1)},
                "Backoff: base must be more than zero and cap no less than base; got 0:00:01, 0:00:00.001000",
            ),
            ({"factor": 0.5}, "Backoff: factor must be 1 or more; got 0.5"),
            ({"factor": float("nan")}, "Backoff: factor must be 1 or more; got nan"),
            ({"jitter": 1.5}, "Backoff: jitter must be from 0 to 1; got 1.5"),
            ({"jitter": True}, "Backoff: jitter must be a number; got True"),
        ],
    )
    def test_bad_values_are_refused(self, options: dict[str, Any], text: str) -> None:
        """A backoff that would wait never, less and less, or for ever is refused."""
        with pytest.raises((TypeError, ValueError)) as refused:
            Backoff(**options)
        assert str(refused.value) == text


class TestReport:
    @pytest.mark.parametrize(
        ("report", "while_retried", "at_the_end"),
        [("always", True, True), ("never", False, False), ("terminal_only", False, True)],
    )
    def test_report_says_when_the_reporter_hears(
        self, report: Any, while_retried: bool, at_the_end: bool
    ) -> None:
        """``terminal_only`` keeps quiet while the step will be tried again."""
        policy = Retry(report=report, attempts=2)
        assert decision(ValueError(), policy).report is while_retried
        assert decision(ValueError(), policy, counts={"*": 1}).report is at_the_end

    def test_what_is_not_retried_is_terminal(self) -> None:
        """Skipping, pausing, canceling and failing all end the attempts."""
        for policy in (Skip, Pause, Cancel, Fail):
            assert decision(ValueError(), policy(report="terminal_only")).report
            assert not decision(ValueError(), policy(report="never")).report


class TestHandlers:
    def test_a_handler_is_found_like_any_policy(self) -> None:
        """The decision carries the author's function; running it is not the policy's business."""

        @handles(KeyError)
        def look(workflow: Any, error: BaseException) -> None: ...

        assert isinstance(look, Handler)
        decided = decision(KeyError(), look)
        assert (decided.verb, decided.label, decided.handler) == (Verb.HANDLE, "KeyError", look.function)

    def test_a_handler_can_pass_the_error_on(self) -> None:
        """Asked again without the handler, the next policy answers."""

        @handles
        def look(workflow: Any, error: BaseException) -> None: ...

        assert isinstance(look, Handler)
        assert decision(KeyError(), look, Skip(), passed=[look]).verb is Verb.SKIP

    def test_a_handler_without_errors_is_a_blanket_one(self) -> None:
        """``@handles`` works with and without brackets."""

        @handles()
        def look(workflow: Any, error: BaseException) -> None: ...

        assert isinstance(look, Handler)
        assert look.is_blanket

    def test_a_handler_is_a_method_still(self) -> None:
        """A unit test calls it on an instance."""

        class Workflow:
            @handles(KeyError)
            def look(self, error: BaseException) -> str:
                return f"{type(self).__name__} saw {error!r}"

        assert Workflow().look(KeyError(1)) == "Workflow saw KeyError(1)"

    def test_only_plain_functions_handle(self) -> None:
        """An async handler or a generator would never run."""

        async def later(workflow: Any, error: BaseException) -> None: ...

        def bit_by_bit(workflow: Any, error: BaseException) -> Any:
            yield

        for function in (later, bit_by_bit):
            with pytest.raises(TypeError, match="must be a plain function, not async or a generator"):
                handles(KeyError)(function)
        with pytest.raises(TypeError, match=r"a function of \(workflow, error\) is decorated; got 5"):
            handles(5)  # type: ignore[call-overload]


class TestValues:
    def test_policies_are_values(self) -> None:
        """Equal by what they say, hashable, and closed to change."""
        assert Retry(KeyError, attempts=2) == Retry(KeyError, attempts=2)
        assert len({Skip(), Skip(), Pause(), Skip(KeyError)}) == 3
        with pytest.raises(AttributeError):
            Skip().report = "never"  # type: ignore[misc]

    def test_their_text_is_the_same_in_every_process(self) -> None:
        """A plan's fingerprint is made of it, so it holds no address."""
        assert (
            str(Skip(xml.etree.ElementTree.ParseError))
            == "Skip(xml.etree.ElementTree.ParseError, report=always)"
        )
        assert str(Retry()) == (
            "Retry(*, attempts=3, Backoff(0:00:01, 2, 0:05:00, 0.1), then=fail, report=always)"
        )

        @handles(KeyError)
        def look(workflow: Any, error: BaseException) -> None: ...

        assert str(look).startswith("handles(KeyError, TestValues.")
        assert " at 0x" not in str(look)

    def test_other_policies_say_what_they_did(self) -> None:
        """A run that a policy paused or canceled tells on which errors."""
        assert decision(KeyError(), Pause(KeyError)).reason == "pause on KeyError"
        assert decision(KeyError(), Cancel()).reason == "cancel on *"
        assert decision(KeyError(), Fail()).reason is None
