"""The reference page of the command line and the command line itself say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stepwell.cli.exits import ExitCode
from stepwell.cli.program import program

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def commands(group: click.Group, path: str = "stepwell") -> Iterator[tuple[str, click.Command]]:
    """All commands that do something, by what one types."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


@pytest.mark.parametrize(("typed", "command"), list(commands(program)))
def test_each_command_and_option_is_described(typed: str, command: click.Command) -> None:
    """A section for each command names all its options; those of the engine stand in their own section."""
    sections = re.split(r"^#+ ", PAGE, flags=re.MULTILINE)
    section = next(text for text in sections if text.startswith(f"`{typed.removeprefix('stepwell ')}`"))
    shared = next(text for text in sections if text.startswith("Which engine"))
    for parameter in command.params:
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts:
            longest = max(parameter.opts, key=len)
            assert f"`{longest}" in section + shared, f"{typed} {longest}"


def test_each_exit_code_is_described() -> None:
    """Scripts rely on the numbers: the page has all of them."""
    table = PAGE.partition("## Exit codes")[2]
    assert [code for code in ExitCode if f"| {code.value} |" not in table] == []
