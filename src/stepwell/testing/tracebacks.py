"""An error as a test wants to see it: where the author's code raised it, without the library's own frames."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Final

import stepwell

__all__ = ["without_library_frames"]

_LIBRARY: Final = str(Path(stepwell.__file__).parent)
_STANDARD: Final = sysconfig.get_path("stdlib")
_PACKAGES: Final = "-packages"


def without_library_frames(error: BaseException) -> BaseException:
    """The error with a traceback that begins in the author's code; unchanged if it never came there."""
    trace = error.__traceback__
    while trace is not None and not _is_authors(trace):
        trace = trace.tb_next
    return error if trace is None else error.with_traceback(trace)


def _is_authors(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    if file.startswith(_LIBRARY):
        return False
    # Asynchronous steps come through the standard library; an installed package may be the author's.
    return not file.startswith(_STANDARD) or _PACKAGES in file
