"""Examples run on each database in turn, with the application's tables beside Stepwell's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from examples.outside import Service
from examples.records import Base
from stepwell.testing import Workbench
from tests.conftest import PRODUCTS


@pytest.fixture(autouse=True)
def _new_services() -> None:
    """Services that have done nothing yet."""
    for service in Service.everywhere:
        service.forget()


@pytest.fixture(scope="session", params=PRODUCTS)
def application(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The application's database, for the whole session: to make one for each test would take longer than the test."""
    with request.getfixturevalue(request.param).database() as url:
        engine = create_engine(url, pool_pre_ping=True)
        Base.metadata.create_all(engine)
        yield engine
        engine.dispose()


@pytest.fixture
def stepwell(application: Engine) -> Iterator[Workbench]:
    """The plugin's fixture on this database, without runs and records."""
    with Workbench(application.url) as bench:
        yield bench
        bench.delete_all_runs()
    with application.begin() as connection:
        for table in Base.metadata.sorted_tables:
            connection.execute(table.delete())


@pytest.fixture
def session(application: Engine, stepwell: Workbench) -> Iterator[Session]:
    """The application's own session."""
    with Session(application) as session:
        yield session
