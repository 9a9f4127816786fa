"""The page that compares Stepwell with GenevaDrive names tests; they must exist."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

_PAGE = ROOT / "docs" / "reference" / "from-geneva-drive.md"


def test_every_test_that_the_page_names_exists() -> None:
    """A proof that was renamed or taken away is no proof."""
    named = set(re.findall(r"`(test_\w+)`", _PAGE.read_text(encoding="utf-8")))
    known: set[str] = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        known.update(re.findall(r"def (test_\w+)\(", file.read_text(encoding="utf-8")))

    assert len(named) > 150
    assert sorted(named - known) == []


def test_the_last_column_is_a_proof_or_empty() -> None:
    """Names of tests, or a link to the page that says it: no words that nobody holds."""
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not re.match(r"^\|[-| ]+\|$", line):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert len(cells) == 3, line
            assert cells[2] == "Proof" or re.fullmatch(r"(`test_\w+`(, )?)*|\[[^]]+\]\([^)]+\)", cells[2]), (
                line
            )
