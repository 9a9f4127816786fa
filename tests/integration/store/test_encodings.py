"""The encodings that a database may have on PostgreSQL: every text must be one that it can keep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import inspect

from stepwell import Stepwell, UnsupportedDatabase, Worker
from tests.databases import PostgreSQL, new_name

pytestmark = pytest.mark.servers


# In SQL_ASCII psycopg answers bytes, which SQLAlchemy does not take for the server's version when it first connects.
@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def encoding(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def well(postgresql: PostgreSQL, encoding: str) -> Iterator[Stepwell]:
    """An engine on an empty database in that encoding."""
    name = new_name()
    postgresql._run(
        f"CREATE DATABASE {name} WITH ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    well = Stepwell(postgresql._url_of(name), default=False)
    yield well
    well.close()
    postgresql._drop(name)


@pytest.mark.parametrize("verb", ["migrate", "check", "start"])
def test_another_encoding_is_refused(verb: str, encoding: str, well: Stepwell) -> None:
    """Before anything is made there, by whoever comes first: it is named, and what to make instead."""
    worker = Worker(well, threads=1)
    for _ in range(2):
        with pytest.raises(UnsupportedDatabase) as refused:
            (worker.start if verb == "start" else getattr(well, verb))()
        assert str(refused.value) == (
            "Stepwell needs a database in UTF8, so that every error's text can be recorded; this one is in "
            f"{encoding}. Make one WITH ENCODING 'UTF8' TEMPLATE template0."
        )
    assert inspect(well.database.engine).get_table_names() == []


def test_utf8_is_taken(postgresql_url: str) -> None:
    """The tests' own databases have it."""
    well = Stepwell(postgresql_url, default=False)
    well.migrate()
    assert well.check() == []
    well.close()
