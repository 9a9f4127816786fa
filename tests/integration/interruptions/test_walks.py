"""Wherever workers die and whatever people ask, a long step on a real database writes each of its items once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from sqlalchemy import Engine

from stepwell.states import TERMINAL, RunState
from tests.integration.interruptions.stage import CRASHES, Stage, stage_on
from tests.integration.interruptions.walks import EVENTS, WALKS, Trip, Walk


@pytest.fixture(scope="module")
def stage(common_engine: Engine) -> Iterator[Stage]:
    """On each product in turn."""
    with stage_on(common_engine) as stage:
        yield stage


@settings(max_examples=20)
@given(walk=WALKS, crashes=CRASHES, events=EVENTS)
def test_each_item_is_written_once(stage: Stage, walk: Walk, crashes: Any, events: Any) -> None:
    """In its order, none twice and none missing, and the context agrees; a skip or a cancel leaves out the rest."""
    stage.clear()
    trip = Trip(stage, walk, crashes, events).go()
    run, lines = trip.run, stage.lines(trip.run)
    wanted = [f"item {item}" for item in walk.items]

    assert run.state in TERMINAL
    assert lines == wanted[: len(lines)]
    assert run.context.get("count", 0) == len(lines)
    assert not [step.name for step in run.steps if step.finished_at is None]
    if not trip.given & {"skip", "cancel"}:
        assert (run.state, lines) == (RunState.COMPLETED, wanted)
