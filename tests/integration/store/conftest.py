"""A rig on each database product."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.store.rig import Rig


@pytest.fixture
def rig(shared_url: str) -> Iterator[Rig]:
    """Empty tables and a clock that is moved by hand, on each product in turn."""
    rig = Rig(shared_url)
    yield rig
    rig.close()


@pytest.fixture
def server_rig(shared_server_url: str) -> Iterator[Rig]:
    """The same on the two servers only, for laws about row locks and connections."""
    rig = Rig(shared_server_url)
    yield rig
    rig.close()
