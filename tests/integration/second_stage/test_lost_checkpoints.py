"""Checkpoints whose commit was not answered: each item is written once all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stepwell import ManualClock, Stepwell, Workflow, resumable_step
from stepwell.definition.starting import set_default_engine
from tests.integration.second_stage.warehouse import Line, Warehouse
from tests.integration.store.cable import Cable, Cut
from tests.integration.store.test_lost_answers import is_commit, let_through_soon
from tests.support.driving import Driver


class Walk(Workflow):
    """Writes three lines, and can be told what to do before the second commit."""

    workflow_name = "lost.Walk"

    @resumable_step
    def walk(self) -> None:
        for item in self.cursor.iterate(range(3)):
            self.session.add(Line(text=f"item {item}"))
            scene.before_commit(item)


class Still(Workflow):
    """Commits without moving."""

    workflow_name = "lost.Still"

    @resumable_step
    def stay(self) -> None:
        with self.session.no_autoflush:
            known = self.session.query(Line).count()
        for item in range(known, 3):
            self.session.add(Line(text=f"item {item}"))
            scene.before_commit(item)
            self.cursor.checkpoint()


class Scene:
    """Which commit is cut off, and how."""

    cable: Cable
    how: Cut
    item = 1

    def before_commit(self, item: int) -> None:
        if item == self.item and not self.cable.cuts:
            self.cable.cut(self.how, is_commit)


scene = Scene()


@pytest.fixture
def cable(server_house: Warehouse) -> Iterator[Cable]:
    cable = scene.cable = Cable(server_house.url)
    yield cable
    cable.close()


@pytest.fixture
def well(cable: Cable) -> Iterator[Stepwell]:
    well = Stepwell(cable.url, clock=ManualClock())
    yield well
    well.close()
    set_default_engine(None)


@pytest.mark.parametrize("how", list(Cut))
@pytest.mark.parametrize("workflow", [Walk, Still])
def test_each_item_is_there_once(
    cable: Cable,
    server_house: Warehouse,
    driver: Driver,
    workflow: type[Workflow],
    how: Cut,
) -> None:
    """Committed or not, late or never, whether the cursor has moved or not: nothing is lost and nothing doubled."""
    scene.how = how
    run = workflow.start()
    if how is Cut.LATE:
        with let_through_soon(cable):
            driver.drain()
    else:
        driver.drain()

    assert cable.cuts == 1
    assert run.state == "completed", run.explain()
    assert server_house.lines() == ["item 0", "item 1", "item 2"]
    assert [step.outcome for step in run.steps] == ["success"]
