"""Databases that tests share.

There are many laws and each is quickly shown: making a database for it would take longer than the test. So
the tests that use these fixtures share one database for each product, and each begins with empty tables.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import NullPool, create_engine

from stepwell.store.schema import metadata
from tests.databases import Product
from tests.integration.town import Town, town_on

SERVERS = [pytest.param(name, marks=pytest.mark.servers) for name in ("postgresql", "mariadb")]


@pytest.fixture(scope="session", params=["sqlite", *SERVERS])
def common_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database on each product, for the whole session."""
    product: Product = request.getfixturevalue(request.param)
    with product.database() as url:
        yield url


@pytest.fixture(scope="session", params=SERVERS)
def common_server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database on each of the two servers, for the whole session."""
    product: Product = request.getfixturevalue(request.param)
    with product.database() as url:
        yield url


@pytest.fixture
def shared_url(common_url: str) -> Iterator[str]:
    """A database with empty tables of Stepwell's, on each product in turn."""
    yield common_url
    wipe(common_url)


@pytest.fixture
def shared_server_url(common_server_url: str) -> Iterator[str]:
    """The same on the two servers only, for laws about row locks and connections."""
    yield common_server_url
    wipe(common_server_url)


@pytest.fixture
def town(shared_url: str) -> Iterator[Town]:
    """A small application and an engine beside it, on each product in turn."""
    with town_on(shared_url) as town:
        yield town


@pytest.fixture
def server_town(shared_server_url: str) -> Iterator[Town]:
    """The same on the two servers."""
    with town_on(shared_server_url) as town:
        yield town


def wipe(url: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            connection.execute(table.delete())
