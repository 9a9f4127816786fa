"""The context: a run's small memory, which is committed with each step and replayed with it."""

from __future__ import annotations

from typing import Any

from stepwell import Workflow, step


class Totals(Workflow):
    def run(self, user: str) -> dict[str, Any]:
        self.context["user"] = user
        self.context["totals"] = {"paid": 0, "pending": 2}
        self.count()
        self.count()
        return dict(self.context)

    @step
    def count(self) -> None:
        totals = self.context["totals"]
        totals["paid"] += 1  # a change deep inside is found, and committed with the step
        totals["pending"] -= 1
        self.context.setdefault("first_paid_by", self.context["user"])  # set once
        self.context["state"] = self.context.get("state", "empty") + "+"
        if "user" in self.context and totals["pending"] == 0:
            del self.context["user"]
