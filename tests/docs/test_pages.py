"""What holds for pages as a whole: the README, links, commands."""

from __future__ import annotations

import re

import pytest

from tests.architecture.sources import ROOT
from tests.docs.pages import Page, all_pages

_README = Page(ROOT / "README.md")
_LINKED = [*all_pages(), Page(ROOT / "CHANGELOG.md")]


def test_the_readme_fits_on_a_few_screens() -> None:
    """A README of more than 170 lines is not read."""
    assert len(_README.text.splitlines()) <= 170


def test_the_readme_shows_the_workflow_of_the_demo() -> None:
    """What one reads first is what the demo runs, word for word."""
    demo = (ROOT / "src" / "stepwell" / "demo" / "onboarding.py").read_text(encoding="utf-8")
    shown = next(block.code for block in _README.blocks() if "class Onboarding" in block.code)
    assert shown == demo[demo.index("from datetime") :].rstrip()


@pytest.mark.parametrize("page", _LINKED, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    """A link to a file, or to a heading in one, has that file and that heading."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        if not file.exists() or (anchor and anchor not in _anchors(Page(file))):
            broken.append(target)
    assert broken == []


def _anchors(page: Page) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _commands() -> list[tuple[str, str]]:
    """Where a page shows a ``stepwell`` command, and what stands behind that word."""
    found = []
    for page in all_pages():
        for block in page.blocks():
            if block.language == "sh":
                lines = (line.partition(" #")[0].strip() for line in block.code.splitlines())
                found += [
                    (f"{page.name}:{block.line}", line) for line in lines if line.startswith("stepwell ")
                ]
    return found


@pytest.mark.parametrize(("place", "command"), _commands())
def test_commands_in_pages_exist(place: str, command: str) -> None:
    """The command line has each command and each option that a page tells to type."""
    testing = pytest.importorskip("click.testing")
    from stepwell.cli.program import program

    answer = testing.CliRunner().invoke(program, [*command.split()[1:], "--help"])
    assert answer.exit_code == 0, f"{place}: {command}\n{answer.output}"
