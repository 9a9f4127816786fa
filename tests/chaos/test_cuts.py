"""A connection that is cut when nobody can know whether the server got the message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from stepwell import Run
from stepwell.states import Kind
from tests.chaos.errands import Errand, Plain
from tests.chaos.proxy import Proxy
from tests.chaos.scene import SERVERS, Scene

# Whether the server gets the message, and whether its answer is waited for (and thrown away).
HOW = {"answered": (True, True), "on-its-way": (True, False), "never-sent": (False, False)}

# Where the message stands: what is sent before it on the same connection, and what is in it. On PostgreSQL an
# entry and a claim are one statement, which is its own transaction.
POSTGRESQL = {
    "claim": (b"lease_owner=",),
    "step": (b"INTO ledger", b"COMMIT"),
    "entry": (b'"name": "work"',),
    "settlement": (b'"settles": true',),
}
MARIADB = {
    "claim": (b"lease_owner=", b"COMMIT"),
    "step": (b"INTO ledger", b"COMMIT"),
    "entry": (b"INTO stepwell_step_executions", b"COMMIT"),
    "settlement": (b"active_key = CASE", b"COMMIT"),
}


@pytest.fixture
def proxies(scene: Scene) -> Iterator[dict[str, Proxy]]:
    with ExitStack() as stack:
        yield {how: stack.enter_context(Proxy(scene.url)) for how in HOW}


@pytest.mark.slow
@pytest.mark.parametrize("product", SERVERS, indirect=True)
def test_a_cut_at_a_commit_doubles_nothing_and_loses_nothing(scene: Scene, proxies: dict[str, Proxy]) -> None:
    """Whether the server got the COMMIT or not, the worker finds out and goes on: each step is committed once, a
    body whose commit is found does not run again, and no run waits for its lease to run out.
    """
    places = POSTGRESQL if scene.well.database.dialect.name == "postgresql" else MARIADB
    for how, proxy in proxies.items():
        scene.worker(proxy.url, queues=[how], lease=4, name=how).wait_until_started()
    runs: dict[tuple[str, str], Run] = {}
    for place, patterns in places.items():
        cuts = []
        for how, (forwards, waits) in HOW.items():
            cuts.append(proxies[how].cut(*patterns, forwards=forwards, waits=waits))
            workflow = Errand if place == "step" else Plain
            runs[place, how] = scene.start(workflow, queue=how)
        for how, cut in zip(HOW, cuts, strict=True):
            assert cut.done.wait(timeout=20), (place, how)
        scene.wait_until_completed(runs.values(), within=20)

    bodies = scene.bodies()
    for (place, how), run in runs.items():
        account = run.args["account"]
        written = [entry.step for entry in scene.entries() if entry.account == account]
        assert written == (["collect", "pay", "deliver"] if place == "step" else []), (place, how)
        if how == "answered" or (how == "never-sent" and place in ("claim", "settlement")):
            assert {count for (name, _), count in bodies.items() if name == account} == {1}, (place, how)
        if how != "on-its-way" or place == "claim":
            assert not [row for row in run.steps if row.kind == Kind.RECOVERY], (place, how)
    assert bodies[runs["step", "never-sent"].args["account"], "collect"] == 2
