"""A workbench on each product in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell.testing import Workbench


@pytest.fixture
def bench(shared_url: str) -> Iterator[Workbench]:
    """In a database without runs."""
    with Workbench(shared_url) as bench:
        yield bench
