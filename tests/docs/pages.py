"""The pages of the documentation, and the code in them.

A page's Python blocks make one script, in their order, as a reader would type them. A comment on the line
above a block changes that:

``<!-- not run: why -->``
    The block is no program; the reason is for whoever reads the page's source.
``<!-- needs: fastapi -->``
    The page is run only where these modules are installed.
``<!-- output -->``
    The block is what the Python block before it prints; ``…`` stands for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.architecture.sources import ROOT

__all__ = ["Block", "Page", "all_pages"]

_FENCE: Final = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\s*$")
_COMMENT: Final = re.compile(r"^\s*<!--\s*(?P<text>.*?)\s*-->\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        language: What stands behind the opening fence.
        line: The number of its first line of code.
        comment: The text of the comment above it, or "".
    """

    language: str
    line: int
    code: str
    comment: str

    @property
    def reason_not_to_run(self) -> str | None:
        return self.comment.partition("not run:")[2].strip() or None

    @property
    def needs(self) -> list[str]:
        return [name.strip() for name in self.comment.partition("needs:")[2].split(",") if name.strip()]

    @property
    def is_output(self) -> bool:
        return self.comment == "output"

    @property
    def is_run(self) -> bool:
        return self.language == "python" and self.reason_not_to_run is None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the documentation."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def blocks(self) -> list[Block]:
        return list(_blocks(self.text.splitlines()))


def all_pages() -> list[Page]:
    """README and everything under docs."""
    return [Page(ROOT / "README.md"), *map(Page, sorted((ROOT / "docs").rglob("*.md")))]


def _blocks(lines: list[str]) -> Iterator[Block]:
    opening: re.Match[str] | None = None
    start, comment = 0, ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if opening is None and fence is not None:
            above = _COMMENT.match(lines[number - 1]) if number else None
            opening, start, comment = fence, number + 1, above["text"] if above else ""
        elif opening is not None and fence is not None and not fence["language"]:
            indent = len(opening["indent"])
            code = "\n".join(each[indent:] for each in lines[start:number])
            yield Block(opening["language"], start + 1, code, comment)
            opening = None
