"""A warehouse on each database, and an engine whose runs are driven by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stepwell import ManualClock, Stepwell
from stepwell.definition.starting import set_default_engine
from tests.integration.second_stage.warehouse import Base, Warehouse
from tests.support.driving import Driver


@contextmanager
def warehouse_on(url: str) -> Iterator[Warehouse]:
    house = Warehouse(url)
    Base.metadata.create_all(house.engine)
    yield house
    Base.metadata.drop_all(house.engine)
    house.engine.dispose()


@pytest.fixture
def house(shared_url: str) -> Iterator[Warehouse]:
    """An empty warehouse in a database without runs, on each product in turn."""
    with warehouse_on(shared_url) as house:
        yield house


@pytest.fixture
def server_house(shared_server_url: str) -> Iterator[Warehouse]:
    """The same on the two servers."""
    with warehouse_on(shared_server_url) as house:
        yield house


@pytest.fixture
def well(house: Warehouse) -> Iterator[Stepwell]:
    """The engine, on a clock that the test moves; the process's default."""
    well = Stepwell(house.url, clock=ManualClock())
    yield well
    well.close()
    set_default_engine(None)


@pytest.fixture
def driver(well: Stepwell) -> Iterator[Driver]:
    """Drives what is due."""
    with Driver(well) as driver:
        yield driver
