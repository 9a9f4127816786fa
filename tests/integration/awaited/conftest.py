"""An engine on each database in turn, for workers with threads of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell import Stepwell
from stepwell.definition.starting import set_default_engine


@pytest.fixture
def well(shared_url: str) -> Iterator[Stepwell]:
    """The engine, in a database without runs; the process's default."""
    well = Stepwell(shared_url)
    yield well
    well.close()
    set_default_engine(None)
