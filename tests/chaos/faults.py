"""Named points of an activation at which a worker process stops or kills itself, entered from outside.

The library knows nothing of them: :func:`install` wraps the functions that the points lie between.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from stepwell.engine.step_scope import StepScope
from stepwell.engine.store_journal import StoreJournal
from stepwell.store.claims import Claims
from stepwell.store.dialects import Dialect
from stepwell.store.gate import WriteGate
from stepwell.worker.claimer import Claimer
from stepwell.worker.heartbeat import Heartbeat
from stepwell.worker.worker import Worker

__all__ = ["POINTS", "Fault", "install", "reach"]

POINTS: Final = (
    "claim.before",
    "claim.in_transaction",
    "claim.committed",
    "claimed",
    "body.due",
    "body.before",
    "body.inside",
    "body.in_session",
    "body.after",
    "step.flushed",
    "step.guarded",
    "step.committed",
    "journal.before",
    "journal.after",
    "settle.before",
    "settle.after",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to this process, once.

    Attributes:
        point: One of ``POINTS``.
        signal: What the process sends itself: ``SIGKILL`` or ``SIGSTOP``.
        nth: At which passage of the point, from one.
    """

    point: str
    signal: str = "SIGKILL"
    nth: int = 1

    def __post_init__(self) -> None:
        if self.point not in POINTS:
            raise ValueError(f"no such point: {self.point}")


class _Armed:
    """The fault of this process, and how often its point has been passed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._passed = 0
        self._gate: WriteGate | None = None
        self.has_struck = False

    def set(self, fault: Fault, gate: WriteGate | None) -> None:
        self._fault, self._gate = fault, gate

    def reach(self, point: str) -> None:
        fault = self._fault
        if fault is None or fault.point != point:
            return
        with self._lock:
            self._passed += 1
            strikes = self._passed == fault.nth
        if not strikes:
            return
        self.has_struck = True
        # On SQLite no other thread may be caught with the file's write lock, which would stop everybody for ever.
        with self._gate.held() if self._gate else nullcontext():
            # To this very thread, so that it goes no further.
            signal.pthread_kill(threading.get_ident(), getattr(signal, fault.signal))


_armed = _Armed()
_settling = threading.local()


def reach(point: str) -> None:
    """This point is passed: a fault that waits for it strikes."""
    _armed.reach(point)


def install(fault: Mapping[str, Any], gate: WriteGate | None) -> None:
    """Let a fault strike in this process.

    Args:
        fault: The fields of a ``Fault``.
        gate: The database's write gate, if it has one and the process is to be stopped outside of it.
    """
    _armed.set(Fault(**fault), gate)
    _wrap(Heartbeat, "beat", around=_beat)
    _wrap(Claims, "claim", before="claim.before", after="claim.in_transaction")
    _wrap(Claimer, "_hold", before="claim.committed")
    _wrap(Worker, "_drive", before="claimed")
    _wrap(StoreJournal, "ensure_lease", before="body.due")
    _wrap(StoreJournal, "body_starts", after="body.before")
    _wrap(StoreJournal, "body_ends", after="body.after")
    _wrap(StoreJournal, "_write", around=_journal)
    _wrap(StepScope, "_commit", around=_commit)
    for dialect in _concrete(Dialect):
        if "apply" in vars(dialect):
            _wrap(dialect, "apply", around=_apply)


def _wrap(owner: type, name: str, *, before: str = "", after: str = "", around: Any = None) -> None:
    known = getattr(owner, name)

    @functools.wraps(known)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if around is not None:
            return around(known, *args, **kwargs)
        reach(before)
        answer = known(*args, **kwargs)
        reach(after)
        return answer

    setattr(owner, name, wrapped)


def _concrete(base: type) -> list[type]:
    return [each for direct in base.__subclasses__() for each in (direct, *_concrete(direct))]


def _beat(known: Callable[..., Any], heartbeat: Any) -> None:
    """After a stop the heart is slower than the body, which must not rely on being told that its lease is lost."""
    if not _armed.has_struck:
        known(heartbeat)


def _commit(known: Callable[..., Any], scope: Any, entry: Any) -> Any:
    """The transaction of a step that writes: flush, guard, COMMIT."""
    _settling.here = True
    try:
        verdict = known(scope, entry)
    finally:
        _settling.here = False
    reach("step.committed")
    return verdict


def _apply(known: Callable[..., Any], *args: Any) -> Any:
    """The guard, inside a step's transaction or alone."""
    if not getattr(_settling, "here", False):
        return known(*args)
    reach("step.flushed")
    answer = known(*args)
    reach("step.guarded")
    return answer


def _journal(known: Callable[..., Any], journal: Any, entry: Any) -> Any:
    """An entry without a step's transaction."""
    kind = "journal" if entry.settlement is None else "settle"
    reach(f"{kind}.before")
    verdict = known(journal, entry)
    reach(f"{kind}.after")
    return verdict
