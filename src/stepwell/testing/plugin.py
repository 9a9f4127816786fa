"""The pytest plugin: one fixture. pytest finds it by itself; tests that do not ask for it do not notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell.testing.workbench import Workbench

__all__ = ["stepwell"]


@pytest.fixture
def stepwell() -> Iterator[Workbench]:
    """Runs workflows on this thread, in a database of the test's own, on a clock that the test moves.

    Its engine is the process's default for the time of the test. To test on a database of your own, define a
    fixture of this name: ``with Workbench(url) as stepwell: yield stepwell``.
    """
    with Workbench() as workbench:
        yield workbench
