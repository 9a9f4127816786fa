"""The plugin's fixture, whether or not the plugin is installed here, and the same on each product."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from _stepwell_pytest import stepwell
from stepwell.testing import Workbench

__all__ = ["bench", "stepwell"]


@pytest.fixture
def bench(shared_url: str) -> Iterator[Workbench]:
    """A workbench on each product in turn, in a database without runs."""
    with Workbench(shared_url) as bench:
        yield bench
