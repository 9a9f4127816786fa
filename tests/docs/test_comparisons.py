"""The pages that compare Stepwell with the libraries that it unites name tests; they must exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

_PAGES = sorted((ROOT / "docs" / "reference").glob("from-*.md"))
_PROOF = re.compile(r"(`test_\w+`(, )?)*|\[[^]]+\]\([^)]+\)")

every_page = pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)


def test_there_is_a_page_for_each_of_them() -> None:
    """None gets lost."""
    assert [page.stem for page in _PAGES] == ["from-ajdc", "from-chrono-forge", "from-geneva-drive"]


@every_page
def test_every_test_that_the_page_names_exists(page: Path) -> None:
    """A proof that was renamed or taken away is no proof."""
    named = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))
    known: set[str] = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        known.update(re.findall(r"def (test_\w+)\(", file.read_text(encoding="utf-8")))

    assert len(named) > 100
    assert sorted(named - known) == []


@every_page
def test_the_last_column_is_a_proof_or_empty(page: Path) -> None:
    """Names of tests, or a link to the page that says it: no words that nobody holds."""
    for heading, row in _rows(page):
        if heading[-1] == "Proof":
            assert len(row) == len(heading) == 3, row
            assert _PROOF.fullmatch(row[-1]), row


def _rows(page: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Each row of each table, with the table's heading."""
    heading: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            heading = []
        elif not re.fullmatch(r"\|[-| ]+\|", line):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if heading:
                yield heading, cells
            heading = heading or cells
