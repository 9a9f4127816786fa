"""Group commits: what gathers while a commit is under way shares the next one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from stepwell.entries import JournalEntry, Verdict
from stepwell.ids import new_run_id, new_token
from stepwell.store.group_commit import GroupCommit


def entry(run_id: UUID | None = None) -> JournalEntry:
    return JournalEntry(run_id or new_run_id(), new_token(), datetime.now(UTC), "worker", "next")


class Disk:
    """Commits that wait until they are let go."""

    def __init__(self) -> None:
        self.groups: list[list[JournalEntry]] = []
        self.refused: set[UUID] = set()
        self.failing: BaseException | None = None
        self.under_way = 0
        self.most_under_way = 0
        self.go = threading.Event()

    def commit(self, entries: Sequence[JournalEntry]) -> list[Verdict | BaseException]:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.groups.append(list(entries))
        self.go.wait()
        self.under_way -= 1
        if self.failing is not None:
            raise self.failing
        return [Verdict(each.run_id not in self.refused, wakeups=len(entries)) for each in entries]


class Writers:
    """Threads that each write one entry."""

    def __init__(self, group: GroupCommit) -> None:
        self._group = group
        self.answers: dict[JournalEntry, Verdict | BaseException] = {}
        self._threads: list[threading.Thread] = []

    def write(self, entry: JournalEntry) -> JournalEntry:
        def work() -> None:
            try:
                self.answers[entry] = self._group.write(entry)
            except BaseException as error:
                self.answers[entry] = error

        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()
        return entry

    def join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=10)
            assert not thread.is_alive()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def group(disk: Disk) -> GroupCommit:
    return GroupCommit(disk.commit)


def wait_for(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < limit, "it did not come to pass"
        time.sleep(0.001)


def gather(disk: Disk, group: GroupCommit, entries: Sequence[JournalEntry]) -> Writers:
    """Writers of these entries: the first one's commit is under way, the others queue in this order."""
    writers = Writers(group)
    for number, each in enumerate(entries):
        writers.write(each)
        wait_for(lambda number=number: len(disk.groups) == 1 and len(group._queue) == number)  # type: ignore[misc]
    return writers


def test_a_lone_entry_is_committed_at_once(disk: Disk, group: GroupCommit) -> None:
    """Where nothing else is pending a write is a plain commit, by its own thread, without any delay."""
    disk.go.set()
    mine = entry()
    assert group.write(mine) == Verdict(True, wakeups=1)
    assert disk.groups == [[mine]]


def test_what_gathers_during_a_commit_shares_the_next(disk: Disk, group: GroupCommit) -> None:
    """Many threads, two commits: the first one's, and one for all that came meanwhile, in their order."""
    entries = [entry() for _ in range(9)]
    writers = gather(disk, group, entries)
    disk.go.set()
    writers.join()
    assert disk.groups == [entries[:1], entries[1:]]
    assert set(writers.answers.values()) == {Verdict(True, wakeups=1), Verdict(True, wakeups=8)}


def test_one_commit_at_a_time_is_under_way(disk: Disk, group: GroupCommit) -> None:
    """Commits never overlap, and each entry is in exactly one."""
    disk.go.set()
    entries = [[entry() for _ in range(50)] for _ in range(8)]

    def write_all(mine: list[JournalEntry]) -> None:
        for each in mine:
            assert group.write(each).accepted

    threads = [threading.Thread(target=write_all, args=(mine,)) for mine in entries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    committed = [each for commit in disk.groups for each in commit]
    assert sorted(committed, key=lambda each: each.run_id) == sorted(
        (each for mine in entries for each in mine), key=lambda each: each.run_id
    )
    assert (disk.most_under_way, len(group._queue), group._leader_at_work) == (1, 0, False)


def test_each_entry_gets_its_own_answer(disk: Disk, group: GroupCommit) -> None:
    """A refused entry is refused alone: its neighbours in the commit are accepted."""
    entries = [entry() for _ in range(5)]
    disk.refused = {entries[2].run_id, entries[4].run_id}
    writers = gather(disk, group, entries)
    disk.go.set()
    writers.join()
    accepted = [isinstance(answer := writers.answers[each], Verdict) and answer.accepted for each in entries]
    assert accepted == [True, True, False, True, False]


def test_a_group_has_a_size(disk: Disk, group: GroupCommit) -> None:
    """Fifty at most share a commit; the rest is next."""
    writers = gather(disk, group, [entry() for _ in range(62)])
    disk.go.set()
    writers.join()
    assert [len(each) for each in disk.groups] == [1, 50, 11]


def test_a_run_is_in_a_group_once(disk: Disk, group: GroupCommit) -> None:
    """Two entries of one run do not share a statement: each is judged by what the other left."""
    run_id = new_run_id()
    entries = [entry(), entry(run_id), entry(), entry(run_id), entry()]
    writers = gather(disk, group, entries)
    disk.go.set()
    writers.join()
    assert disk.groups == [entries[:1], entries[1:3], entries[3:]]


def test_an_error_reaches_everyone_it_concerns(disk: Disk, group: GroupCommit) -> None:
    """Whoever shares a commit that failed learns it, and the next commit goes ahead."""
    disk.failing = OSError("disk full")
    entries = [entry() for _ in range(4)]
    writers = gather(disk, group, entries)
    disk.go.set()
    writers.join()
    assert [str(writers.answers[each]) for each in entries] == ["disk full"] * 4

    disk.failing = None
    assert group.write(entry()).accepted
