"""A worker process that can be killed while it goes through items: ``python -m …walker URL``."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

from sqlalchemy import select

from stepwell import Stepwell, Worker, Workflow, resumable_step
from tests.integration.second_stage.warehouse import Item, Line

__all__ = ["LEASE", "Killed"]

LEASE = timedelta(seconds=1)


class Killed(Workflow):
    """Writes a line for each item, in no hurry."""

    workflow_name = "walker.Killed"
    max_recoveries = 100

    @resumable_step(checkpoint_every=3)
    def walk(self) -> None:
        for item in self.cursor.iterate(select(Item), page=20):
            self.session.add(Line(text=f"item {item.id}"))
            self.context["count"] = self.context.get("count", 0) + 1
            self.progress(item.id, self.args["count"])
            time.sleep(0.004)


if __name__ == "__main__":
    Worker(Stepwell(sys.argv[1], lease=LEASE), threads=1).run()
