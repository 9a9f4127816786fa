"""The shipped migrations make the schema that the code works with, once, whoever runs them and how often."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError

from stepwell.errors import SchemaOutdated, UnsupportedDatabase
from stepwell.store import migrating, migrations
from stepwell.store.dialects.schema_changes import schema_transaction
from stepwell.store.schema import metadata
from tests.databases import Product

VERSIONS = "stepwell_schema_version"

DESCRIPTIONS = {
    "sqlite": {
        "everything": "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY name",
    },
    "postgresql": {
        "columns": """
            SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                pg_get_expr(d.adbin, d.adrelid), a.attidentity
            FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relname LIKE 'stepwell%'
            LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
            WHERE c.relkind = 'r' AND a.attnum > 0 ORDER BY 1, 2""",
        "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
        "constraints": """
            SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
            WHERE conrelid::regclass::text LIKE 'stepwell%' ORDER BY 1""",
        "storage": "SELECT relname, reloptions FROM pg_class WHERE relname LIKE 'stepwell%' ORDER BY 1",
    },
}


def describe(connection: Connection) -> dict[str, list[str]]:
    """The whole schema, but for the table of versions, as the database itself tells it."""
    product = connection.dialect.name
    if product == "mysql":
        names = sorted(set(inspect(connection).get_table_names()) - {VERSIONS})
        return {name: told_by_mariadb(connection, name) for name in names}
    rows = {part: connection.execute(text(query)).all() for part, query in DESCRIPTIONS[product].items()}
    return {
        part: [" ".join(" | ".join(map(str, row)).split()) for row in part_rows if VERSIONS not in str(row)]
        for part, part_rows in rows.items()
    }


def told_by_mariadb(connection: Connection, table: str) -> list[str]:
    """The columns in their order, then the rest; indexes have none."""
    told = str(connection.exec_driver_sql(f"SHOW CREATE TABLE {table}").one()[1])
    lines = [line.strip().rstrip(",") for line in told.splitlines()]
    return sorted(lines, key=lambda line: "" if line.startswith("`") else line)


@pytest.fixture
def engine(empty_database_url: str) -> Iterator[Engine]:
    made = create_engine(empty_database_url)
    yield made
    made.dispose()


@pytest.fixture
def fresh_schema(product: Product) -> Iterator[dict[str, list[str]]]:
    """What the tables look like that the code's own metadata makes."""
    with product.database(tables=False) as url:
        fresh = create_engine(url)
        metadata.create_all(fresh)
        with fresh.connect() as connection:
            description = describe(connection)
        fresh.dispose()
        yield description


def description_of(engine: Engine) -> dict[str, list[str]]:
    with engine.connect() as connection:
        return describe(connection)


def versions(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text(f"SELECT version_num FROM {VERSIONS}")).scalars())


def set_version(engine: Engine, revision: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSIONS} SET version_num = '{revision}'"))


def test_a_migrated_schema_is_the_schema_of_the_code(
    engine: Engine, fresh_schema: dict[str, list[str]]
) -> None:
    """Law: migrations and ``schema.py`` say the same: types, NULLs, defaults, indexes, conditions, storage.

    Where this fails, ``schema.py`` was changed without a revision in ``store/migrations/versions/``.
    """
    assert fresh_schema
    migrating.upgrade(engine)
    assert description_of(engine) == fresh_schema


def test_a_second_upgrade_does_nothing(engine: Engine) -> None:
    """Law: upgrade answers what it applied, in order; run again, it writes nothing."""
    assert migrating.current(engine) is None
    assert migrating.upgrade(engine)[-1] == migrating.head()
    assert migrating.current(engine) == migrating.head()
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    assert migrating.upgrade(engine) == []
    assert not [
        statement
        for statement in statements
        if not statement.lstrip().startswith(("SELECT", "PRAGMA", "DESC", "SHOW"))
    ]


def test_processes_that_upgrade_at_the_same_time_do_it_once(
    engine: Engine, fresh_schema: dict[str, list[str]]
) -> None:
    """Law: four upgrades at once all succeed, one of them does the work, and the others wait for it."""
    together = Barrier(4)

    def upgrade(_: int) -> tuple[list[str], str | None]:
        own = create_engine(engine.url)
        try:
            with own.connect():
                together.wait(30)
            return migrating.upgrade(own), migrating.current(own)
        finally:
            own.dispose()

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(upgrade, range(4)))
    assert sorted(applied for applied, _ in answers) == [[], [], [], [migrating.head()]]
    assert {revision for _, revision in answers} == {migrating.head()}
    assert versions(engine) == [migrating.head()]
    assert description_of(engine) == fresh_schema


def test_a_schema_transaction_keeps_others_out(engine: Engine) -> None:
    """Law: while one process changes the schema, another one cannot begin to, and can as soon as it ends."""
    order: list[str] = []

    def second() -> None:
        own = create_engine(engine.url)
        with schema_transaction(own) as connection:
            order.append("second")
            connection.execute(text("CREATE TABLE two (n INTEGER)"))
        own.dispose()

    with ThreadPoolExecutor(1) as pool:
        with schema_transaction(engine) as connection:
            connection.execute(text("CREATE TABLE one (n INTEGER)"))
            waiting = pool.submit(second)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            order.append("first")
        waiting.result(timeout=30)
    assert order == ["first", "second"]
    assert {"one", "two"} <= set(inspect(engine).get_table_names())


def test_an_error_undoes_a_schema_transaction_and_frees_it(engine: Engine) -> None:
    """Law: a failed change lets the next one in, and has left nothing where the database can undo DDL."""
    with pytest.raises(DBAPIError), schema_transaction(engine) as connection:
        connection.execute(text("CREATE TABLE one (n INTEGER)"))
        connection.execute(text("SELECT nonsense FROM nowhere"))
    with schema_transaction(engine) as connection:
        left = inspect(connection).has_table("one")
    assert left == (engine.dialect.name == "mysql")


def test_an_upgrade_that_was_cut_short_is_finished(
    engine: Engine, fresh_schema: dict[str, list[str]]
) -> None:
    """Law: where DDL cannot be undone, the next upgrade makes what is missing and keeps what is there."""

    def cut(*call: Any) -> None:
        if "ix_stepwell_runs_hero" in call[2]:
            raise ConnectionAbortedError("the power went")

    event.listen(engine, "before_cursor_execute", cut)
    with pytest.raises(ConnectionAbortedError):
        migrating.upgrade(engine)
    event.remove(engine, "before_cursor_execute", cut)
    with pytest.raises(SchemaOutdated):
        migrating.check(engine)
    assert migrating.upgrade(engine) == [migrating.head()]
    assert description_of(engine) == fresh_schema


def test_printed_sql_makes_the_same_schema(engine: Engine, fresh_schema: dict[str, list[str]]) -> None:
    """Law: what ``stepwell db sql`` prints makes the schema and marks its revision, run by any other tool."""
    script = migrating.sql(engine.url.render_as_string(hide_password=False))
    run_script(engine, script)
    assert description_of(engine) == fresh_schema
    assert migrating.check(engine) == []
    assert migrating.upgrade(engine) == []


def run_script(engine: Engine, script: str) -> None:
    if engine.dialect.name == "sqlite":
        file = sqlite3.connect(str(engine.url.database))
        file.executescript(script)
        file.close()
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in filter(str.strip, script.split(";\n")):
            connection.exec_driver_sql(statement)


@pytest.mark.parametrize(
    "url", ["postgresql://", "postgresql+psycopg://", "mariadb://", "mysql+pymysql://h/d", "sqlite://"]
)
def test_sql_is_printed_without_a_database(url: str) -> None:
    """Law: a URL's dialect is enough: no server, no driver, no file."""
    printed = migrating.sql(url)
    assert printed.count("CREATE TABLE") == 4
    assert VERSIONS in printed


def test_there_is_no_sql_for_other_databases() -> None:
    """Law: a database that Stepwell does not run on is refused by name."""
    with pytest.raises(UnsupportedDatabase, match="mssql"):
        migrating.sql("mssql://host/database")


def test_missing_tables_are_said_with_the_remedy(engine: Engine) -> None:
    """Law: without tables, the error names the database (its password hidden) and the command to run."""
    with pytest.raises(
        SchemaOutdated, match="has no tables of Stepwell: run `stepwell db upgrade`"
    ) as caught:
        migrating.check(engine)
    assert str(engine.url.database) in str(caught.value)


def test_old_tables_are_said_with_the_remedy(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: tables of an older revision stop the work with both revisions and the command to run."""
    migrating.upgrade(engine)
    monkeypatch.setattr(migrating, "head", lambda: "0002")
    with pytest.raises(SchemaOutdated, match=r"revision 0001, .* needs 0002: run `stepwell db upgrade`"):
        migrating.check(engine)


def test_newer_tables_are_left_alone(engine: Engine) -> None:
    """Law: during a deploy the tables are newer than some processes: those say so, go on, change nothing."""
    migrating.upgrade(engine)
    assert migrating.check(engine) == []
    set_version(engine, "9999")
    (finding,) = migrating.check(engine)
    assert finding.code == "newer_schema"
    assert "9999" in finding.message
    assert "upgrade the stepwell package" in finding.message
    assert migrating.upgrade(engine) == []
    assert migrating.current(engine) == "9999"


def test_an_applications_own_alembic_is_not_disturbed(engine: Engine) -> None:
    """Law: the application's own version table stays as it was."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('0042')"))
    migrating.upgrade(engine)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "0042"
    assert migrating.current(engine) == migrating.head()


def test_an_engine_in_autocommit_mode_is_upgraded_in_one_piece(engine: Engine) -> None:
    """Law: an application's engine may commit each statement by itself; an upgrade never does."""
    loose = engine.execution_options(isolation_level="AUTOCOMMIT")

    def cut(*call: Any) -> None:
        if "ix_stepwell_runs_hero" in call[2]:
            raise ConnectionAbortedError("the power went")

    event.listen(engine, "before_cursor_execute", cut)
    with pytest.raises(ConnectionAbortedError):
        migrating.upgrade(loose)
    assert bool(inspect(engine).get_table_names()) == (engine.dialect.name == "mysql")


def test_the_revisions_are_those_that_alembic_would_run() -> None:
    """Law: what the files are called, and in which order, is what Alembic reads in them."""
    scripts = ScriptDirectory(migrations.__path__[0])
    in_order = [script.revision for script in scripts.walk_revisions()][::-1]
    assert list(migrating._revisions()) == in_order
    assert migrating.head() == scripts.get_current_head()


_LOOK = """
import sys
from stepwell import SchemaOutdated, Stepwell, Worker
well = Stepwell(sys.argv[1])
print("alembic" in sys.modules)
try:
    Worker(well).start()
except SchemaOutdated as error:
    print(error)
print("alembic" in sys.modules)
well.migrate()
print("alembic" in sys.modules, well.check())
"""


def test_alembic_is_imported_by_whoever_migrates(tmp_path: Path) -> None:
    """Law: neither an import of the library nor a worker's look at its tables takes Alembic's long import."""
    url = f"sqlite:///{tmp_path / 'app.db'}"
    finished = subprocess.run(
        [sys.executable, "-c", _LOOK, url], capture_output=True, text=True, check=True, timeout=60
    )
    remedy = "run `stepwell db upgrade`, or call migrate() on the engine."
    assert finished.stdout.splitlines() == [
        "False",
        f"{url} has no tables of Stepwell: {remedy}",
        "False",
        "True []",
    ]


_TALK = """
import logging
import sys
logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
from stepwell import Stepwell
well = Stepwell(sys.argv[1])
well.migrate()
well.migrate()
talker = logging.getLogger("alembic.runtime.migration")
print(logging.getLogger("alembic").level, talker.level, talker.filters)
talker.info("heard again")
"""


def test_migrating_adds_one_line_to_the_log_of_an_application(tmp_path: Path) -> None:
    """Law: Alembic's talk of its own set-up is kept back while we migrate, and its loggers are left as they were."""
    url = f"sqlite:///{tmp_path / 'app.db'}"
    finished = subprocess.run(
        [sys.executable, "-c", _TALK, url], capture_output=True, text=True, check=True, timeout=60
    )
    assert finished.stderr.splitlines() == [
        "stepwell.store.upgrading the tables were upgraded revision=0001 revisions=1",
        "alembic.runtime.migration heard again",
    ]
    assert finished.stdout.splitlines() == ["0 0 []"]
