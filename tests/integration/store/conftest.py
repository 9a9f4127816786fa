"""A rig on each database product.

There are many laws and each is quickly shown, so that all tests of one product share a database: making one
would take longer than the test. Each test begins with empty tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import NullPool, create_engine

from stepwell.store.schema import metadata
from tests.databases import Product
from tests.integration.store.rig import Rig

SERVERS = [pytest.param(name, marks=pytest.mark.servers) for name in ("postgresql", "mariadb")]


@pytest.fixture(scope="session", params=["sqlite", *SERVERS])
def shared_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database on each product, for all tests of this folder."""
    product: Product = request.getfixturevalue(request.param)
    with product.database() as url:
        yield url


@pytest.fixture(scope="session", params=SERVERS)
def shared_server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database on each of the two servers, for all tests of this folder."""
    product: Product = request.getfixturevalue(request.param)
    with product.database() as url:
        yield url


@pytest.fixture
def rig(shared_url: str) -> Iterator[Rig]:
    """Empty tables and a clock that is moved by hand, on each product in turn."""
    with rig_on(shared_url) as rig:
        yield rig


@pytest.fixture
def server_rig(shared_server_url: str) -> Iterator[Rig]:
    """The same on the two servers only, for laws about row locks and connections."""
    with rig_on(shared_server_url) as rig:
        yield rig


@contextmanager
def rig_on(url: str) -> Iterator[Rig]:
    rig = Rig(url)
    try:
        yield rig
    finally:
        rig.close()
        engine = create_engine(url, poolclass=NullPool)
        with engine.begin() as connection:
            for table in metadata.sorted_tables:
                connection.execute(table.delete())
