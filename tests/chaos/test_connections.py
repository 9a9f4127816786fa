"""A server that ends all connections of a worker while it works."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from tests.chaos.errands import Chain, Plain
from tests.chaos.fleet import until
from tests.chaos.scene import SERVERS, Scene

ROUNDS = 5
IDLE_POLL = 30.0
"""On PostgreSQL, where a worker is woken."""


def end_all_connections(scene: Scene) -> int:
    """End every connection to the database but the one that does it; answer how many there were."""
    scene.well.database.engine.dispose()
    engine = create_engine(scene.well.database.engine.url, isolation_level="AUTOCOMMIT")
    others, end = {
        "postgresql": (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
            "SELECT pg_terminate_backend({})",
        ),
        "mysql": (
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
            "KILL {}",
        ),
    }[engine.dialect.name]
    ended = 0
    with engine.connect() as connection:
        for number in connection.execute(text(others)).scalars().all():
            try:
                connection.execute(text(end.format(number)))
                ended += 1
            except DBAPIError:
                # It has ended by itself.
                continue
    engine.dispose()
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("product", SERVERS, indirect=True)
def test_a_worker_survives_the_loss_of_all_its_connections(scene: Scene) -> None:
    """Connections that the server ends, again and again, cost nothing but time: each step is committed once and no
    run fails; the worker is woken as before, and stops in good order.
    """
    runs = scene.start_many(Chain, 60)
    is_woken = scene.well.database.dialect.notifies
    worker = scene.worker(threads=8, lease=4, poll=IDLE_POLL if is_woken else 1)
    for number in range(ROUNDS):
        until("the work goes on", lambda number=number: len(scene.entries()) > 20 * number)
        until("it has connections", lambda: end_all_connections(scene))
    scene.wait_until_completed(runs, within=40)
    assert scene.ledger() == Counter((run.args["account"], step) for run in runs for step in ("two", "four"))
    assert {tuple(scene.done(run)) for run in runs} == {("one", "two", "three", "four", "five")}

    until("it has connections", lambda: end_all_connections(scene))
    late = scene.start(Plain)
    scene.wait_until_body(late.args["account"], "work", within=IDLE_POLL / 3)
    scene.wait_until_completed([late])
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0
