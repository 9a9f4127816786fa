"""Calling steps and verbs: plainly outside a run, through the runtime inside one."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from stepwell.definition.runtime import current
from stepwell.definition.steps import Step, step
from stepwell.definition.workflow import Workflow
from stepwell.errors import RunError, WrongArguments
from tests.unit.definition.sample import User


class Payment(Workflow[User]):
    @step
    def charge(self, amount: int = 3, *, currency: str = "usd") -> str:
        """Take the money."""
        return f"{amount} {currency}"

    @step
    async def notify(self) -> bool:
        await asyncio.sleep(0)
        return True


class Stricter(Payment):
    @step
    def charge(self, amount: int = 3, *, currency: str = "usd") -> str:
        return f"strictly {super().charge(amount, currency=currency)}"


@pytest.fixture
def runtime() -> Iterator[mock.Mock]:
    """A runtime that is current in this thread."""
    stand_in = mock.Mock(is_in_body=False)
    token = current.set(stand_in)
    yield stand_in
    current.reset(token)


def driven(workflow: Any, runtime: mock.Mock) -> Any:
    workflow._runtime = runtime
    return workflow


class TestPlainly:
    def test_a_step_is_an_ordinary_method(self) -> None:
        """On an instance made by hand it does what its body says."""
        assert Payment().charge(5, currency="eur") == "5 eur"
        assert Payment.charge(Payment(), 5) == "5 usd"

    def test_an_async_step_runs_to_its_end(self) -> None:
        """A unit test need not know about event loops."""
        assert Payment().notify() is True

    def test_in_a_running_loop_an_async_step_is_awaited(self) -> None:
        """A second loop cannot run in the same thread."""

        async def main() -> Any:
            return await Payment().notify()  # type: ignore[misc]

        assert asyncio.run(main()) is True

    def test_super_reaches_the_overridden_step(self) -> None:
        """The base's body is a part of the override's."""
        assert Stricter().charge() == "strictly 3 usd"

    def test_a_step_can_be_patched(self) -> None:
        """On the class or on one instance, and it comes back."""
        payment = Payment()
        with mock.patch.object(Payment, "charge", return_value="patched"):
            assert payment.charge() == "patched"
        with mock.patch.object(payment, "charge", return_value="patched"):
            assert payment.charge() == "patched"
        assert payment.charge() == "3 usd"
        assert isinstance(Payment.charge, Step)

    def test_a_step_tells_its_name_signature_and_documentation(self) -> None:
        """As the function that it is made of would."""
        assert (
            str(inspect.signature(Payment().charge))
            == "(amount: 'int' = 3, *, currency: 'str' = 'usd') -> 'str'"
        )
        assert list(inspect.signature(Payment.charge).parameters) == ["self", "amount", "currency"]
        assert (Payment.charge.__doc__, Payment.charge.__name__) == ("Take the money.", "charge")  # type: ignore[attr-defined]
        assert (Payment().charge.name, Payment().charge.__name__) == ("charge", "charge")


class TestInARun:
    def test_a_call_goes_to_the_runtime(self, runtime: mock.Mock) -> None:
        """With the step as the plan has it, and the arguments as they were given."""
        payment = driven(Payment(), runtime)
        assert payment.charge(5, currency="eur") is runtime.call_step.return_value
        runtime.call_step.assert_called_once_with(
            Payment.plan.find("charge"), payment, (5,), {"currency": "eur"}
        )

    def test_super_runs_plainly(self, runtime: mock.Mock) -> None:
        """The overridden step is no step of its own, so the runtime never hears of it."""
        stricter = driven(Stricter(), runtime)
        spec = Stricter.plan.find("charge")
        assert spec is not None
        assert spec.function(stricter) == "strictly 3 usd"
        runtime.call_step.assert_not_called()

    def test_what_a_step_asks_comes_from_the_runtime(self, runtime: mock.Mock) -> None:
        """Hero, context, session and the rest belong to the activation."""
        payment = driven(Payment(), runtime)
        for name in (
            "hero",
            "context",
            "session",
            "cursor",
            "run_id",
            "idempotency_key",
            "logger",
            "stop_requested",
        ):
            assert getattr(payment, name) is getattr(runtime, name)

    def test_verbs_go_to_the_runtime(self, runtime: mock.Mock) -> None:
        """Each with its arguments, defaults filled in."""
        payment = driven(Payment(), runtime)
        payment.pause("why", done=True)
        payment.cancel()
        payment.skip()
        payment.retry(rewind=True)
        payment.finish(5)
        payment.suspend()
        payment.progress(1)
        assert runtime.mock_calls == [
            mock.call.pause("why", True),
            mock.call.cancel(None),
            mock.call.skip(),
            mock.call.retry(None, True),
            mock.call.finish(5),
            mock.call.suspend(None),
            mock.call.progress(1, None),
        ]


VERBS: list[tuple[str, tuple[Any, ...]]] = [
    ("pause", ()),
    ("cancel", ()),
    ("skip", ()),
    ("retry", ()),
    ("finish", ()),
    ("suspend", ()),
    ("progress", (1,)),
]


class TestOutsideARun:
    @pytest.mark.parametrize(("verb", "arguments"), VERBS)
    def test_a_verb_needs_a_run(self, verb: str, arguments: tuple[Any, ...]) -> None:
        """There is nothing to pause."""
        with pytest.raises(RunError) as refused:
            getattr(Payment(), verb)(*arguments)
        assert str(refused.value) == (
            f"{verb}() exists only while a run is driven; this Payment was made by hand."
        )

    @pytest.mark.parametrize(("verb", "arguments"), VERBS)
    def test_a_verb_belongs_to_the_thread_of_the_step(
        self, runtime: mock.Mock, verb: str, arguments: tuple[Any, ...]
    ) -> None:
        """It stops the code that calls it: in another thread that would be the wrong one."""
        payment = driven(Payment(), runtime)
        errors: list[BaseException] = []

        def call() -> None:
            try:
                getattr(payment, verb)(*arguments)
            except RunError as error:
                errors.append(error)

        thread = threading.Thread(target=contextvars.Context().run, args=(call,))
        thread.start()
        thread.join()
        assert [str(error) for error in errors] == [
            f"{verb}() of Payment was called where no step of this run is active, such as another thread. "
            "Call it in the step itself."
        ]
        runtime.assert_not_called()

    def test_a_workflow_made_by_hand_has_what_it_was_given(self) -> None:
        """Hero and arguments are those of the constructor, the context is a dict."""
        user = User()
        payment = Payment(user, amount=3)
        payment.context["seen"] = [1]
        assert (payment.hero, dict(payment.args), payment.context) == (user, {"amount": 3}, {"seen": [1]})
        assert not payment.stop_requested
        assert payment.logger.name == "stepwell.workflow.Payment"
        assert Payment().context == {}

    def test_arguments_are_read_only(self) -> None:
        """What a step leaves for the next belongs into the context."""
        with pytest.raises(TypeError):
            Payment(amount=3).args["amount"] = 4  # type: ignore[index]

    @pytest.mark.parametrize("name", ["session", "cursor", "run_id", "idempotency_key"])
    def test_some_things_exist_in_a_run_only(self, name: str) -> None:
        """Rather than answering something made up."""
        with pytest.raises(RunError, match=f"^{name} exists only while a run is driven"):
            getattr(Payment(), name)


class Welcoming(Workflow):
    """Without run(), it takes any argument."""

    @step
    def greet(self) -> None: ...


@pytest.mark.parametrize("option", ["key", "queue", "at", "session"])
def test_an_option_of_the_start_is_no_argument(option: str) -> None:
    """A class that takes any argument would silently take that one, and be started twice."""
    with pytest.raises(WrongArguments, match=rf"with_options\({option}=\.\.\.\)\.start"):
        Welcoming.with_args(**{option: "order-1"})
