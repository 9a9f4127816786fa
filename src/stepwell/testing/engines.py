"""Engines for tests: in a database of their own, or on one that is there, on a clock that the test moves."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import URL, Engine, event

from stepwell.clock import ManualClock
from stepwell.definition.starting import Starter, default_engine, set_default_engine
from stepwell.engine.engine import Stepwell
from stepwell.errors import StoreError

__all__ = ["borrow", "open_engine"]


def open_engine(database: Engine | URL | str | None, clock: ManualClock, stack: ExitStack) -> Stepwell:
    """An engine on this database, which gets its tables; None: on a new one. The stack closes it."""
    if database is None:
        engine = _engine_in(stack.enter_context(TemporaryDirectory(prefix="stepwell-")), clock)
        stack.callback(engine.close)
        return engine
    engine = Stepwell(database, clock=clock, default=False)
    stack.callback(engine.close)
    engine.migrate()
    return engine


def borrow(engine: Stepwell, clock: ManualClock, stack: ExitStack) -> None:
    """Make the engine the default one, put it on this clock, and leave out chance, until the stack is closed."""
    for owner, name in ((engine, "clock"), (engine.database, "clock"), (engine, "chance")):
        stack.callback(setattr, owner, name, getattr(owner, name))
    engine.clock = engine.database.clock = clock
    # In the middle: a delay with jitter is then the one that the policy names.
    engine.chance = lambda: 0.5
    stack.callback(set_default_engine, _default_engine())
    set_default_engine(engine)


def _default_engine() -> Starter | None:
    try:
        return default_engine()
    except StoreError:
        return None


def _engine_in(folder: str, clock: ManualClock) -> Stepwell:
    """An engine in a copy of the template, in this folder."""
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
    """A file with the tables: making them takes longer than most tests do."""
    with TemporaryDirectory(prefix="stepwell-") as folder:
        file = Path(folder) / "template.db"
        engine = Stepwell(_url(file), default=False)
        engine.migrate()
        engine.close()
        return file.read_bytes()


def _url(file: Path) -> URL:
    return URL.create("sqlite", database=str(file))
