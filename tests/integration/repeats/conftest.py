"""A bench on each database, at the beginning of a day: runs are driven on the test's thread."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from stepwell.testing import Workbench

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def bench(shared_url: str) -> Iterator[Workbench]:
    """A bench over a database without runs, on each product in turn."""
    with Workbench(shared_url, start=NOON, raise_errors=False) as bench:
        yield bench
