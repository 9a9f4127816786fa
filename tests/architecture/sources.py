"""The source files that the architecture's laws are checked on."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["PACKAGE", "ROOT", "functions", "modules", "relative", "tracked_files"]

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "src" / "stepwell"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def relative(path: Path) -> str:
    """A path as one reads it in a message."""
    return path.relative_to(ROOT).as_posix()


def modules(folder: Path = PACKAGE) -> list[Path]:
    """All Python modules under a folder."""
    found = sorted(folder.rglob("*.py"))
    assert found, f"no modules under {folder}"
    return found


def functions(module: Path) -> Iterator[Function]:
    """All functions and methods of a module, nested ones too."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, Function):
            yield node


def tracked_files() -> list[Path]:
    """What Git tracks, or would; everything but caches where there is no Git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [file for file in ROOT.rglob("*") if file.is_file() and not _is_hidden(file)]
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def _is_hidden(file: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(ROOT).parts)
