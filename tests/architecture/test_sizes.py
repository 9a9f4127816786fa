"""Modules and functions stay small enough to be read in one go."""

from __future__ import annotations

from tests.architecture.sources import functions, modules, relative

MODULE_LINES = 600
FUNCTION_LINES = 70


def test_modules_are_at_most_600_lines() -> None:
    """A longer module has more than one idea in it; look for the seam at 400."""
    sizes = {relative(m): len(m.read_text(encoding="utf-8").splitlines()) for m in modules()}
    assert {name: lines for name, lines in sizes.items() if lines > MODULE_LINES} == {}


def test_functions_are_at_most_70_lines() -> None:
    """A longer function does more than one thing."""
    sizes = {
        f"{relative(module)}:{function.lineno} {function.name}": (function.end_lineno or 0)
        - function.lineno
        + 1
        for module in modules()
        for function in functions(module)
    }
    assert {name: lines for name, lines in sizes.items() if lines > FUNCTION_LINES} == {}
