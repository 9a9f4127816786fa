"""Texts of people and of errors, made storable on every database; and what the library notes for people, read back."""

from __future__ import annotations

import json
import unicodedata
from typing import Any, Final

__all__ = ["LONGEST_REASON", "details_of", "printable", "shown", "storable", "storable_or_none"]

LONGEST_REASON: Final = 4_000
_UNSAFE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that make a terminal show text in another order than it has."""


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


def shown(value: object) -> str:
    """What a value looks like, for messages; one that cannot even tell that is named by its class."""
    try:
        return repr(value)[:200]
    except Exception:
        return f"one of {type(value).__qualname__}"


def details_of(text: str | None) -> dict[str, Any]:
    """The details of a run or of a journal row, as they are stored; what cannot be read is forgotten.

    They say what people may know besides, or what a later version has no use for: no run must stop over them.
    """
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def printable(text: object, *, keep_lines: bool = False) -> str:
    """A text in which control characters are written out as escapes.

    Args:
        text: Anything; its ``str()`` is taken.
        keep_lines: Leave line breaks and tabs as they are.
    """
    kept = "\n\t" if keep_lines else ""
    return "".join(
        character if character in kept or not _is_unsafe(character) else _escape(character)
        for character in str(text)
    )


def _is_unsafe(character: str) -> bool:
    return character in _TURNS or unicodedata.category(character) in _UNSAFE


def _escape(character: str) -> str:
    known = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
    return known.get(character) or character.encode("unicode_escape").decode("ascii")
