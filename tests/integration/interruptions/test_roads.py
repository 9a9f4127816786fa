"""Wherever workers die and whatever people ask, a run on a real database reaches the end that it would have reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from stepwell.states import Outcome
from tests.integration.interruptions.roads import COMMANDS, ROADS, Fate, Journey, Leg
from tests.integration.interruptions.stage import CRASHES, Stage, stage_on

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def stage(common_engine: Engine) -> Iterator[Stage]:
    """On each product in turn."""
    with stage_on(common_engine) as stage:
        yield stage


@settings(max_examples=3)
@given(road=ROADS, crashes=CRASHES, commands=COMMANDS, rewinds=st.booleans())
def test_crashes_change_no_end(
    stage: Stage, road: tuple[Leg, ...], crashes: Any, commands: Any, rewinds: bool
) -> None:
    """Before and after any write, and behind any command: the same steps with the same outcomes, the same context and
    committed writes, and no row that stays open.
    """
    stage.clear()
    undisturbed = Journey(stage, road, Fate(commands=commands, rewinds=rewinds)).go()
    lost = Journey(stage, road, Fate(crashes, commands, rewinds)).go()
    event(f"{lost.died} crashes, {undisturbed.run.state}")

    assert lost.end == undisturbed.end
    assert lost.end["open rows"] == []
    assert sum(row.outcome == Outcome.LOST for row in lost.run.steps) == lost.losses


ROAD = (
    Leg("leg0", ("error", "ok", "ok"), "time", False, 1, None, False, None, False, False, HOUR),
    Leg("leg1", ("pause", "ok", "ok"), "signal or default", True, 1, 2, False, "heavy", False, True, HOUR),
)


def test_a_crash_at_every_single_place(stage: Stage) -> None:
    """Not only where chance puts it: before and after each durable write of a run, one after the other."""
    stage.clear()
    fate = Fate(commands=((1, True, "pause"), (1, True, "reschedule"), (2, False, "signal")))
    undisturbed = Journey(stage, ROAD, fate).go()
    writes = undisturbed.boundaries["with"]
    assert writes > 10
    for place in range(writes):
        for moment in ("before", "after"):
            lost = Journey(stage, ROAD, replace(fate, crashes=frozenset({(place, moment)}))).go()
            assert lost.died == 1
            assert lost.end == undisturbed.end
