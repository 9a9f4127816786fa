"""The write gate: first come, first served, renewals ahead, and nobody waits for himself."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from stepwell.errors import StoreError
from stepwell.store.gate import WriteGate, gate_for


def queue_up(gate: WriteGate, name: str, order: list[str], *, urgent: bool = False) -> threading.Thread:
    """A thread that waits for the gate; it is in the queue when this returns."""
    waiting = len(gate._waiting)

    def pass_through() -> None:
        with gate.held(urgent=urgent):
            order.append(name)

    thread = threading.Thread(target=pass_through)
    thread.start()
    wait_for(lambda: len(gate._waiting) > waiting)
    return thread


def wait_for(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < limit, "it did not come to pass"
        time.sleep(0.001)


def test_whoever_came_first_goes_first() -> None:
    """Threads pass in the order in which they came: nobody starves."""
    gate, order = WriteGate(), list[str]()
    with gate.held():
        threads = [queue_up(gate, str(number), order) for number in range(8)]
    for thread in threads:
        thread.join()
    assert order == [str(number) for number in range(8)]


def test_a_renewal_goes_ahead_of_steps() -> None:
    """What keeps leases alive waits for the holder only, however many steps are queued."""
    gate, order = WriteGate(), list[str]()
    with gate.held():
        threads = [queue_up(gate, f"step {number}", order) for number in range(3)]
        threads.append(queue_up(gate, "renewal", order, urgent=True))
    for thread in threads:
        thread.join()
    assert order == ["renewal", "step 0", "step 1", "step 2"]


def test_one_thread_at_a_time_is_inside() -> None:
    """Two writers never overlap, whatever the crowd."""
    gate, inside, most = WriteGate(), 0, 0

    def pass_often() -> None:
        nonlocal inside, most
        for _ in range(200):
            with gate.held():
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=pass_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, gate._holder, len(gate._waiting)) == (1, None, 0)


def test_nobody_slips_in_between_two_turns() -> None:
    """A turn that was passed on is taken, also before the thread that has it runs again."""
    gate, order = WriteGate(), list[str]()
    turn = threading.Lock()
    turn.acquire()
    with gate.held():
        gate._waiting.append(turn)
    assert turn.acquire(timeout=1), "the turn is this thread's now"
    late = queue_up(gate, "late", order)
    assert order == []
    gate.release()
    late.join(timeout=10)
    assert order == ["late"]


def test_a_thread_that_is_inside_is_told_so() -> None:
    """A second transaction of the same thread would wait for ever; it is refused, and told what to write."""
    gate = WriteGate()
    with gate.held():
        with pytest.raises(StoreError, match=r"already has a write transaction open.*session=self\.session"):
            gate.acquire()
    with gate.held():
        pass


def test_an_error_inside_opens_the_gate() -> None:
    """A transaction that failed holds nobody up."""
    gate = WriteGate()
    with pytest.raises(ZeroDivisionError), gate.held():
        1 / 0
    with gate.held():
        pass


@contextmanager
def an_interrupt_while_waiting(gate: WriteGate) -> Iterator[None]:
    """Ctrl-C for the main thread, as soon as it waits at the gate."""

    def interrupt() -> None:
        wait_for(lambda: len(gate._waiting) > 0)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def handle(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_ends_the_wait_and_leaves_the_queue() -> None:
    """Ctrl-C at the gate gives up the place: those behind do not wait for one who has gone."""
    gate, order = WriteGate(), list[str]()
    holds, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with gate.held():
            holds.set()
            may_go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    holds.wait()
    with an_interrupt_while_waiting(gate), pytest.raises(KeyboardInterrupt):
        gate.acquire()
    behind = queue_up(gate, "behind", order)
    may_go.set()
    holder.join()
    behind.join(timeout=10)
    assert order == ["behind"]


def test_a_turn_that_is_given_up_passes_on() -> None:
    """One whose turn has come just as it gives up lets the next one in."""
    gate, order = WriteGate(), list[str]()
    turn = threading.Lock()
    gate._holder = -1
    behind = queue_up(gate, "behind", order)
    gate._give_up(turn)
    behind.join(timeout=10)
    assert order == ["behind"]


def test_a_file_has_one_gate() -> None:
    """All engines on one file share its gate, and a file that nobody has open has none."""
    one = gate_for("app.db")
    assert gate_for("app.db") is one
    assert gate_for("other.db") is not one
    with one.held(), pytest.raises(StoreError):
        gate_for("app.db").acquire()
    del one
    gc.collect()
    with gate_for("app.db").held():
        pass
