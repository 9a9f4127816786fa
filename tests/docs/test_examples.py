"""Every example in README and docs does what the page says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.sources import ROOT
from tests.docs.pages import Page, all_pages

pytestmark = pytest.mark.slow

_END: Final = "\x1e"
"""Printed between two blocks, to tell their outputs apart."""

_PAGES: Final = [page for page in all_pages() if any(block.is_run for block in page.blocks())]

_NOT_RUN: Final[dict[str, int]] = {
    "docs/how-to/migrate-the-schema.md": 1,
    "docs/how-to/run-workers.md": 1,
    "docs/how-to/use-with-sqlalchemy-session.md": 1,
}
"""How many Python blocks of a page are not run; each says why in the page itself."""


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_as_one_script(page: Page, tmp_path: Path) -> None:
    """A page's Python blocks, typed in their order, run without error or warning and print what it says."""
    missing = [
        name for block in page.blocks() for name in block.needs if importlib.util.find_spec(name) is None
    ]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    script = tmp_path / "page.py"
    script.write_text(_script(page), encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert finished.returncode == 0, f"{page.name} (line numbers are the page's):\n{finished.stderr}"
    for line, expected, printed in _outputs(page, finished.stdout):
        assert _fits(expected, printed), f"{page.name}:{line} says\n{expected}\nand it prints\n{printed}"


def test_blocks_that_are_not_run_are_few_and_justified() -> None:
    """An example is left out only for a reason that stands beside it, and no page gains one unseen."""
    found: dict[str, int] = {}
    for page in all_pages():
        for block in page.blocks():
            if block.language == "python" and block.reason_not_to_run is not None:
                assert len(block.reason_not_to_run) >= 10, f"{page.name}:{block.line} gives no reason"
                found[page.name] = found.get(page.name, 0) + 1
    assert found == _NOT_RUN


def _script(page: Page) -> str:
    """The page's blocks as one script, each on the lines that it has in the page."""
    lines: list[str] = []
    for block in page.blocks():
        if block.is_run:
            lines += [""] * (block.line - 1 - len(lines))
            # On the line of the closing fence, so that no line moves.
            lines += [*block.code.splitlines(), f"print({_END!r}, flush=True)"]
    return "\n".join(lines) + "\n"


def _outputs(page: Page, stdout: str) -> list[tuple[int, str, str]]:
    """For each block that shows an output: its line, what it says, and what was printed."""
    outputs = iter(stdout.split(f"{_END}\n"))
    printed, found = "", []
    for block in page.blocks():
        if block.is_run:
            printed = next(outputs)
        elif block.is_output:
            found.append((block.line, block.code, printed))
    return found


def _fits(expected: str, printed: str) -> bool:
    pattern = ".*".join(map(re.escape, expected.strip().split("…")))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
