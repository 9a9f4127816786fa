"""Options for one call of a step."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import Retry, Workflow, WrongArguments, step
from stepwell.testing import Workbench


class Shipping(Workflow):
    """A step that fails twice before it succeeds."""

    workflow_name = "options.Shipping"

    tries = 0

    def run(self, **options: Any) -> str:
        return self.ship.with_options(on_exception=Retry(attempts=3, wait=timedelta()))("a")

    @step
    def ship(self, item: str) -> str:
        type(self).tries += 1
        if type(self).tries < 3:
            raise ConnectionError
        return f"shipped {item}"


def test_an_option_is_for_this_call() -> None:
    """The step itself has no policy."""
    Shipping.tries = 0
    with Workbench() as bench:
        run = Shipping.start()
        bench.drain()
        assert run.result(timeout=timedelta()) == "shipped a"


def test_a_plain_call_has_no_use_for_options() -> None:
    """In a unit test the step is an ordinary method all the same."""
    Shipping.tries = 2
    assert Shipping().ship.with_options(timeout=timedelta(seconds=1))("b") == "shipped b"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"wait": timedelta()}, "ship.with_options() has no option 'wait'. The options of one call are"),
        ({"timeouts": timedelta()}, "did you mean timeout?"),
        ({"timeout": 5}, "ship.with_options(): timeout must be a timedelta"),
        ({"on_exception": 5}, "ship.with_options(): on_exception must be a list of policies"),
        ({"priority": -1}, "ship.with_options(): priority"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], text: str) -> None:
    """Before anything is called."""
    with pytest.raises(WrongArguments) as caught:
        Shipping().ship.with_options(**options)
    assert text in str(caught.value)
