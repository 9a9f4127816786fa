"""The pytest plugin: one fixture. pytest finds it by itself; tests that do not ask for it do not notice.

It stands beside the package: pytest imports it in every session of an environment in which Stepwell is installed,
and to import a module of the package would import all of the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stepwell.testing import Workbench

__all__ = ["stepwell"]


@pytest.fixture
def stepwell() -> Iterator[Workbench]:
    """Runs workflows on this thread, in a database of the test's own, on a clock that the test moves.

    Its engine is the process's default for the time of the test. To test on a database of your own, define a
    fixture of this name: ``with Workbench(url) as stepwell: yield stepwell``.
    """
    from stepwell.testing import Workbench  # noqa: PLC0415  # only for tests that ask for it

    with Workbench() as workbench:
        yield workbench
