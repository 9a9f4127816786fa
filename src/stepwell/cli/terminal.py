"""What reaches the terminal: nothing that a run's author or an error's text could steer it with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from stepwell.cli.exits import OutputClosed
from stepwell.texts import printable

__all__ = ["Column", "complain", "say", "say_json", "say_json_line", "table", "width"]

_WIDE: Final = 200


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its head.
        is_whole: Its values are never shortened; other columns make room.
        folds: Long values go on in further lines instead of being shortened.
        is_number: It is aligned to the right.
    """

    title: str
    is_whole: bool = False
    folds: bool = False
    is_number: bool = False


def width() -> int:
    """How wide the output may be: the terminal's width, ``COLUMNS`` if it is set, ample room in a pipe."""
    console = Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else _WIDE


def say(text: str | Text = "") -> None:
    """Write one line, or several, to standard output; markup in it means nothing."""
    _show(Text(text) if isinstance(text, str) else text, soft_wrap=True)


def say_json(document: Any) -> None:
    """Write one JSON document to standard output, in ASCII: nothing in it can steer a terminal."""
    _write(f"{_ascii(document, indent=2)}\n")


def say_json_line(document: Any) -> None:
    """The same in one line, for a stream of documents."""
    _write(f"{_ascii(document)}\n")


def _ascii(document: Any, indent: int | None = None) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=True).replace("\x7f", r"\u007f")


def complain(message: str) -> None:
    """Write one line to standard error."""
    try:
        sys.stderr.write(f"{printable(message)}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        raise OutputClosed from None


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Write a table that is no wider than the output; values are made printable."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for column in columns:
        drawn.add_column(
            column.title,
            header_style="bold",
            no_wrap=column.is_whole,
            overflow="fold",
            justify="right" if column.is_number else "left",
        )
    for row in rows:
        drawn.add_row(*(_cell(column, value) for column, value in zip(columns, row, strict=True)))
    _show(drawn)


def _cell(column: Column, value: str) -> Text:
    if column.folds:
        return Text(printable(value, keep_lines=True))
    return Text(printable(value), no_wrap=True, overflow="ellipsis")


def _show(what: RenderableType, *, soft_wrap: bool = False) -> None:
    """Draw into a text first: what happens to standard output is decided here, not in the library."""
    target = Console()
    buffer = StringIO()
    console = Console(
        file=buffer,
        width=width(),
        force_terminal=target.is_terminal,
        color_system="auto" if target.is_terminal else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(what, soft_wrap=soft_wrap)
    lines = buffer.getvalue().split("\n")
    _write("\n".join(line.rstrip(" ") for line in lines))


def _write(text: str) -> None:
    try:
        # Line by line: of one long write to a reader that leaves, an unbuffered stream reports nothing.
        sys.stdout.writelines(text.splitlines(keepends=True))
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None
