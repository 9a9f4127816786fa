"""The examples in docstrings run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.sources import PACKAGE, ROOT, modules

pytestmark = pytest.mark.slow

_NOT_RUN: Final = {
    "stepwell.execution.cursor.Cursor": "its file and its table stand for the reader's own",
}
"""Examples that are no programs, and why."""

_RUN: Final = """
import doctest, importlib, sys
module, *names = sys.argv[1:]
tests = [test for test in doctest.DocTestFinder().find(importlib.import_module(module)) if test.name in names]
runner = doctest.DocTestRunner()
failed = sum(runner.run(test).failed for test in tests)
sys.exit(f"{failed} of {runner.tries} failed" if failed or len(tests) != len(names) else 0)
"""


def _examples() -> dict[str, list[str]]:
    """By module, the names of everything whose docstring has an example; nothing is imported for it."""
    found = {}
    for path in modules():
        source = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        if ">>> " in source:
            found[module] = list(_with_examples(ast.parse(source), module))
    return found


def _with_examples(node: ast.AST, name: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            own = f"{name}.{child.name}"
            if ">>> " in (ast.get_docstring(child) or ""):
                yield own
            yield from _with_examples(child, own)


_EXAMPLES: Final = _examples()


@pytest.mark.parametrize("module", [name for name in _EXAMPLES if set(_EXAMPLES[name]) - _NOT_RUN.keys()])
def test_the_examples_in_a_module_run(module: str, tmp_path: Path) -> None:
    """In a process of its own, each example in a module's docstrings prints what it says."""
    names = [name for name in _EXAMPLES[module] if name not in _NOT_RUN]
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", _RUN, module, *names],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_examples_that_are_not_run_exist() -> None:
    """An exception that is no longer needed goes."""
    assert _NOT_RUN.keys() - {name for names in _EXAMPLES.values() for name in names} == set()
