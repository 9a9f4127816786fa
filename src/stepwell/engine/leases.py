"""The leases that this process holds: what activations write under and the heartbeat renews."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final
from uuid import UUID

from stepwell.execution.journal import Body
from stepwell.requests import StopRequest
from stepwell.store.claims import Renewal

__all__ = ["Lease", "LeaseBook"]


class Lease:
    """The right to drive one run.

    Attributes:
        token: Proves it at every write; exchanged when the answer to a write was lost.
        expires_at_monotonic: Until when this process may begin a body without asking the database.
        is_lost: The run belongs to somebody else.
        stop_requested: A pause, a cancel or a drain was asked for; a long body may look at it.
        shown: The row of the running body that the next heartbeat makes visible.
        stop_body: Cancels the coroutine that is running under it, if there is one; from any thread.
    """

    __slots__ = (
        "expires_at_monotonic",
        "is_lost",
        "is_shown",
        "progress",
        "run_id",
        "shown",
        "stop_body",
        "stop_requested",
        "token",
    )

    def __init__(self, run_id: UUID, token: UUID, expires_at_monotonic: float) -> None:
        self.run_id = run_id
        self.token = token
        self.expires_at_monotonic = expires_at_monotonic
        self.is_lost = False
        self.stop_requested = False
        self.shown: Body | None = None
        self.is_shown = False
        self.progress: tuple[int, int | None] | None = None
        self.stop_body: Callable[[], None] | None = None

    def lose(self) -> None:
        """The run belongs to somebody else: a coroutine ends at once, another body is asked to."""
        self.is_lost = self.stop_requested = True
        self.stop_coroutine()

    def stop_coroutine(self) -> None:
        """Cancel what is running as a coroutine, once: while it ends it is left in peace."""
        stop, self.stop_body = self.stop_body, None
        if stop is not None:
            stop()

    def progress_text(self) -> str | None:
        """How far the body has come, as it is stored."""
        if self.progress is None:
            return None
        done, total = self.progress
        return json.dumps({"progress": {"done": done, "total": total}})


class LeaseBook:
    """All leases of one process, renewed together.

    Args:
        length: How long a lease runs.
    """

    def __init__(self, length: timedelta) -> None:
        self.length: Final = length
        self._lock = threading.Lock()
        self._leases: dict[UUID, Lease] = {}

    def add(self, lease: Lease) -> None:
        with self._lock:
            self._leases[lease.run_id] = lease

    def remove(self, lease: Lease) -> None:
        """The run was settled, or is no longer ours."""
        with self._lock:
            if self._leases.get(lease.run_id) is lease:
                del self._leases[lease.run_id]

    def held(self) -> list[Lease]:
        with self._lock:
            return list(self._leases.values())

    def __len__(self) -> int:
        return len(self._leases)

    def renewed(
        self, pairs: list[tuple[UUID, UUID]], answers: dict[UUID, Renewal], expires_at_monotonic: float
    ) -> list[Lease]:
        """Note what a renewal answered; return the leases that turned out to be lost."""
        lost, urgent = list[Lease](), list[Lease]()
        with self._lock:
            for run_id, token in pairs:
                lease = self._leases.get(run_id)
                # Settled in the meantime, or its token was exchanged after the question was asked.
                if lease is None or lease.token != token:
                    continue
                answer = answers[run_id]
                if answer.is_ours:
                    if answer.is_renewed:
                        lease.expires_at_monotonic = expires_at_monotonic
                    lease.stop_requested = answer.stop_request is not None
                    request = StopRequest.parse(answer.stop_request)
                    if request is not None and request.is_urgent:
                        urgent.append(lease)
                else:
                    lost.append(lease)
                    del self._leases[run_id]
        for lease in lost:
            lease.lose()
        for lease in urgent:
            lease.stop_coroutine()
        return lost

    def stop_coroutine(self, run_id: UUID) -> None:
        """Cancel the coroutine that is running for this run here, if there is one."""
        with self._lock:
            lease = self._leases.get(run_id)
        if lease is not None:
            lease.stop_coroutine()
