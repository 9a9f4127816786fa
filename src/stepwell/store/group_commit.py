"""Many threads, one commit: entries that arrive while a commit is in flight share the next one.

There is no writer thread and no delay. A thread that finds nobody committing commits its own entry at once; the
others queue behind it, and the first of them takes all that has gathered. At one thread this is a plain commit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from stepwell.entries import JournalEntry, Verdict

__all__ = ["GroupCommit"]

_LARGEST_GROUP: Final = 50


class _Ticket:
    """One thread's place in the queue: it is woken with an answer, or to lead the next commit."""

    __slots__ = ("answer", "entry", "turn")

    def __init__(self, entry: JournalEntry) -> None:
        self.entry = entry
        self.answer: Verdict | BaseException | None = None
        self.turn = threading.Lock()
        self.turn.acquire()


class GroupCommit:
    """Writes entries durably, several in one commit when several threads ask at once.

    Args:
        commit: Writes a group in one transaction and answers one verdict (or the error) for each entry.
    """

    def __init__(self, commit: Callable[[Sequence[JournalEntry]], Sequence[Verdict | BaseException]]) -> None:
        self._commit = commit
        self._lock = threading.Lock()
        self._queue: deque[_Ticket] = deque()
        self._leader_at_work = False

    def write(self, entry: JournalEntry) -> Verdict:
        """Return once the entry is durable, or refused.

        Raises:
            Exception: What the database said; whether the entry was written may then be unknown.
        """
        ticket = _Ticket(entry)
        with self._lock:
            self._queue.append(ticket)
            leads, self._leader_at_work = not self._leader_at_work, True
        if not leads:
            ticket.turn.acquire()
        if ticket.answer is None:
            self._lead()
        answer = ticket.answer
        if isinstance(answer, BaseException):
            raise answer
        if answer is None:
            raise RuntimeError("a group commit answered nothing")
        return answer

    def _lead(self) -> None:
        """Commit what has gathered (the leader's own entry first), then wake the next leader and the others."""
        group = self._take()
        try:
            answers = self._commit([ticket.entry for ticket in group])
        except BaseException as error:
            answers = [error] * len(group)
        with self._lock:
            successor = self._queue[0] if self._queue else None
            self._leader_at_work = successor is not None
        if successor is not None:
            successor.turn.release()
        for ticket, answer in zip(group, answers, strict=True):
            ticket.answer = answer
            ticket.turn.release()

    def _take(self) -> list[_Ticket]:
        """Up to fifty entries, no run twice: two entries of one run must not share a statement."""
        group: list[_Ticket] = []
        seen = set()
        with self._lock:
            while self._queue and len(group) < _LARGEST_GROUP and self._queue[0].entry.run_id not in seen:
                ticket = self._queue.popleft()
                seen.add(ticket.entry.run_id)
                group.append(ticket)
        return group
