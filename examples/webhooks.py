"""What a webhook delivers may come twice: the identity lies inside the payload, and a function finds it."""

from __future__ import annotations

from typing import Any

from examples.outside import Service
from stepwell import Workflow, step

ledger = Service()


def charge_id(payload: dict[str, Any]) -> str:
    charge: str = payload["data"]["object"]["id"]
    return charge


class ChargeImport(Workflow):
    """``same_args`` of a start says whether a second delivery must be equal to the first one."""

    unique_by = charge_id
    on_conflict = "skip"

    @step
    def import_charge(self) -> None:
        """One that comes when the run is over starts anew: a check of your own is still needed."""
        charge = charge_id(self.args["payload"])
        if not ledger.knows("imported", charge):
            ledger("import", charge)
            ledger.learn("imported", charge)


class OnlyEver(ChargeImport):
    """With ``unique_for="ever"`` a charge is imported once in the life of the database."""

    unique_for = "ever"
