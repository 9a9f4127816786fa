"""Worker processes that are killed while runs call each other and start over."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from stepwell.states import RunState
from tests.chaos.errands import Chain, Family
from tests.chaos.faults import Fault
from tests.chaos.scene import Scene

# At which passage of the point. The children's last steps, their ends, the parks of the callers, and the seams between
# a run and its successor are among them.
KILLS = (
    ("step.guarded", 1),
    ("step.committed", 1),
    ("step.guarded", 4),
    ("step.committed", 4),
    ("settle.before", 1),
    ("settle.after", 1),
    ("settle.after", 2),
    ("settle.before", 3),
    ("settle.after", 3),
)


@pytest.mark.slow
def test_a_family_comes_to_its_end_wherever_its_worker_was_killed(scene: Scene) -> None:
    """No child is started twice, none is left out, and no end is missed: what nobody could tell is found out."""
    queues = [f"{point}.{nth}" for point, nth in KILLS]
    runs = [scene.start(Family, queue=queue, of=queue) for queue in queues]
    victims = [
        scene.worker(queues=[queue], threads=1, fault=Fault(point, "SIGKILL", nth), name=queue)
        for queue, (point, nth) in zip(queues, KILLS, strict=True)
    ]
    for victim in victims:
        victim.wait_until_killed(within=60)
    scene.worker(queues=queues, threads=8, name="heir")
    results = [run.result(timedelta(seconds=90)) for run in runs]

    assert results == [2] * len(KILLS)
    children = [f"account-{number}.{turn}" for number in range(1, len(KILLS) + 1) for turn in range(3)]
    assert scene.ledger() == Counter((child, name) for child in children for name in ("two", "four"))
    assert scene.well.runs(Chain).in_state(RunState.COMPLETED).count() == len(children)
    assert scene.well.runs(Chain).count() == len(children)
    assert scene.well.runs(Family).count() == len(children)
