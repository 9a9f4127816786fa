"""A shop on each database, and an engine whose runs are driven by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from stepwell import ManualClock, Stepwell
from stepwell.definition.starting import set_default_engine
from tests.integration.declared.shop import Base, Shop
from tests.support.driving import Driver


@pytest.fixture(scope="session")
def shop_url(common_engine: Engine) -> str:
    """A database with the shop's tables, on each product, for the whole session."""
    Base.metadata.create_all(common_engine)
    return common_engine.url.render_as_string(hide_password=False)


@pytest.fixture
def shop(shop_url: str, shared_url: str) -> Iterator[Shop]:
    """A shop without customers, in a database without runs."""
    shop = Shop(shop_url)
    yield shop
    with shop.engine.begin() as connection:
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(table.delete())
    shop.engine.dispose()


@pytest.fixture
def well(shop: Shop, shared_url: str) -> Iterator[Stepwell]:
    """The engine, on a clock that the test moves; the process's default."""
    well = Stepwell(shared_url, clock=ManualClock())
    yield well
    well.close()
    set_default_engine(None)


@pytest.fixture
def driver(well: Stepwell) -> Iterator[Driver]:
    """Drives what is due."""
    with Driver(well) as driver:
        yield driver
