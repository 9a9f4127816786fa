"""The process in which one system is measured: reads a request a line, answers a line.

``python -m bench.child SYSTEM URL``; each request is ``{"measure": name, "arguments": {...}}``.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from typing import Any, TextIO

from bench.measures import MEASURES
from bench.systems.base import System

__all__ = ["SYSTEMS", "main"]

SYSTEMS = {
    "stepwell": "bench.systems.stepwell:StepwellSystem",
    "dbos": "bench.systems.dbos:Dbos",
    "absurd": "bench.systems.absurd:Absurd",
    "bare": "bench.systems.bare:Bare",
    "stepwell loop": "bench.systems.stepwell:StepwellLoop",
    "plain loop": "bench.systems.loops:PlainLoop",
}


def main(name: str, url: str) -> None:
    answers = _claim_stdout()
    module, _, attribute = SYSTEMS[name].partition(":")
    system: System = getattr(import_module(module), attribute)(url)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": _obey(system, request["measure"], request["arguments"])}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    system.close()
    sys.stderr.flush()
    # Whatever threads a library has left running must not keep the process.
    os._exit(0)


def _claim_stdout() -> TextIO:
    """What libraries print goes to stderr, so that only answers go to the parent."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _obey(system: System, measure: str, arguments: dict[str, Any]) -> Any:
    if measure == "create":
        system.create()
        return {}
    return MEASURES[measure](system, **arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
