"""A pipeline of slow services: each step has a claim of its own, and a screen is told how far it is."""

from __future__ import annotations

from typing import Any

from examples.outside import Service
from stepwell import Workflow, step

llm = Service()
screen = Service()


class Publication(Workflow):
    """Declared, since its steps are always the same. ``isolated`` lets others run between two slow steps."""

    @step(isolated=True)
    def extract(self) -> None:
        self.check("extract")
        self.context["metadata"] = {"pages": 3}

    @step(isolated=True)
    def translate(self) -> None:
        self.check("translate")
        self.context["metadata"]["language"] = "en"

    @step(isolated=True)
    def publish(self) -> None:
        self.check("publish")

    def check(self, what: str) -> None:
        """Shared by the steps: a level that is too high stops the run until a person resumes it."""
        llm(what, self.args["document"])
        level = "high" if llm.knows("suspicious", what) else "low"
        self.context["level"] = level
        if level == "high":
            self.pause("high")

    def after_step(self, step: str, outcome: Any) -> None:
        """Called when a body has succeeded; ``screen`` stands for whoever shows it."""
        screen(step, str(outcome))
