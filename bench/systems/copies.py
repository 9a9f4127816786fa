"""Many rows like one: fills tables with runs that the system itself has made one of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Copied", "copy_run"]


@dataclass(frozen=True, slots=True)
class Copied:
    """A table whose rows of one run are copied.

    Args:
        table: Its name.
        key: The column by which the rows of the run are found.
        ids: For each column that must differ, the SQL that makes it from ``n``, the number of the copy.
    """

    table: str
    key: str
    ids: Mapping[str, str]


def copy_run(connection: Any, tables: Sequence[tuple[Copied, Any]], copies: int) -> None:
    """Copy the rows of one run in several tables.

    Args:
        connection: An open psycopg or sqlite3 connection.
        tables: Each table with the value of its ``key`` for the run that is copied.
        copies: How many there are to be, each with ids of its own.
    """
    is_sqlite = type(connection).__module__ == "sqlite3"
    cursor = connection.cursor()
    for spec, key in tables:
        cursor.execute(f"SELECT * FROM {spec.table} LIMIT 0")
        columns = [column[0] for column in cursor.description]
        values = ", ".join(spec.ids.get(column, f"original.{column}") for column in columns)
        number = "numbers" if is_sqlite else f"generate_series(1, {copies}) AS n"
        series = (
            f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {copies}) "
            if is_sqlite
            else ""
        )
        cursor.execute(
            f"{series}INSERT INTO {spec.table} ({', '.join(columns)}) SELECT {values} "
            f"FROM {number} CROSS JOIN {spec.table} original "
            f"WHERE original.{spec.key} = {'?' if is_sqlite else '%s'}",
            (key,),
        )
    connection.commit()
    _settle(connection, cursor, is_sqlite)


def _settle(connection: Any, cursor: Any, is_sqlite: bool) -> None:
    """Leave nothing of the filling to be done later, while something else is measured."""
    if is_sqlite:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    connection.autocommit = True
    cursor.execute("VACUUM ANALYZE")
    cursor.execute("CHECKPOINT")
