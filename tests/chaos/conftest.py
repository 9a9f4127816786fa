"""Fixtures for tests with worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.scene import Scene


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    """A new database with its workers, on each product in turn."""
    with Scene(database_url, tmp_path) as scene:
        yield scene
