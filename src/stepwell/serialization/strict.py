"""The encoder of context values: what people and queries read in the database is JSON and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import ClassVar, Final
from uuid import UUID

from stepwell.serialization.encoding import PLAIN_FORMS, Encoder, Form
from stepwell.serialization.paths import Misfit, in_keys

__all__ = ["StrictEncoder"]

_ADVICE: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (Enum, "Use value.name or value.value."),
    ((date, time), "Use value.isoformat()."),
    (timedelta, "Use value.total_seconds()."),
    ((Decimal, UUID), "Use str(value)."),
    ((tuple, set, frozenset), "Use list(value)."),
    ((bytes, bytearray), "Use value.hex() or base64."),
    (dict, "Use dict(value)."),
    (list, "Use list(value)."),
    (str, "Use str(value)."),
    (int, "Use int(value)."),
    (float, "Use float(value)."),
)

_RULE: Final = "the context holds plain JSON only"


class StrictEncoder(Encoder):
    """Refuses what is not plain JSON, and says how to make it so; converts nothing by itself."""

    forms: ClassVar[Mapping[type, Form]]

    def encode_object(self, value: object) -> object:
        """Anything but plain JSON is refused."""
        advice = next((advice for types, advice in _ADVICE if isinstance(value, types)), None)
        raise Misfit(
            f"of type {type(value).__name__}, and {_RULE}",
            advice or "Keep its id or its data; arguments and results of steps may hold more types.",
        )


def _dict(encoder: Encoder, value: dict[object, object]) -> object:
    for index, key in enumerate(value):
        if type(key) is not str:
            misfit = Misfit(f"of type {type(key).__name__}, and JSON's keys are strings", "Use str(key).")
            misfit.within(in_keys(index))
            raise misfit
    return PLAIN_FORMS[dict](encoder, value)


StrictEncoder.forms = {**PLAIN_FORMS, dict: _dict}
