"""Identifiers that a client makes by itself."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

__all__ = ["new_run_id", "new_token"]

_lock = threading.Lock()
_last = 0


def new_run_id() -> UUID:
    """A UUIDv7 (RFC 9562 §5.7): ordered by the time of its making, strictly so within one process.

    The 12 bits after the milliseconds hold the fraction of the millisecond (method 3 of RFC 9562 §6.2);
    a clock that stands still or goes back counts on from the last value.
    """
    global _last  # noqa: PLW0603 - the one clock that all ids of this process are ordered by
    nanoseconds = time.time_ns()
    stamp = (nanoseconds // 1_000_000 << 12) | (nanoseconds % 1_000_000 * 4096 // 1_000_000)
    with _lock:
        if stamp <= _last:
            stamp = _last + 1
        _last = stamp
    random = int.from_bytes(os.urandom(8), "big") & 0x3FFF_FFFF_FFFF_FFFF
    value = (stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | random
    return UUID(int=value)


def new_token() -> UUID:
    """A random UUIDv4: the lease token of one claim."""
    return UUID(bytes=os.urandom(16), version=4)
