"""An import that its owner confirms within ten minutes, or else it is thrown away."""

from __future__ import annotations

from datetime import timedelta

from examples.outside import Service
from stepwell import Workflow, step

data = Service()


class BulkImport(Workflow):
    unique_by = "import_id"

    def run(self, import_id: str) -> str:
        self.parse()
        confirmed = self.wait_for_signal("confirmation", timeout=timedelta(minutes=10), default=False)
        if not confirmed:
            return self.destroy()
        return self.apply()

    @step
    def parse(self) -> None:
        data("parse", self.args["import_id"])

    @step
    def destroy(self) -> str:
        data("destroy", self.args["import_id"])
        return "destroyed"

    @step
    def apply(self) -> str:
        data("apply", self.args["import_id"])
        return "applied"
