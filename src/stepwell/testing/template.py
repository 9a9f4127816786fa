"""Databases for tests: the tables are made once for a process, and each database is a copy of that file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import URL, event

from stepwell.clock import Clock
from stepwell.engine.engine import Stepwell

__all__ = ["engine_in"]


def engine_in(folder: str, clock: Clock) -> Stepwell:
    """An engine on a new SQLite database in this folder."""
    file = Path(folder) / "stepwell.db"
    file.write_bytes(_template())
    engine = Stepwell(_url(file), clock=clock, default=False)

    @event.listens_for(engine.database.engine, "connect")
    def stop_waiting_for_the_disk(connection: Any, _record: Any) -> None:
        # After the engine's own listener, which sees to it that a commit outlives a power failure.
        connection.execute("PRAGMA synchronous = OFF")

    return engine


@cache
def _template() -> bytes:
    with TemporaryDirectory(prefix="stepwell-") as folder:
        file = Path(folder) / "template.db"
        engine = Stepwell(_url(file), default=False)
        engine.migrate()
        engine.close()
        return file.read_bytes()


def _url(file: Path) -> URL:
    return URL.create("sqlite", database=str(file))
