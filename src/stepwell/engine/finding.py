"""Finding the open run that somebody means by a key, a record or arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection

from stepwell.definition.finding import IfMissing, Wanted, key_wanted
from stepwell.definition.starting import StartOptions
from stepwell.engine.heroes import hero_columns
from stepwell.engine.run import Run
from stepwell.engine.transactions import place_of
from stepwell.errors import RunError, RunNotFound, RunNotLive
from stepwell.states import OPEN
from stepwell.store.reads import Order, RunFilter, find_by_identity, list_runs
from stepwell.store.rows import RunRow

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["find_open"]


def find_open(engine: Stepwell, wanted: Wanted, options: StartOptions, missing: IfMissing) -> Run | None:
    """The open run that is meant; None if there is none and that is no error.

    Raises:
        RunNotFound: There is none.
        RunNotLive: It is over, and its class uses each identity once.
        RunError: Several are about the hero.
    """

    def look(connection: Connection) -> RunRow | None:
        return _find(engine, connection, wanted)

    if options.session is not None or options.connection is not None:
        engine.connect()
        found = place_of(engine, options).do(look)
    else:
        with engine.reading() as connection:
            found = look(connection)
    if found is not None and found.state in OPEN:
        return Run(engine, found.id, created=False)
    if missing == "ignore":
        return None
    name, who = wanted.workflow.__name__, _named(wanted, engine)
    if found is not None:
        raise RunNotLive(f"run {found.id} of {name}, with {who}, is {found.state}: it is over.")
    raise RunNotFound(f'no run of {name} with {who} is open. With missing="ignore" that is no error.')


def _named(wanted: Wanted, engine: Stepwell) -> str:
    """What is said of the run, for people: of a record, which one it is."""
    if wanted.hero is None:
        return str(wanted)
    kind, key = hero_columns(wanted.hero, engine.codec)
    return f"hero={kind.rpartition(':')[2]} {key}"


def _find(engine: Stepwell, connection: Connection, wanted: Wanted) -> RunRow | None:
    cls = wanted.workflow
    key = key_wanted(wanted, engine.codec)
    if key is not None and key.digest is not None:
        return find_by_identity(connection, cls.workflow_name, key.digest)
    about = RunFilter(
        workflows=(cls.workflow_name,),
        states=OPEN,
        hero=None if wanted.hero is None else hero_columns(wanted.hero, engine.codec),
        key=None if key is None else key.text,
    )
    found = list_runs(connection, about, Order.OLDEST, limit=2)
    if len(found) > 1:
        raise RunError(
            f"several open runs of {cls.__name__} are about {wanted}: say which one is meant, by key= or by the "
            "arguments that make it unique, or take them one by one from a query, runs(...)."
        )
    return found[0] if found else None
