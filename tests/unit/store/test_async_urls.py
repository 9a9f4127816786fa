"""Asynchronous drivers: Stepwell says which URL it wants instead of theirs."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from stepwell import Stepwell, StoreError

URLS = {
    "postgresql+asyncpg://host/app": "postgresql+psycopg://",
    "postgresql+psycopg_async://host/app": "postgresql+psycopg://",
    "mysql+aiomysql://host/app": "mysql+pymysql://",
    "mysql+asyncmy://host/app": "mysql+pymysql://",
    "mariadb+aiomysql://host/app": "mariadb+pymysql://",
    "sqlite+aiosqlite:///app.db": "sqlite://",
}


def message(ours: str, theirs: str) -> str:
    return (
        f"Stepwell uses a synchronous driver: give it a URL that begins with {ours} and not {theirs}. "
        "The application may go on using its own."
    )


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("is_text", [True, False])
def test_a_url_with_an_asynchronous_driver_is_refused(url: str, is_text: bool) -> None:
    """When the engine is made, whether the driver is installed or not."""
    with pytest.raises(StoreError) as refused:
        Stepwell(url if is_text else make_url(url), default=False)
    assert str(refused.value) == message(URLS[url], f"{make_url(url).drivername}://")


@pytest.mark.parametrize(
    "url", ["postgresql+asyncpg://host/app", "mysql+aiomysql://host/app", "sqlite+aiosqlite:///app.db"]
)
def test_an_async_engine_is_refused(url: str) -> None:
    """The application's own, which stays in use beside Stepwell's."""
    pytest.importorskip(make_url(url).get_driver_name())
    theirs: AsyncEngine = create_async_engine(url)
    with pytest.raises(StoreError) as refused:
        Stepwell(theirs, default=False)  # type: ignore[arg-type]  # that is what is refused
    assert str(refused.value) == message(URLS[url], f"{make_url(url).drivername}://")
    with pytest.raises(StoreError, match="synchronous driver"):
        Stepwell(theirs.sync_engine, default=False)
