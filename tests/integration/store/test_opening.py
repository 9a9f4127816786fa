"""Which databases can be opened, and what a message says to use instead of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import NullPool, StaticPool, create_engine

from stepwell import Stepwell, StoreError

IN_MEMORY = ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?cache=shared&uri=true"]
NAMED = "sqlite:///file:runs?mode=memory&cache=shared&uri=true"


@pytest.mark.parametrize("url", [*IN_MEMORY, NAMED])
@pytest.mark.parametrize("is_applications", [False, True])
def test_a_database_in_memory_is_refused(url: str, is_applications: bool) -> None:
    """It is one connection's own, so that a worker's threads would find no runs: said where it is named."""
    theirs = create_engine(url, poolclass=NullPool)
    with pytest.raises(StoreError) as refused:
        Stepwell(theirs if is_applications else url, default=False)
    assert str(refused.value) == (
        "a SQLite database in memory belongs to one connection, and nobody else would find the runs in it. "
        'Use a file, such as Stepwell("sqlite:///app.db"); in tests the fixture `stepwell`, or Workbench(), '
        "brings a database of its own."
    )
    theirs.dispose()


def test_an_engine_with_one_connection_for_all_is_refused(tmp_path: Path) -> None:
    """What an application made for a single thread is no ground for a worker; its URL is."""
    theirs = create_engine(f"sqlite:///{tmp_path / 'app.db'}", poolclass=StaticPool)
    with pytest.raises(StoreError, match=r"StaticPool.*give Stepwell the URL, Stepwell\(engine.url\)"):
        Stepwell(theirs, default=False)
    well = Stepwell(theirs.url, default=False)
    well.migrate()
    assert well.runs().count() == 0
    well.close()
    theirs.dispose()


@pytest.mark.parametrize("name", ["memory.db", "my:memory.db"])
def test_a_file_may_be_called_what_it_likes(tmp_path: Path, name: str) -> None:
    """Only what SQLite itself takes for memory is refused."""
    well = Stepwell(f"sqlite:///{tmp_path / name}", default=False)
    well.migrate()
    assert (tmp_path / name).exists()
    well.close()
