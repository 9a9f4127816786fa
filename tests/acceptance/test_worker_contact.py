"""When a worker may take leases from others, and what its heartbeat proves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from stepwell import Stepwell
from stepwell.engine.leases import Lease
from stepwell.entries import Execution
from stepwell.ids import new_run_id, new_token
from stepwell.states import ExecutionState, Kind
from stepwell.worker.contact import Contact
from stepwell.worker.heartbeat import Heartbeat
from tests.chaos.fleet import until

INTERVAL = 10.0


class Seconds:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def contact(seconds: Seconds) -> Contact:
    return Contact(INTERVAL, seconds)


@pytest.fixture
def well(database_url: str) -> Iterator[Stepwell]:
    engine = Stepwell(database_url, lease=timedelta(seconds=3), default=False)
    yield engine
    engine.close()


def test_contact_is_proven_after_a_whole_interval(contact: Contact, seconds: Seconds) -> None:
    """A worker takes nothing from others before its own beats have gone through for one renewal interval."""
    contact.made()
    assert not contact.is_proven()
    seconds.now += INTERVAL - 0.1
    assert not contact.is_proven()
    seconds.now += 0.1
    contact.made()
    assert contact.is_proven()


def test_beats_that_come_a_little_late_keep_the_contact(contact: Contact, seconds: Seconds) -> None:
    """A beat comes an interval after the last one and takes a moment: that is no outage."""
    for _ in range(5):
        seconds.now += INTERVAL + 0.5
        contact.made()
    assert contact.is_proven()
    seconds.now += INTERVAL
    assert contact.is_proven()


@pytest.mark.parametrize("silence", [1.6 * INTERVAL, 100 * INTERVAL])
def test_a_silence_breaks_the_contact_for_an_interval(
    contact: Contact, seconds: Seconds, silence: float
) -> None:
    """After a silence in which leases may have run out, the living get a whole interval in which to renew."""
    seconds.now += INTERVAL
    contact.made()
    assert contact.is_proven()
    seconds.now += silence
    assert not contact.is_proven()
    contact.made()
    assert not contact.is_proven()
    seconds.now += INTERVAL - 0.1
    assert not contact.is_proven()
    seconds.now += 0.1
    assert contact.is_proven()


def test_an_error_breaks_the_contact(contact: Contact, seconds: Seconds) -> None:
    """A database that did not answer counts as an outage, however short."""
    seconds.now += INTERVAL
    contact.made()
    contact.lost()
    seconds.now += 1
    contact.made()
    assert not contact.is_proven()


def test_a_beat_proves_that_one_could_renew(well: Stepwell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that holds no lease asks the database all the same: without an answer there is no contact."""
    well.connect()
    contact = Contact(1.0)
    made: list[str] = []
    monkeypatch.setattr(contact, "made", lambda: made.append("made"))
    heartbeat = Heartbeat(well, contact, "worker")

    def unreachable(*_arguments: Any, **_named: Any) -> None:
        raise ConnectionError("no route")

    with monkeypatch.context() as broken:
        broken.setattr(well.database.reserved, "connect", unreachable)
        broken.setattr(well.database.reserved, "begin", unreachable)
        with pytest.raises(ConnectionError):
            heartbeat.beat()
    assert made == []
    heartbeat.beat()
    assert made == ["made"]


def test_a_beat_that_had_to_wait_is_followed_by_another_at_once(
    well: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal that hung in an outage renews for an instant that is past: it is said again before others look."""
    heartbeat = Heartbeat(well, Contact(1.0), "worker")
    began: list[float] = []

    def beat() -> None:
        began.append(time.monotonic())
        if len(began) == 1:
            threading.Event().wait(1.5 * heartbeat.interval)

    monkeypatch.setattr(heartbeat, "beat", beat)
    heartbeat.start()
    until("it has beaten twice", lambda: len(began) >= 2)
    heartbeat.stop()
    assert began[1] - began[0] < 1.5 * heartbeat.interval + 0.3


def test_what_cannot_be_shown_keeps_no_lease_from_being_renewed(
    well: Stepwell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that reports a progress that is no number stays invisible; the beat goes on."""
    well.connect()
    lease = Lease(new_run_id(), new_token(), 0.0)
    row = Execution(1, "work", Kind.STEP, ExecutionState.IN_PROGRESS)
    lease.shown = SimpleNamespace(name="work", is_called=False, shown=lambda: row)
    lease.progress = (object(), None)  # type: ignore[assignment]  # what an author's code may pass
    well.leases.add(lease)
    renewed: list[Sequence[Lease]] = []
    monkeypatch.setattr(well, "renew_leases", renewed.append)
    Heartbeat(well, Contact(1.0), "worker").beat()
    assert renewed == [[lease]]
