"""pytest finds the fixture by itself, and tests that do not ask for it do not notice."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.docs.pages import Page

TESTS = """
from datetime import timedelta
from pathlib import Path

from stepwell import StoreError, Workflow, step
from stepwell.definition.starting import default_engine

FILES = []


class Trial(Workflow):
    @step
    def begin(self): ...

    @step(wait=timedelta(days=14))
    def end(self): raise RuntimeError("the trial is over")


def test_used(stepwell):
    FILES.append(stepwell.engine.database.engine.url.database)
    run = Trial.start()
    stepwell.drain()
    stepwell.assert_steps(run, "begin")


def test_used_again(stepwell):
    assert stepwell.engine.runs().count() == 0
    FILES.append(stepwell.engine.database.engine.url.database)


def test_unused(capsys):
    assert len(set(FILES)) == 2
    assert not any(Path(file).exists() for file in FILES)
    try:
        default_engine()
    except StoreError:
        return
    raise AssertionError("an engine was left behind")


def test_wrong_steps(stepwell):
    run = Trial.start()
    stepwell.drain()
    stepwell.assert_steps(run, "begin", "end")


def test_fails(stepwell):
    stepwell.run_to_end(Trial.start())
"""


@pytest.fixture
def run_pytest(tmp_path: Path) -> Callable[..., str]:
    """Runs pytest on the tests above, where the package is installed with what pyproject.toml says."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    installed = tmp_path / "packages" / "stepwell-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: stepwell\nVersion: 0\n")
    points = "\n".join(f"{name} = {target}" for name, target in declared["pytest11"].items())
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{points}\n")
    (tmp_path / "test_trial.py").write_text(TESTS, encoding="utf-8")

    def run(*arguments: str) -> str:
        path = os.pathsep.join([str(tmp_path / "packages"), str(ROOT / "src")])
        finished = subprocess.run(
            [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        return finished.stdout + finished.stderr

    return run


def test_the_fixture_is_there_without_a_word(run_pytest: Callable[..., str]) -> None:
    """Each test that names it has a workbench and database of its own; the others have no engine at all."""
    assert "3 passed" in run_pytest("-k", "used")


def test_the_library_is_not_imported_for_other_tests(run_pytest: Callable[..., str], tmp_path: Path) -> None:
    """It may be installed where only some tests are about workflows: the others do not wait for its import."""
    test = 'import sys\n\ndef test_other():\n    assert {"stepwell", "sqlalchemy"}.isdisjoint(sys.modules)\n'
    (tmp_path / "test_other.py").write_text(f"{test}    assert '_stepwell_pytest' in sys.modules\n")
    assert "1 passed" in run_pytest("test_other.py")


def test_a_failed_test_shows_the_author_what_happened(run_pytest: Callable[..., str]) -> None:
    """The test's line, the step's line, the run's history; no frame of the library between them."""
    told = run_pytest("-k", "wrong_steps or fails")
    assert "2 failed" in told
    assert "begin succeeded, not begin, end." in told
    assert "RuntimeError: the trial is over" in told
    assert "+14d 00:00:00  end    failed  RuntimeError: the trial is over" in told
    places = [line for line in told.splitlines() if line.startswith(("test_trial.py:", "src", "/"))]
    assert [place for place in places if "stepwell/" in place] == []
    assert len(places) == 3


def test_the_examples_of_the_page_are_tests(
    run_pytest: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page on testing shows passes under pytest, with the fixture that it defines last."""
    page = Page(ROOT / "docs" / "how-to" / "test-workflows.md")
    script = "\n".join(block.code for block in page.blocks() if block.is_run)
    (tmp_path / "test_page.py").write_text(script, encoding="utf-8")
    monkeypatch.setenv("TEST_DATABASE_URL", f"sqlite:///{tmp_path / 'runs.db'}")
    told = run_pytest("test_page.py")
    assert f"{script.count('def test_')} passed" in told, told
    assert (tmp_path / "runs.db").exists()


def test_what_pyproject_names_is_the_plugin() -> None:
    """The entry point leads to a module with the fixture, and to nothing else."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert set(declared["pytest11"]) == {"stepwell"}
    plugin = import_module(declared["pytest11"]["stepwell"])
    assert plugin.__all__ == ["stepwell"]
