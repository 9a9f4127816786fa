"""A value for what nobody has said, where None is something that one may say."""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["UNSET", "Unset"]


class Unset(Enum):
    """The type of :data:`UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "<unset>"


UNSET: Final = Unset.UNSET
"""Left to its default."""
