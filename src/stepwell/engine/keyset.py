"""Reading a query in pages by key: constant memory, and a place to go on from after any interruption.

Paging by a key and not by an offset: rows that come or go in the meantime shift nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from sqlalchemy import Boolean, ColumnElement, Double, Enum, Float, Select, and_, inspect, or_
from sqlalchemy.orm import Mapper

from stepwell.errors import RunError

__all__ = ["Keyset", "Reader"]

_SIZES: Final = ("_limit_clause", "_offset_clause", "_fetch_clause")


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
        order = _order(query, key)
        for page in self._pages(query, order, after, size):
            for row in page:
                yield order.position(row), row

    def batches(
        self, query: Select[Any], key: Any, after: Any, size: int
    ) -> Iterator[tuple[Any, Sequence[Any]]]:
        order = _order(query, key)
        for page in self._pages(query, order, after, size):
            yield order.position(page[-1]), page

    def _pages(self, query: Select[Any], order: _Order, after: Any, size: int) -> Iterator[Sequence[Any]]:
        if size < 1:
            raise ValueError(f"a page has at least one row; got {size}")
        values = None if after is None else order.values(after)
        for condition, begin in order.parts(values):
            question = query.order_by(None).order_by(*order.columns).limit(size)
            if condition is not None:
                question = question.where(condition)
            while page := self._reader.read(
                question if begin is None else question.where(order.beyond(begin))
            ):
                # Taken before the rows are handed out: a body may change what it is given.
                begin = order.values(order.position(page[-1]))
                yield page


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of a table: by the wanted column, then by the primary key, which settles ties.

    Attributes:
        columns: What to go by.
        names: The attributes that hold them.
        may_be_null: The first column may have no value: those rows come last, in the order of the others.
    """

    columns: tuple[Any, ...]
    names: tuple[str, ...]
    may_be_null: bool

    def position(self, row: Any) -> Any:
        """Where a row stands, as a cursor holds it."""
        values = [_kept(getattr(row, name)) for name in self.names]
        return values[0] if len(values) == 1 else values

    def values(self, position: Any) -> list[Any]:
        """The values of the columns at a cursor.

        Raises:
            RunError: It does not fit.
        """
        values = [position] if len(self.columns) == 1 else position
        if not isinstance(values, list | tuple) or len(values) != len(self.columns):
            raise RunError(
                f"the cursor {position!r} does not fit the key: it was set by hand, or the key has changed."
            )
        return [_restored(value, column) for value, column in zip(values, self.columns, strict=True)]

    def parts(self, begin: list[Any] | None) -> Iterator[tuple[ColumnElement[bool] | None, list[Any] | None]]:
        """What to read one after the other: a condition, and behind which values to begin.

        No comparison finds a NULL, and databases do not agree on where it stands in an order: so rows without a
        value are read by themselves, after the others.
        """
        if not self.may_be_null:
            yield None, begin
            return
        has_value: ColumnElement[bool] = self.columns[0].is_not(None)
        if begin is None or begin[0] is not None:
            yield has_value, begin
            begin = None
        yield ~has_value, begin

    def beyond(self, values: list[Any]) -> ColumnElement[bool]:
        """Greater in the order, spelled out: not every database compares rows by an index."""
        at = 1 if self.may_be_null and values[0] is None else 0
        pairs = list(zip(self.columns, values, strict=True))[at:]
        return or_(
            *(
                and_(*(earlier == value for earlier, value in pairs[:depth]), column > value)
                for depth, (column, value) in enumerate(pairs)
            )
        )


def _order(query: Select[Any], key: Any) -> _Order:
    mapper = _mapper_of(query)
    if any(getattr(query, size, None) is not None for size in _SIZES):
        raise RunError(
            "cursor.iterate() reads a select in pages of its own, and a limit or an offset of the select would be "
            "lost. Take it away, or make a list of what the select finds."
        )
    primary = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
    names = list(primary)
    if key is not None:
        name = key if isinstance(key, str) else key.key
        if name not in mapper.column_attrs:
            raise RunError(f"{mapper.class_.__name__} has no column {name!r} to go by.")
        names = [name, *(other for other in primary if other != name)]
    for name in names:
        _refuse_inexact(mapper, name)
    columns = tuple(getattr(mapper.class_, name) for name in names)
    first = mapper.column_attrs[names[0]].columns[0]
    return _Order(columns, tuple(names), may_be_null=bool(getattr(first, "nullable", True)))


def _refuse_inexact(mapper: Mapper[Any], name: str) -> None:
    """Raise where "greater than this value" finds other rows than the ones that come after it: some would be lost.

    A float of single precision is not equal to what was read of it; MariaDB orders an enum by its place in the list
    and compares it by its text.
    """
    kind = mapper.column_attrs[name].columns[0].type
    kind = getattr(kind, "impl_instance", kind)
    is_inexact = isinstance(kind, Float) and not isinstance(kind, Double)
    if is_inexact or isinstance(kind, Enum | Boolean):
        raise RunError(
            f"{mapper.class_.__name__}.{name} cannot be gone by: {type(kind).__name__} columns are not compared as "
            "they are ordered on every database. Go by an integer, a Numeric or Double, an instant or a text."
        )


def _mapper_of(query: Select[Any]) -> Mapper[Any]:
    described = query.column_descriptions
    entity = described[0].get("entity") if len(described) == 1 else None
    if entity is None or described[0].get("expr") is not entity or not isinstance(entity, type):
        raise RunError(
            "cursor.iterate() takes a select of one mapped class, such as select(Customer).where(...)."
        )
    mapper: Mapper[Any] = inspect(entity)
    return mapper


def _kept(value: Any) -> Any:
    """A value for the cursor. An instant without a zone is no value that is stored, so its text is."""
    return value.isoformat() if isinstance(value, datetime) and value.tzinfo is None else value


def _restored(value: Any, column: Any) -> Any:
    if isinstance(value, str) and getattr(column.type, "python_type", None) is datetime:
        return datetime.fromisoformat(value)
    return value
