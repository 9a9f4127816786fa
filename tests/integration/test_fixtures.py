"""The databases that the other tests stand on: new, empty, and alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, NullPool, create_engine, func, inspect, make_url, select, text

from stepwell.ids import new_run_id
from stepwell.store.schema import metadata, signals
from tests.databases import MariaDB, PostgreSQL, Product, SQLite, new_name, unavailable

LEDGER = "CREATE TABLE ledger (note VARCHAR(10))"


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        yield connection


def send(connection: Connection) -> None:
    connection.execute(signals.insert().values(run_id=new_run_id(), sent_at=datetime.now(UTC)))


def count(connection: Connection) -> int | None:
    return connection.scalar(select(func.count()).select_from(signals))


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> PostgreSQL | MariaDB:
    """Each of the two servers."""
    chosen: PostgreSQL | MariaDB = request.getfixturevalue(request.param)
    return chosen


@pytest.mark.parametrize("test", [1, 2])
def test_a_database_shows_nothing_of_an_earlier_test(database_url: str, test: int) -> None:
    """Rows and tables that one test leaves are not there for the next."""
    with connect(database_url) as connection:
        assert "ledger" not in inspect(connection).get_table_names()
        assert [connection.scalar(select(func.count()).select_from(t)) for t in metadata.sorted_tables] == [
            0,
            0,
            0,
        ]
        connection.execute(text(LEDGER))
        send(connection)


def test_a_copied_schema_equals_one_made_by_hand(product: Product) -> None:
    """A template's copy has every column and index that the metadata asks for."""

    def description(connection: Connection) -> dict[str, tuple[list[str], list[object]]]:
        inspector = inspect(connection)
        return {
            table: (
                [f"{c['name']} {c['type']!r} {c['nullable']}" for c in inspector.get_columns(table)],
                sorted(
                    ((i["name"], i["column_names"], i["unique"]) for i in inspector.get_indexes(table)),
                    key=str,
                ),
            )
            for table in metadata.tables
        }

    with product.database() as copied, product.database(tables=False) as made:
        with connect(made) as connection:
            metadata.create_all(connection)
            expected = description(connection)
        with connect(copied) as connection:
            assert description(connection) == expected


def test_an_empty_database_has_no_tables(empty_database_url: str) -> None:
    """Migrations start from nothing."""
    with connect(empty_database_url) as connection:
        assert inspect(connection).get_table_names() == []


def test_databases_at_one_time_are_apart(product: Product) -> None:
    """What is written to one database is not seen in another of the same test."""
    with product.database() as one, product.database() as two, connect(one) as first, connect(two) as second:
        send(first)
        assert (count(first), count(second)) == (1, 0)


def test_single_fixtures_give_their_product(sqlite_url: str, postgresql_url: str, mariadb_url: str) -> None:
    """A test may ask for one product by name."""
    names = [make_url(url).get_backend_name() for url in (sqlite_url, postgresql_url, mariadb_url)]
    assert names[:2] == ["sqlite", "postgresql"]
    assert names[2] in ("mysql", "mariadb")


@pytest.mark.servers
def test_a_forgotten_transaction_does_not_stop_the_drop(server: PostgreSQL | MariaDB) -> None:
    """A database goes although a connection holds locks in it."""
    with server.database() as url:
        engine = create_engine(url)
        forgotten = engine.connect()
        send(forgotten)
        assert make_url(url).database in server.names()
    assert make_url(url).database not in server.names()
    forgotten.invalidate()
    forgotten.close()
    engine.dispose()


@pytest.mark.servers
def test_leftovers_of_a_killed_session_are_swept(server: PostgreSQL | MariaDB) -> None:
    """A new session drops old test databases, and none that may be in use."""
    old, young = new_name(time.time() - 7 * 3600), new_name()
    for name in (old, young):
        server._create(name)
    try:
        type(server)().close()
        assert old not in server.names()
        assert young in server.names()
    finally:
        server._drop(young)


def test_a_missing_server_skips_on_a_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without STEPWELL_REQUIRE_SERVERS, tests that need a server are skipped, and say which one."""
    monkeypatch.delenv("STEPWELL_REQUIRE_SERVERS", raising=False)
    monkeypatch.setenv("STEPWELL_TEST_POSTGRES_URL", "postgresql+psycopg://nobody:secret@127.0.0.1:1/none")
    with pytest.raises(
        pytest.skip.Exception, match=r"no PostgreSQL server at .*127\.0\.0\.1:1/none"
    ) as skipped:
        PostgreSQL()
    assert "secret" not in str(skipped.value)


def test_a_missing_server_fails_where_servers_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """With STEPWELL_REQUIRE_SERVERS=1 nothing is skipped silently."""
    monkeypatch.setenv("STEPWELL_REQUIRE_SERVERS", "1")
    monkeypatch.setenv("STEPWELL_TEST_MARIADB_URL", "mysql+pymysql://nobody@127.0.0.1:1/none")
    with pytest.raises(pytest.fail.Exception, match="no MariaDB server"):
        MariaDB()


def test_a_missing_driver_counts_as_a_missing_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """An install without the extra for a database skips that database's tests."""
    monkeypatch.delenv("STEPWELL_REQUIRE_SERVERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="No module named"):
        unavailable(
            "MariaDB", make_url("mysql+pymysql://x@y/z"), ModuleNotFoundError("No module named 'pymysql'")
        )


def test_sqlite_files_are_reusable(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A database is a file of its own: a second process could open it by its URL."""
    product = SQLite(tmp_path_factory)
    with product.database() as url:
        with connect(url) as connection:
            send(connection)
        with connect(url) as connection:
            assert count(connection) == 1
    product.close()
