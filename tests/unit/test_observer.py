"""Observers: each hears of everything, and none can break anything."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from stepwell import Event, EventKind
from stepwell.observer import Observers

EVENT = Event(
    EventKind.STEP, datetime(2030, 6, 1, tzinfo=UTC), uuid4(), "Order", "ship", {"outcome": "success"}
)


class Ear:
    """Hears, and may not like it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.heard: list[Event] = []
        self.error = error

    def observe(self, event: Event) -> None:
        self.heard.append(event)
        if self.error is not None:
            raise self.error


def test_each_observer_hears_each_event() -> None:
    """In their order, the very same value."""
    ears = [Ear(), Ear()]
    Observers(ears).tell(EVENT)

    assert [ear.heard for ear in ears] == [[EVENT], [EVENT]]


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1)])
def test_an_observer_that_raises_hurts_nobody(caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    """Its error is logged with the run; the next one hears the event all the same. ``sys.exit()`` in it ends no thread
    of a worker.
    """
    first, second = Ear(error), Ear()
    with caplog.at_level(logging.ERROR):
        Observers([first, second]).tell(EVENT)

    assert second.heard == [EVENT]
    (record,) = caplog.records
    assert record.action == "observer.failed"  # type: ignore[attr-defined]
    assert record.run_id == str(EVENT.run_id)  # type: ignore[attr-defined]


def test_an_interrupt_at_the_terminal_is_no_observers_error() -> None:
    """Ctrl-C in the thread that starts a run ends what that thread does."""
    with pytest.raises(KeyboardInterrupt):
        Observers([Ear(KeyboardInterrupt())]).tell(EVENT)


def test_no_observers_are_nobody() -> None:
    """So that events are made only where somebody hears them."""
    assert not Observers()
    assert Observers([Ear()])


def test_an_event_is_a_value() -> None:
    """It cannot be changed by whoever hears it first."""
    with pytest.raises(AttributeError):
        EVENT.step = "other"  # type: ignore[misc]

    assert Event(EventKind.PARK, EVENT.at, EVENT.run_id).facts == {}
