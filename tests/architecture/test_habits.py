"""Habits that no linter knows."""

from __future__ import annotations

import ast
import re

from tests.architecture.sources import PACKAGE, ROOT, functions, modules, relative, tracked_files

# Split, so that this file does not break its own law.
MACHINE_PATH = re.compile(
    r"(?<![\w./~-])/(?:" + "|".join(["work", "root", "tmp", r"home/\w+", r"Users/\w+"]) + r")/"
)


def test_only_dialects_ask_which_database_it_is() -> None:
    """What differs between databases is a capability of a dialect, and no ``if`` elsewhere."""
    allowed = (PACKAGE / "store" / "dialects", PACKAGE / "store" / "types.py")
    offenders = [
        f"{relative(module)}:{number}"
        for module in modules()
        if not any(module.is_relative_to(place) for place in allowed)
        for number, line in enumerate(module.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bdialect\.name\b", line)
    ]
    assert offenders == []


def test_modules_are_named_by_what_they_are_about() -> None:
    """A module called "utils" attracts whatever has no home."""
    vague = {"utils", "util", "helpers", "helper", "common", "misc"}
    names = {relative(module): module.relative_to(PACKAGE).with_suffix("").parts for module in modules()}
    assert [name for name, parts in names.items() if vague & set(parts)] == []


def test_every_test_states_the_law_it_proves() -> None:
    """A test's docstring says what must hold; its name alone is too short for that."""
    offenders = [
        f"{relative(module)}:{function.lineno} {function.name}"
        for module in modules(ROOT / "tests")
        if module.name.startswith("test_")
        for function in functions(module)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert offenders == []


def test_exceptions_from_the_linters_say_why() -> None:
    """``noqa`` and ``type: ignore`` name a code and give a reason on the same line."""
    marker = re.compile(r"#\s*(noqa|type:\s*ignore)")
    justified = re.compile(
        r"#\s*(?:noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|type:\s*ignore\[[\w-]+(?:,\s*[\w-]+)*\])\W+\w+"
    )
    offenders = [
        f"{relative(module)}:{number} {line.strip()}"
        for module in modules()
        for number, line in enumerate(module.read_text(encoding="utf-8").splitlines(), 1)
        if marker.search(line) and not justified.search(line)
    ]
    assert offenders == []


def test_no_file_knows_a_machine() -> None:
    """Absolute paths of somebody's machine mean nothing on another one."""
    offenders = []
    for file in tracked_files():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        offenders += [
            f"{relative(file)}:{number} {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if MACHINE_PATH.search(line)
        ]
    assert offenders == []
