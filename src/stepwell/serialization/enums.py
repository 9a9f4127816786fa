"""Enum members, written by name: a changed value, or a moved ``auto()``, does not change what was stored."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, Flag
from typing import Any

from stepwell.serialization.paths import Misfit

__all__ = ["member_form", "member_from"]


def member_form(member: Enum) -> str | list[str | int]:
    """A member's name; of a Flag the names of its bits, and a number for bits that have none."""
    if not isinstance(member, Flag):
        return member.name
    parts: Iterable[Flag | None] = member  # None where a bit has no member of its own
    bits = [bit for bit in parts if bit is not None]
    names = [bit.name for bit in bits if bit.name]
    rest = member.value & ~sum(bit.value for bit in bits)
    return [*names, rest] if rest else [*names]


def member_from(cls: type, form: Any) -> object:
    """The member again.

    Raises:
        Misfit: The class is no Enum, or has no such member, any more.
    """
    if not issubclass(cls, Enum):
        raise Misfit(f"a member of {cls.__qualname__}, which is no Enum any more", "Make it an Enum again.")
    try:
        if isinstance(form, str):
            return cls[form]
        bits = 0
        for part in form:
            bits |= part if isinstance(part, int) else cls[part].value
        return cls(bits)
    except (KeyError, ValueError) as error:
        raise Misfit(
            f"the member {form!r} of {cls.__qualname__}, which has none of that name any more",
            "Keep the old name in the class as an alias of the new member.",
        ) from error
