"""Reading a query in pages by key: constant memory, and a place to go on from after any interruption.

Paging by a key and not by an offset: rows that come or go in the meantime shift nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Select, and_, inspect, or_
from sqlalchemy.orm import Mapper

from stepwell.errors import RunError

__all__ = ["Keyset", "Reader"]


class Reader(Protocol):
    """Runs a select in a short read transaction, or in the step's own if that is open."""

    def read(self, query: Select[Any]) -> Sequence[Any]:
        """The entities that the select finds."""
        ...


class Keyset:
    """Pages of a select of one mapped class (see ``execution.cursor.Pages``)."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def rows(self, query: Select[Any], key: Any, after: Any, size: int) -> Iterator[tuple[Any, Any]]:
        for page, position in self._pages(query, key, after, size):
            for row in page:
                yield position(row), row

    def batches(
        self, query: Select[Any], key: Any, after: Any, size: int
    ) -> Iterator[tuple[Any, Sequence[Any]]]:
        for page, position in self._pages(query, key, after, size):
            yield position(page[-1]), page

    def _pages(
        self, query: Select[Any], key: Any, after: Any, size: int
    ) -> Iterator[tuple[Sequence[Any], Any]]:
        if size < 1:
            raise ValueError(f"a page has at least one row; got {size}")
        columns, names = _key_columns(query, key)

        def position(row: Any) -> Any:
            values = [getattr(row, name) for name in names]
            return values[0] if len(values) == 1 else values

        while True:
            question = query.order_by(None).order_by(*columns).limit(size)
            if after is not None:
                question = question.where(_beyond(columns, after))
            page = self._reader.read(question)
            if not page:
                return
            # Taken before the rows are handed out: a body may change what it is given.
            after = position(page[-1])
            yield page, position
            if len(page) < size:
                return


def _key_columns(query: Select[Any], key: Any) -> tuple[list[Any], list[str]]:
    """The columns to go by, and the attributes that hold them: the wanted one, then the primary key."""
    mapper = _mapper_of(query)
    primary = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
    names = list(primary)
    if key is not None:
        name = key if isinstance(key, str) else key.key
        if name not in mapper.all_orm_descriptors:
            raise RunError(f"{mapper.class_.__name__} has no attribute {name!r} to go by.")
        names = [name, *(other for other in primary if other != name)]
    return [getattr(mapper.class_, name) for name in names], names


def _mapper_of(query: Select[Any]) -> Mapper[Any]:
    described = query.column_descriptions
    entity = described[0].get("entity") if len(described) == 1 else None
    if entity is None or described[0].get("expr") is not entity:
        raise RunError(
            "cursor.iterate() takes a select of one mapped class, such as select(Customer).where(...)."
        )
    mapper: Mapper[Any] = inspect(entity)
    return mapper


def _beyond(columns: Sequence[Any], after: Any) -> ColumnElement[bool]:
    """Greater in the order of the columns, spelled out: not every database compares rows by an index."""
    values = [after] if len(columns) == 1 else list(after)
    if len(values) != len(columns):
        raise RunError(
            f"the cursor {after!r} does not fit the key: it was set by hand, or the key has changed."
        )
    return or_(
        *(
            and_(
                *(earlier == value for earlier, value in zip(columns[:at], values, strict=False)),
                column > values[at],
            )
            for at, column in enumerate(columns)
        )
    )
