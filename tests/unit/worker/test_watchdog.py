"""The watchdog: bodies end when their time is up, and nothing of it is left in the thread."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from stepwell import StepTimedOut
from stepwell.shield import shielded
from stepwell.worker.watchdog import Watchdog

# An exception that is raised in a thread may land in a callback of the test tools' own (of the garbage collector's);
# there Python can only report it. The watchdog raises it again a second later.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SHORT = timedelta(seconds=0.03)
LONG = timedelta(seconds=60)


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    watchdog = Watchdog()
    yield watchdog
    watchdog.close()


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_body_in_time_answers(watchdog: Watchdog) -> None:
    """Its result, or its own error."""
    assert watchdog.run(lambda: 7, LONG) == 7
    with pytest.raises(ZeroDivisionError):
        watchdog.run(lambda: 1 / 0, LONG)


def test_a_body_that_spins_is_ended(watchdog: Watchdog) -> None:
    """Wherever its bytecode is; the error says how long it took and what the limit was."""
    began = time.monotonic()
    with pytest.raises(
        StepTimedOut, match=r"^the body was ended after 0\.\d s \(timeout 0:00:00.030000\)$"
    ) as caught:
        watchdog.run(lambda: spin(60), SHORT)

    assert time.monotonic() - began < 10
    assert caught.value.__cause__ is None


def test_a_body_that_swallows_exceptions_is_ended(watchdog: Watchdog) -> None:
    """``except Exception`` around everything, in a tight loop, does not see it."""

    def stubborn() -> None:
        while True:
            try:
                spin(0.001)
                raise ValueError
            except Exception:
                pass

    with pytest.raises(StepTimedOut):
        watchdog.run(stubborn, SHORT)


def test_a_body_that_sleeps_is_ended_when_it_wakes(watchdog: Watchdog) -> None:
    """Native code cannot be interrupted: the exception comes when it returns."""
    woken: list[str] = []

    def sleepy() -> None:
        time.sleep(0.15)
        woken.append("woken")

    with pytest.raises(StepTimedOut):
        watchdog.run(sleepy, SHORT)

    assert woken == []


def test_a_body_that_swallows_everything_has_timed_out(watchdog: Watchdog) -> None:
    """Whether it returns afterwards or raises something of its own."""

    def deaf(then: Any) -> Any:
        try:
            spin(60)
        except BaseException:
            return then()

    with pytest.raises(StepTimedOut) as returned:
        watchdog.run(lambda: deaf(lambda: "done"), SHORT)
    with pytest.raises(StepTimedOut) as raised:
        watchdog.run(lambda: deaf(lambda: {}["gone"]), SHORT)

    assert returned.value.__cause__ is None
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_body_that_goes_on_hears_it_again(watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Swallowed once is not swallowed for ever."""
    monkeypatch.setattr("stepwell.worker.watchdog._AGAIN_SECONDS", 0.02)
    heard: list[int] = []

    def deaf() -> None:
        while len(heard) < 3:
            try:
                spin(60)
            except BaseException:
                heard.append(1)
        spin(60)

    with pytest.raises(StepTimedOut):
        watchdog.run(deaf, SHORT)

    assert len(heard) == 3


def test_cleanup_runs(watchdog: Watchdog) -> None:
    """``finally`` blocks and context managers of the body see it pass through."""
    cleaned: list[str] = []

    def body() -> None:
        try:
            spin(60)
        finally:
            cleaned.append("cleaned")

    with pytest.raises(StepTimedOut):
        watchdog.run(body, SHORT)

    assert cleaned == ["cleaned"]


def test_the_shortest_limit_is_kept_first(watchdog: Watchdog) -> None:
    """A body with a short limit that begins after one with a long one does not wait for that."""
    done = threading.Event()
    other = threading.Thread(target=lambda: watchdog.run(lambda: done.wait(30), LONG))
    other.start()
    with pytest.raises(StepTimedOut):
        watchdog.run(lambda: spin(60), SHORT)
    done.set()
    other.join(timeout=10)

    assert not other.is_alive()


def test_bodies_that_are_over_do_not_pile_up(watchdog: Watchdog) -> None:
    """An hour's limit on a thousand quick bodies keeps nothing for an hour, least of all what they closed over."""

    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    for _ in range(1000):
        watchdog.run(lambda thing=thing: None, LONG)  # type: ignore[misc]
    del thing
    gc.collect()

    assert len(watchdog._due) < 200
    assert gone() is None


def test_a_shielded_place_is_left_before_it_is_ended(watchdog: Watchdog) -> None:
    """In the middle of a commit nobody is interrupted; at its end the body is."""
    steps: list[str] = []

    def body() -> None:
        with shielded():
            with shielded():
                spin(0.1)
                steps.append("inner")
            spin(0.05)
            steps.append("outer")
        steps.append("after")

    with pytest.raises(StepTimedOut):
        watchdog.run(body, SHORT)

    assert steps == ["inner", "outer"]


def test_a_shield_outside_of_a_limit_is_none() -> None:
    """Nothing happens where nobody is watched."""
    with shielded():
        pass


def test_a_body_that_ends_just_at_its_limit_leaves_nothing_behind(watchdog: Watchdog) -> None:
    """Thousands of times at the very edge: no exception comes up later in the thread, which runs other bodies."""
    ended = 0
    limit = 0.0008
    for number in range(3000):
        length = limit * (0.9 + 0.2 * (number % 100) / 100)
        try:
            watchdog.run(lambda length=length: spin(length), timedelta(seconds=limit))  # type: ignore[misc]
        except StepTimedOut:
            ended += 1
        # What was not taken back would be raised here.
        for _ in range(50):
            pass
    spin(0.05)

    assert 0 < ended < 3000


def test_shields_at_the_edge_hold() -> None:
    """A body that is ended at its limit while it enters and leaves shielded places never breaks one of them off."""
    watchdog = Watchdog()
    entered = left = ended = 0
    stop = time.monotonic() + 2

    def body() -> None:
        nonlocal entered, left
        while True:
            with shielded():
                entered += 1
                for _ in range(20):
                    pass
                left += 1

    while time.monotonic() < stop:
        with pytest.raises(StepTimedOut):
            watchdog.run(body, timedelta(seconds=0.0005))
        ended += 1
    watchdog.close()

    assert ended > 100
    assert entered == left
