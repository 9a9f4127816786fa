"""The API as a type checker sees it: what passes, and the errors that are promised."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from mypy import api

SAMPLES: Final = Path(__file__).parent / "samples"
SOURCES: Final = Path(__file__).parents[2] / "src"

Findings = dict[str, dict[int, set[str]]]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """For each sample, the codes of the errors that mypy finds, by line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(SOURCES))
        # Errors in the library itself are another check's business.
        options = ["--strict", "--follow-imports=silent", "--python-version=3.11", "--hide-error-context"]
        cache = tmp_path_factory.mktemp("mypy")
        files = [str(path) for path in sorted(SAMPLES.glob("*.py"))]
        output, crash, _ = api.run([*options, f"--cache-dir={cache}", "--config-file=", *files])
    assert not crash, crash
    found: Findings = {}
    for path, line, code in re.findall(r"^(.+?):(\d+): error: .*?  \[([\w-]+)\]$", output, re.MULTILINE):
        found.setdefault(Path(path).stem, {}).setdefault(int(line), set()).add(code)
    return found


def test_careful_code_has_no_errors(findings: Findings) -> None:
    """Steps keep their signatures, async ones answer their awaited result, and heroes have their types."""
    assert findings.get("good", {}) == {}


def test_careless_code_has_the_promised_errors(findings: Findings) -> None:
    """Each at its line, and none elsewhere."""
    text = (SAMPLES / "bad.py").read_text(encoding="utf-8")
    promised = {
        number: set(line.partition("# E: ")[2].split())
        for number, line in enumerate(text.splitlines(), 1)
        if "# E: " in line and not line.startswith('"""')
    }
    # A decorator with a wrong option leaves its function without a type, which is not worth promising.
    found = {line: codes - {"untyped-decorator"} for line, codes in findings["bad"].items()}
    assert found == promised
    assert len(promised) > 20
