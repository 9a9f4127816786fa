"""What an engine and a worker are told is checked when they are made, not when it is first used."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Stepwell, Worker


@pytest.fixture
def well(sqlite_url: str) -> Iterator[Stepwell]:
    engine = Stepwell(sqlite_url, default=False)
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"grace": 1}, TypeError, r"grace must be a timedelta; got 1\. Write timedelta\(seconds=\.\.\.\)\."),
        ({"grace": None}, TypeError, "grace must be a timedelta; got None"),
        ({"grace": timedelta(seconds=-1)}, ValueError, "grace must not be negative"),
        ({"poll": 0.5}, TypeError, "poll must be a timedelta; got 0.5"),
        ({"poll": timedelta()}, ValueError, "poll must be more than zero"),
        ({"threads": 0}, ValueError, "threads must be 1 or more; got 0"),
        ({"threads": "4"}, TypeError, "threads must be an int; got '4'"),
        ({"threads": True}, TypeError, "threads must be an int; got True"),
        ({"queues": []}, ValueError, "at least one queue"),
        ({"queues": [""]}, ValueError, "a queue's name must not be empty"),
        ({"queues": ""}, ValueError, "a queue's name must not be empty"),
        ({"queues": ["mail", 3]}, TypeError, "a queue's name must be a string; got 3"),
        ({"queues": ["m" * 191]}, ValueError, "a queue's name must have at most 190 characters"),
        ({"name": ""}, ValueError, "a worker's name must not be empty"),
        ({"name": "n" * 191}, ValueError, "a worker's name must have at most 190 characters"),
    ],
)
def test_a_worker_refuses_what_it_could_not_work_with(
    well: Stepwell, settings: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """A bare number for a duration, no threads, a queue without a name: said at once, with the setting's name."""
    with pytest.raises(kind, match=message):
        Worker(well, **settings)


def test_a_stop_takes_a_duration(well: Stepwell) -> None:
    """``stop(5)`` says what to write, and the worker goes on until it is told rightly."""
    worker = Worker(well, threads=1)
    worker.start()
    with pytest.raises(TypeError, match="grace must be a timedelta; got 5"):
        worker.stop(5)  # type: ignore[arg-type]  # the mistake
    assert worker.stop(timedelta())


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"lease": 30}, TypeError, "lease must be a timedelta; got 30"),
        ({"lease": timedelta(seconds=0.5)}, ValueError, "lease must be at least one second"),
        ({"unknown_grace": 60}, TypeError, "unknown_grace must be a timedelta; got 60"),
        ({"unknown_grace": timedelta(-1)}, ValueError, "unknown_grace must not be negative"),
        ({"session_idle_limit": 60}, TypeError, "session_idle_limit must be a timedelta; got 60"),
        ({"max_recoveries": -1}, ValueError, "max_recoveries must be 0 or more; got -1"),
        ({"max_recoveries": 2.5}, TypeError, "max_recoveries must be an int; got 2.5"),
        ({"result_limit": 0}, ValueError, "result_limit must be 1 or more; got 0"),
        ({"result_limit": "1 MiB"}, TypeError, "result_limit must be an int"),
    ],
)
def test_an_engine_refuses_what_it_could_not_work_with(
    sqlite_url: str, settings: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """A wrong setting is told by whoever makes the engine, not by the first worker that needs it."""
    with pytest.raises(kind, match=message):
        Stepwell(sqlite_url, default=False, **settings)
