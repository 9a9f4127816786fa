"""A bench on each database: runs are driven on the test's thread, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell.testing import Workbench


@pytest.fixture
def bench(shared_url: str) -> Iterator[Workbench]:
    """A bench over a database without runs, on each product in turn."""
    with Workbench(shared_url, raise_errors=False) as bench:
        yield bench
