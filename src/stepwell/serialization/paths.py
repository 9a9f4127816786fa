"""Where in a value the trouble is: ``result['lines'][3].price``.

A path costs nothing until something goes wrong: each level that an error passes on its way up adds its own
step.
"""

from __future__ import annotations

import reprlib
from typing import Final

__all__ = [
    "Misfit",
    "at_field",
    "at_index",
    "at_key",
    "at_record_key",
    "in_keys",
    "in_set",
    "root_of",
    "same_place",
    "with_article",
]

_LONGEST: Final = 12


class Misfit(Exception):
    """A value, or a piece of stored text, that does not fit; the codec turns it into a public error.

    Attributes:
        reason: What the thing at the path is, to be read after "is".
        advice: What to do next, in whole sentences; may be empty.
    """

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
        self._steps: list[str] = []

    def within(self, step: str) -> None:
        """Say that what was looked at so far lies at ``step`` of a larger value."""
        self._steps.append(step)

    def path(self, root: str) -> str:
        """The way from ``root`` to the trouble; a very long one is cut in its middle."""
        steps = self._steps[::-1]
        if len(steps) > _LONGEST:
            half = _LONGEST // 2
            steps = [*steps[:half], f"...{len(steps) - 2 * half} more...", *steps[-half:]]
        return root + "".join(steps)

    def sentence(self, root: str) -> str:
        """The trouble and the advice, for the end of an error message."""
        end = "" if self.reason.endswith(".") else "."
        return f"{self.path(root)} is {self.reason}{end} {self.advice}".rstrip()


def with_article(name: str) -> str:
    """The name of a class for use in a sentence: "an Order", "a User"."""
    return f"an {name}" if name.lstrip("_").lower().startswith(tuple("aeio")) else f"a {name}"


def root_of(what: str) -> str:
    """The name that a path begins with: ``result`` for "result of step 'ship'"."""
    return what.partition(" ")[0] or "value"


def at_index(index: object) -> str:
    """An item of a list or a tuple."""
    return f"[{index}]"


def at_key(key: object) -> str:
    """A value of a dict."""
    try:
        return f"[{reprlib.repr(key)}]"
    except Exception:  # such as an int with too many digits; it must not hide the error that is being told
        return f"[<{type(key).__name__}>]"


def at_field(name: object) -> str:
    """A field of an object."""
    return f".{name}"


def at_record_key(index: object) -> str:
    """A part of a record's primary key."""
    return f".key[{index}]"


def in_keys(index: object) -> str:
    """A key of a dict, as opposed to what stands under it."""
    return f".keys()[{index}]"


def in_set(_: object) -> str:
    """An element of a set, which has no place to name."""
    return "{...}"


def same_place(_: object) -> str:
    """No step at all: what a registered encoder made of a value."""
    return ""
