"""Transactions of the library's own: their isolation, their limits, and what is done again by itself."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, NullPool, create_engine, select, text, update
from sqlalchemy.exc import DBAPIError, OperationalError

from stepwell.clock import SystemClock
from stepwell.store.database import open_database
from stepwell.store.dialects import DatabaseOptions
from stepwell.store.schema import runs
from tests.databases import PostgreSQL
from tests.integration.store.rig import NOON, Held, Rig, at_once, done, start_together, wait_until


def lock(connection: Connection, held: Held) -> None:
    connection.execute(update(runs).where(runs.c.id == held.id).values(details="{}"))


# -- what is done again -----------------------------------------------------------------------------------


def test_a_deadlock_is_undone_and_done_again(server_rig: Rig) -> None:
    """Two transactions of our own that wait for each other both succeed: nobody has to know."""
    rig = server_rig
    first, second = rig.hold_many(2)
    met, attempts = threading.Barrier(2), []

    def both(order: tuple[Held, Held]) -> None:
        def work(connection: Connection) -> None:
            attempts.append(order)
            lock(connection, order[0])
            if len(attempts) <= 2:
                met.wait(timeout=10)
            lock(connection, order[1])

        rig.database.retrying(work)

    orders = [(first, second), (second, first)]
    at_once(2, lambda number: both(orders[number]))
    assert len(attempts) == 3


def test_a_deadlock_in_a_callers_transaction_is_the_callers(server_rig: Rig) -> None:
    """Of a transaction that somebody else began, only part would be done again: it is not tried."""
    rig = server_rig
    first, second = rig.hold_many(2)
    met = threading.Barrier(2)

    def work(order: tuple[Held, Held]) -> None:
        with rig.database.begin() as connection:
            lock(connection, order[0])
            met.wait(timeout=10)
            lock(connection, order[1])

    orders = [(first, second), (second, first)]
    answers = start_together([lambda order=order: work(order) for order in orders])  # type: ignore[misc]
    (error,) = [answer for answer in answers if answer is not None]
    assert isinstance(error, OperationalError)
    assert rig.dialect.is_retryable(error)


def test_an_error_of_the_work_itself_is_not_repeated(rig: Rig) -> None:
    """What is wrong stays wrong: only what the database undid for its own reasons is tried again."""
    attempts = []

    def work(connection: Connection) -> None:
        attempts.append(1)
        connection.execute(text("SELECT * FROM no_such_table"))

    with pytest.raises(DBAPIError):
        rig.database.retrying(work)
    with pytest.raises(ZeroDivisionError):
        rig.database.retrying(lambda _: attempts.append(1) or 1 / 0)  # type: ignore[func-returns-value]
    assert len(attempts) == 2


def test_waiting_for_a_row_has_a_limit(server_rig: Rig) -> None:
    """A statement of ours that waits for somebody's row gives up, and is tried again from the beginning."""
    rig = Rig(server_rig.url, options=DatabaseOptions(lock_limit=0.2))
    held, attempts = rig.hold(), []
    holds, tried_twice = threading.Event(), threading.Event()

    def work(connection: Connection) -> None:
        attempts.append(1)
        if len(attempts) == 2:
            tried_twice.set()
        lock(connection, held)

    def hold() -> None:
        with server_rig.database.begin() as connection:
            lock(connection, held)
            holds.set()
            assert tried_twice.wait(timeout=10)

    holder = threading.Thread(target=hold)
    holder.start()
    holds.wait()
    rig.database.retrying(work)
    holder.join()
    rig.close()
    assert len(attempts) == 2


def test_a_locked_run_holds_up_no_other(postgresql_url: str) -> None:
    """A run whose row somebody has locked must not stall the commits that other runs would share with it."""
    rig = Rig(postgresql_url)
    blocked, free = rig.hold_many(2)
    rig.write(free, done(1))
    with rig.database.begin() as connection:
        lock(connection, blocked)
        waiting = threading.Thread(target=lambda: rig.write(blocked, done(1)))
        waiting.start()
        wait_until(lambda: rig.database._group._leader_at_work)
        began_at = time.monotonic()
        accepted = [rig.write(free, done(position)).accepted for position in range(2, 12)]
        assert accepted == [True] * 10
        assert waiting.is_alive()
        assert time.monotonic() - began_at < 3
    waiting.join()
    assert len(rig.journal(blocked.id)) == 1
    rig.close()


# -- settings ---------------------------------------------------------------------------------------------


def ask(url: str, *questions: str, engine: object = None) -> list[list[str]]:
    """What a database of ours answers in a write transaction, a read, and a step's transaction."""
    database = open_database(url if engine is None else engine, DatabaseOptions(), SystemClock())  # type: ignore[arg-type]

    def answers(connection: Connection) -> list[str]:
        return [str(connection.exec_driver_sql(question).scalar()) for question in questions]

    with database.begin() as connection:
        found = [answers(connection)]
    with database.read() as connection:
        found.append(answers(connection))
    with database.step() as connection, connection.begin():
        found.append(answers(connection))
    database.close()
    return found


def test_postgresql_limits_what_we_open(postgresql_url: str) -> None:
    """Every transaction is READ COMMITTED, whatever the database's default; waits have limits."""
    admin = create_engine(postgresql_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        name = connection.engine.url.database
        connection.exec_driver_sql(
            f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"
        )
    expected = {
        "transaction_isolation": "read committed",
        "lock_timeout": "5s",
        "idle_in_transaction_session_timeout": "1min",
        "tcp_user_timeout": "30000",
        "tcp_keepalives_idle": "10",
    }
    answers = ask(postgresql_url, *(f"SHOW {setting}" for setting in expected))
    assert answers == [list(expected.values())] * 3


def test_mariadb_limits_what_we_open(mariadb_url: str) -> None:
    """The same on MariaDB, whose default is REPEATABLE READ."""
    settings = ("tx_isolation", "innodb_lock_wait_timeout", "idle_transaction_timeout")
    answers = ask(mariadb_url, *(f"SELECT @@{setting}" for setting in settings))
    assert answers == [["READ-COMMITTED", "5", "60"]] * 3


def socket_of(connection: Connection) -> socket.socket:
    found = connection.connection.driver_connection._sock  # type: ignore[union-attr]  # PyMySQL's
    assert isinstance(found, socket.socket)
    return found


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such options")
def test_mariadb_that_dies_without_a_word_is_noticed_within_a_lease(mariadb_url: str) -> None:
    """The system asks a silent server for a sign of life, and gives an unanswered message up after a lease."""
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
    database = open_database(mariadb_url, DatabaseOptions(lease_seconds=12), SystemClock())
    for urgent in (False, True):
        with database.begin(urgent=urgent) as connection:
            link = socket_of(connection)
            assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            found = [link.getsockopt(socket.IPPROTO_TCP, option) for option in options]
        assert found == [4, 1, 3, 12_000]
    database.close()


def test_a_long_statement_of_a_steps_own_is_waited_for(server_rig: Rig) -> None:
    """A server that has nothing to say for longer than a lease is alive: its answer is not given up."""
    rig = Rig(server_rig.url, options=DatabaseOptions(lease_seconds=1))
    sleep = "SELECT pg_sleep(3), 7" if rig.dialect.groups_commits else "SELECT SLEEP(3), 7"
    with rig.database.step() as connection, connection.begin():
        rig.dialect.begin_step(connection)
        assert connection.exec_driver_sql(sleep).one()[1] == 7
    rig.close()


def test_sqlite_is_durable_and_patient(sqlite_url: str) -> None:
    """An acknowledged commit survives a power failure, readers do not block, and locks are waited for."""
    settings = ("journal_mode", "synchronous", "busy_timeout")
    answers = ask(sqlite_url, *(f"PRAGMA {setting}" for setting in settings))
    assert answers == [["wal", "2", "30000"]] * 3


def test_sqlite_takes_the_write_lock_at_once(sqlite_url: str) -> None:
    """A write transaction has the lock from its beginning; one that reads first could not get it any more."""
    rig = Rig(sqlite_url)
    other = create_engine(sqlite_url, connect_args={"timeout": 0}, poolclass=NullPool)
    with rig.database.begin():
        with other.connect() as connection, pytest.raises(OperationalError, match="locked"):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
    with rig.database.read() as connection:
        connection.execute(select(runs.c.id)).all()
        with other.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
    rig.close()


def limit_of(rig: Rig) -> Callable[[Connection], str]:
    question = "SHOW lock_timeout" if rig.dialect.groups_commits else "SELECT @@innodb_lock_wait_timeout"
    return lambda connection: str(connection.exec_driver_sql(question).scalar())


def test_a_steps_own_statements_may_wait(server_rig: Rig) -> None:
    """The limit is for statements of ours: the author's may wait for a row as long as they like."""
    limit = limit_of(server_rig)
    with server_rig.database.step() as connection, connection.begin():
        ours = limit(connection)
        server_rig.dialect.begin_step(connection)
        assert limit(connection) in ("0", "31536000")
        server_rig.dialect.end_step(connection)
        assert limit(connection) == ours
    assert ours in ("5s", "5")


@pytest.mark.servers
def test_an_applications_engine_keeps_its_own_settings(postgresql: PostgreSQL) -> None:
    """Beside an application's engine we open connections of our own, made its way; its limits stay."""
    with postgresql.database() as url:
        theirs = create_engine(url, connect_args={"application_name": "theirs"})
        assert ask(url, "SHOW lock_timeout", "SHOW application_name", engine=theirs) == [["5s", "theirs"]] * 3
        with theirs.connect() as connection:
            assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "0"
        theirs.dispose()


def test_time_is_the_databases(server_rig: Rig) -> None:
    """The clock is set to the server's, and a manual one is left alone."""
    clock = SystemClock()
    clock.anchor(0.0, clock.monotonic())
    database = open_database(server_rig.url, DatabaseOptions(), clock)
    jump = database.measure_time()
    assert jump > 1_000_000_000
    assert abs(database.measure_time()) < 1
    with database.read() as connection:
        assert abs(clock.now().timestamp() - database.dialect.epoch_seconds(connection)) < 1
    database.close()
    assert server_rig.database.measure_time() == 0.0
    assert server_rig.now == NOON
