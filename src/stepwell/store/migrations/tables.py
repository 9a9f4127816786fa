"""What a revision changes the schema with."""

from __future__ import annotations

from typing import Any

from alembic.operations import Operations
from sqlalchemy import Column, inspect, text

from stepwell.store.dialects.schema_changes import has_storage_parameters

__all__ = ["Tables"]


class Tables:
    """Makes tables and indexes, and passes over those that are there already.

    On MariaDB every such statement commits by itself: a revision that was cut short has left a part of its
    work and no mark of it, and is run again from its top. Printed as SQL, everything is made.

    Args:
        operations: Alembic's, on a connection or on a script's output.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._is_printed = operations.get_context().as_sql

    def create_table(self, name: str, *columns: Column[Any], **options: Any) -> None:
        """Make a table, if there is none of that name."""
        if self._is_printed or not inspect(self._operations.get_bind()).has_table(name):
            self._operations.create_table(name, *columns, **options)

    def set_storage(self, table: str, **parameters: float) -> None:
        """Set a table's storage parameters, on the database that has such."""
        if has_storage_parameters(self._operations.get_context().dialect):
            listed = ", ".join(f"{name} = {value}" for name, value in parameters.items())
            self._operations.execute(f"ALTER TABLE {table} SET ({listed})")

    def create_index(
        self, name: str, table: str, columns: list[str], *, unique: bool = False, where: str | None = None
    ) -> None:
        """Make an index, if the table has none of that name.

        Args:
            name: The index's name.
            table: The table's name.
            columns: The indexed columns, in order.
            unique: Whether it refuses duplicates.
            where: The rows that it holds, where the database can; None for all.
        """
        if self._is_printed or not self._has_index(name, table):
            condition = None if where is None else text(where)
            self._operations.create_index(
                name, table, columns, unique=unique, postgresql_where=condition, sqlite_where=condition
            )

    def _has_index(self, name: str, table: str) -> bool:
        return any(index["name"] == name for index in inspect(self._operations.get_bind()).get_indexes(table))
