"""What a worker has claimed and no thread has begun with."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Final

from stepwell.engine.leases import Lease
from stepwell.worker.claimer import Claimed

__all__ = ["Inbox"]


class Inbox:
    """Hands claimed runs to threads, in their order, until somebody takes them away again.

    Whoever gets a run out of ``_waiting`` has it: a thread that is told of one which was taken away goes on to the
    next.
    """

    def __init__(self) -> None:
        self._told: Final[SimpleQueue[Lease | None]] = SimpleQueue()
        self._waiting: Final[dict[Lease, tuple[Claimed, float]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, claimed: Claimed) -> None:
        self._waiting[claimed.lease] = (claimed, time.monotonic())
        self._told.put(claimed.lease)

    def get(self) -> Claimed | None:
        """The next run, as soon as there is one; None when there will be none."""
        while (lease := self._told.get()) is not None:
            found = self._waiting.pop(lease, None)
            if found is not None:
                return found[0]
        return None

    def take_all(self) -> list[Claimed]:
        """Take away what no thread has begun with."""
        return self._take(list(self._waiting))

    def take_late(self, seconds: float) -> list[Claimed]:
        """Take away what has waited for a thread for longer than so many seconds."""
        if not self._waiting:
            return []
        now = time.monotonic()
        return self._take([lease for lease, (_, at) in list(self._waiting.items()) if now - at >= seconds])

    def late_in(self, seconds: float) -> float:
        """After how many seconds :meth:`take_late` has something to take."""
        oldest = min((at for _, at in list(self._waiting.values())), default=math.inf)
        return max(0.0, oldest + seconds - time.monotonic())

    def close(self, threads: int) -> None:
        """Send so many threads home once they have come to the end."""
        for _ in range(threads):
            self._told.put(None)

    def _take(self, leases: Sequence[Lease]) -> list[Claimed]:
        found = [self._waiting.pop(lease, None) for lease in leases]
        return [each[0] for each in found if each is not None]
