"""``python -m bench``: measures, prints, and exits with 1 if a measurement did not come about."""

from __future__ import annotations

import json
import sys
import time
from importlib.util import find_spec
from typing import Any

from rich.console import Console

from bench.databases import Databases
from bench.figures import Figures
from bench.options import SCENARIOS, Options, read_options
from bench.report import as_json, print_report
from bench.scenarios import run_scenario

_NEEDED = {"dbos": ("dbos",), "absurd": ("absurd_sdk", "absurdctl")}


def main() -> int:
    options = read_options()
    console = Console()
    errors = Console(stderr=True)
    if missing := _missing(options):
        errors.print(f"Not installed: {', '.join(missing)}. Run: pip install -r bench/requirements-peers.txt")
        return 2
    figures = Figures()
    described: dict[str, Any] = {}
    began_at = time.perf_counter()
    try:
        _measure(options, figures, described, errors)
    finally:
        # What was measured before an interruption is worth seeing.
        print_report(console, figures, options)
        if options.json is not None:
            text = json.dumps(as_json(figures, options, described), indent=2, ensure_ascii=False)
            options.json.write_text(text + "\n", encoding="utf-8")
    console.print(f"Measured for {time.perf_counter() - began_at:.0f} s.", highlight=False)
    return 1 if figures.failures else 0


def _measure(options: Options, figures: Figures, described: dict[str, Any], errors: Console) -> None:
    for kind in options.databases:
        databases = Databases(kind, options.server)
        described[kind] = databases.describe()
        for scenario in options.scenarios:
            errors.print(f"({scenario}) {SCENARIOS[scenario]} · {kind} …", style="dim", highlight=False)
            run_scenario(scenario, databases, options, figures)


def _missing(options: Options) -> list[str]:
    names = (name for system in options.systems for name in _NEEDED.get(system, ()))
    return [name for name in names if find_spec(name) is None]


if __name__ == "__main__":
    sys.exit(main())
