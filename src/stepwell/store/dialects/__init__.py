"""The databases that Stepwell runs on, by the name that SQLAlchemy gives them."""

from __future__ import annotations

from typing import Final

from stepwell.errors import UnsupportedDatabase
from stepwell.store.dialects.base import DatabaseOptions, Dialect
from stepwell.store.dialects.mariadb import MariaDBDialect
from stepwell.store.dialects.postgresql import PostgreSQLDialect
from stepwell.store.dialects.sqlite import SQLiteDialect

__all__ = ["DatabaseOptions", "Dialect", "dialect_named"]

_DIALECTS: Final[dict[str, type[Dialect]]] = {
    "sqlite": SQLiteDialect,
    "postgresql": PostgreSQLDialect,
    "mysql": MariaDBDialect,
    "mariadb": MariaDBDialect,
}


def dialect_named(name: str, options: DatabaseOptions) -> Dialect:
    """The dialect for a SQLAlchemy dialect's name.

    Raises:
        UnsupportedDatabase: There is none.
    """
    try:
        return _DIALECTS[name](options)
    except KeyError:
        raise UnsupportedDatabase(
            f"Stepwell runs on SQLite, PostgreSQL and MariaDB/MySQL, not on {name!r}. "
            "Use a URL such as sqlite:///app.db or postgresql+psycopg://host/database."
        ) from None
