"""Values without parts that JSON has no word for: instants, durations, Decimals and their like."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from stepwell.serialization.paths import Misfit

__all__ = ["SCALARS", "Scalar"]

_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Scalar:
    """How one type is written.

    Attributes:
        type: The exact type; subclasses are not meant.
        tag: Its name in the text. It is stored: it never changes.
        encode: Value to a plain JSON value.
        decode: And back.
    """

    type: type
    tag: str
    encode: Callable[[Any], object]
    decode: Callable[[Any], object]


def _encode_datetime(value: datetime) -> str:
    if value.utcoffset() is None:
        raise Misfit(
            "a datetime without a time zone, which is a different instant on each machine",
            "Say which zone is meant: datetime.now(UTC), or value.replace(tzinfo=UTC).",
        )
    try:
        return value.astimezone(UTC).isoformat()
    except OverflowError as error:
        raise Misfit(
            "an instant that lies outside the years 1 to 9999 in UTC", "Use None for 'never' and 'always'."
        ) from error


def _encode_time(value: time) -> str | list[object]:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise Misfit(
            "a time of day in a zone whose offset depends on the date",
            "Store the time without its zone, and the zone's name beside it.",
        )
    text = value.isoformat()
    return [text, value.fold] if value.fold else text


def _decode_time(payload: str | list[Any]) -> time:
    if isinstance(payload, str):
        return time.fromisoformat(payload)
    text, fold = payload
    return time.fromisoformat(text).replace(fold=fold)


def _decode_bytes(payload: str) -> bytes:
    return b64decode(payload, validate=True)


SCALARS: Final = (
    Scalar(datetime, "datetime", _encode_datetime, datetime.fromisoformat),
    Scalar(date, "date", date.isoformat, date.fromisoformat),
    Scalar(time, "time", _encode_time, _decode_time),
    Scalar(
        timedelta, "timedelta", lambda value: value // _MICROSECOND, lambda us: timedelta(microseconds=us)
    ),
    Scalar(UUID, "uuid", str, UUID),
    # Decimals have NaN, sNaN and the infinities as values and write them exactly: nothing is lost.
    Scalar(Decimal, "decimal", str, Decimal),
    Scalar(bytes, "bytes", lambda value: b64encode(value).decode("ascii"), _decode_bytes),
)
