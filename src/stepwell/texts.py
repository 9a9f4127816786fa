"""Texts of people and of errors, made storable on every database; and what the library notes for people, read back."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["LONGEST_REASON", "details_of", "storable", "storable_or_none"]

LONGEST_REASON: Final = 4_000


def storable(text: str, longest: int, *, keep_end: bool = False) -> str:
    """The text without NUL (PostgreSQL refuses it) and lone surrogates (no database can encode them), cut to length.

    Args:
        text: Any text.
        longest: The most characters.
        keep_end: Cut at the beginning: the end of a traceback says more.
    """
    text = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= longest:
        return text
    return f"… {text[-longest:]}" if keep_end else f"{text[:longest]} …"


def storable_or_none(text: Any) -> str | None:
    """A person's reason or name as it is stored; None stays None."""
    return None if text is None else storable(str(text), LONGEST_REASON)


def details_of(text: str | None) -> dict[str, Any]:
    """The details of a run or of a journal row, as they are stored; what cannot be read is forgotten.

    They say what people may know besides, or what a later version has no use for: no run must stop over them.
    """
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
