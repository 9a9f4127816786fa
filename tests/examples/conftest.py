"""Each example begins with services that have done nothing, and with the application's tables in the run's database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from _stepwell_pytest import stepwell
from examples.outside import Service
from examples.records import Base
from stepwell.testing import Workbench

__all__ = ["stepwell"]


@pytest.fixture(autouse=True)
def _new_services() -> None:
    for service in Service.everywhere:
        service.forget()


@pytest.fixture
def session(stepwell: Workbench) -> Iterator[Session]:
    """The application's own session, on the database in which the runs are."""
    engine = create_engine(stepwell.url)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()
