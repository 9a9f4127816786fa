"""What a worker has claimed and no thread has begun with."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from stepwell.engine.leases import Lease
from stepwell.ids import new_run_id, new_token
from stepwell.worker.claimer import Claimed
from stepwell.worker.inbox import Inbox


def claimed() -> Claimed:
    row: Any = None
    return Claimed(row, Lease(new_run_id(), new_token(), math.inf), ())


def test_runs_are_handed_out_in_their_order() -> None:
    """What was claimed first goes first; after the last one the threads are sent home."""
    inbox, runs = Inbox(), [claimed() for _ in range(3)]
    for run in runs:
        inbox.put(run)
    inbox.close(1)
    assert [inbox.get() for _ in range(4)] == [*runs, None]


def test_only_what_waits_too_long_is_taken_away() -> None:
    """A run is late once it has waited for so long, and the inbox tells when that will be."""
    inbox, old, young = Inbox(), claimed(), claimed()
    assert inbox.late_in(0.1) == math.inf
    inbox.put(old)
    assert 0.05 < inbox.late_in(0.1) <= 0.1
    time.sleep(0.1)
    assert inbox.late_in(0.1) == 0
    inbox.put(young)
    assert inbox.take_late(0.1) == [old]
    assert len(inbox) == 1
    assert inbox.get() is young


def test_what_is_taken_away_no_thread_gets() -> None:
    """A thread that is told of a run which was taken away goes on to the next."""
    inbox, first, second = Inbox(), claimed(), claimed()
    inbox.put(first)
    assert inbox.take_all() == [first]
    inbox.put(second)
    assert inbox.get() is second
    assert inbox.take_all() == []


def test_a_run_goes_either_to_a_thread_or_away() -> None:
    """However the two race, nobody gets a run that somebody else has, and none is forgotten."""
    inbox, runs = Inbox(), [claimed() for _ in range(2_000)]
    driven: list[Claimed] = []
    away: list[Claimed] = []

    def drive() -> None:
        while (got := inbox.get()) is not None:
            driven.append(got)

    threads = [threading.Thread(target=drive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for run in runs:
        inbox.put(run)
        away += inbox.take_late(0.0)
    inbox.close(len(threads))
    for thread in threads:
        thread.join()
    assert len(driven) + len(away) == len(runs)
    assert {id(run) for run in driven + away} == {id(run) for run in runs}
