"""Alembic tells of its own set-up with every migration, and at its first import: nobody who calls migrate() asked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["alembic_hushed"]

_TALKERS: Final = ("alembic.runtime.plugins", "alembic.runtime.migration", "alembic.ddl.impl")


class _Hush(logging.Filter):
    """Keeps back what is told on this thread below a warning; another one may migrate an application's tables."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or record.thread != self._thread


@contextmanager
def alembic_hushed() -> Iterator[None]:
    """Inside, Alembic tells this thread's application of warnings and errors only; afterwards all is as before.

    By a filter and not by a level, which the application may set meanwhile.
    """
    hush, talkers = _Hush(), [logging.getLogger(name) for name in _TALKERS]
    for talker in talkers:
        talker.addFilter(hush)
    try:
        yield
    finally:
        for talker in talkers:
            talker.removeFilter(hush)
