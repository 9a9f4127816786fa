"""Which runs belong to each other: those that another one has called, and those that go on in its place."""

from __future__ import annotations

import json
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, bindparam, select

from stepwell.states import Reason
from stepwell.store.rows import RunRow
from stepwell.store.schema import runs

__all__ = ["call_ids", "successor_of"]

_CALLED: Final = (
    select(runs.c.id)
    .where(runs.c.open_branch >= bindparam("begin"), runs.c.open_branch < bindparam("end"))
    .order_by(runs.c.id)
)


def call_ids(connection: Connection, begin: str) -> list[UUID]:
    """The runs that are not over and whose ``open_branch`` begins so."""
    # The colon at its end is followed by digits only.
    return list(connection.execute(_CALLED, {"begin": begin, "end": f"{begin[:-1]};"}).scalars())


def successor_of(run: RunRow) -> UUID | None:
    """The run that goes on in this one's place, if it was started over."""
    if run.reason != Reason.CONTINUED:
        return None
    try:
        return UUID(json.loads(run.details or "{}")["continued_as"])
    except (ValueError, KeyError, TypeError):
        return None
