"""A worker process: ``python -m tests.chaos.program '{"url": …}'``. Logs go to its standard error, as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import timedelta
from typing import Any

from stepwell import Stepwell, Worker
from stepwell.execution.primitives import calls
from tests.chaos import errands, faults

__all__ = ["main"]


class _JSONLines(logging.Formatter):
    """A record as one line, with the facts that tests look for."""

    def format(self, record: logging.LogRecord) -> str:
        facts = {name: getattr(record, name, None) for name in ("action", "run_id", "error", "seconds")}
        if record.exc_info:
            facts["trace"] = self.formatException(record.exc_info)
        facts |= {"at": record.created, "level": record.levelname, "message": record.getMessage()}
        return json.dumps(facts, default=str)


def main(options: dict[str, Any]) -> None:
    """Work until a signal ends it."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JSONLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    lease = timedelta(seconds=options["lease"])
    well = Stepwell(
        options["url"],
        lease=lease,
        session_idle_limit=2 * lease,
        max_recoveries=options["max_recoveries"],
        default=False,
    )
    # In life it is half a minute until a run looks at a child whose end nobody has told; here all waits are short.
    calls._FIRST_LOOK = 2 * lease  # type: ignore[misc]  # a constant
    fault = options["fault"]
    if fault is not None:
        faults.install(fault, well.database._gate if fault["signal"] == "SIGSTOP" else None)
    worker = Worker(
        well,
        options["queues"],
        threads=options["threads"],
        name=options["name"],
        grace=timedelta(seconds=options["grace"]),
        poll=timedelta(seconds=options["poll"]),
    )
    worker.run()
    well.close()


if __name__ == "__main__":
    assert errands.Errand.workflow_name == "Errand"
    main(json.loads(sys.argv[1]))
