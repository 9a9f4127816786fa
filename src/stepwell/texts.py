"""Texts of people and of errors, made storable on every database."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["LONGEST_REASON", "storable", "storable_or_none"]

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
