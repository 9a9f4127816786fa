"""The figures as tables for people and as JSON for programs."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figures import Figure, Figures, Key, ratio
from bench.options import SCENARIOS, Options
from bench.scenarios import LOOPS
from bench.targets import Verdict, judge

__all__ = ["as_json", "print_report"]

_PACKAGES = ("stepwell", "SQLAlchemy", "psycopg", "dbos", "absurd-sdk")


def print_report(console: Console, figures: Figures, options: Options) -> None:
    """Print what was measured, the ratios, and what was demanded."""
    for scenario in options.scenarios:
        for database in options.databases:
            _print_scenario(console, figures, options, scenario, database)
    _print_verdicts(console, list(judge(figures)), options)
    for key, message in figures.failures:
        console.print(f"FAILED  ({key.scenario}) {key.database}, {key.system}, {key.label}", style="bold red")
        console.print(message, markup=False, highlight=False, soft_wrap=True)


def _print_scenario(
    console: Console, figures: Figures, options: Options, scenario: str, database: str
) -> None:
    rows = [(key, figure) for key, figure in figures if (key.scenario, key.database) == (scenario, database)]
    if not rows:
        return
    known = (*options.systems, *LOOPS[1:])
    systems = [system for system in known if any(key.system == system for key, _ in rows)]
    peers = systems[1:] if systems[0] == "stepwell" else []
    units = {figure.unit for _, figure in rows}
    title = f"({scenario}) {SCENARIOS[scenario]} · {database}"
    console.print(title, style="bold", highlight=False, soft_wrap=True)
    table = Table(" · ".join(units) if len(units) == 1 else "")
    for name in (*systems, *(f"stepwell\n/ {peer}" for peer in peers)):
        table.add_column(name, justify="right")
    for label in dict.fromkeys(key.label for key, _ in rows):
        found = {key.system: figure for key, figure in rows if key.label == label}
        name = label if len(units) == 1 else f"{label} · {next(iter(found.values())).unit}"
        table.add_row(
            name,
            *(_cell(found.get(system)) for system in systems),
            *(_ratio(found.get("stepwell"), found.get(peer)) for peer in peers),
        )
    console.print(table)
    for line in _modes(rows):
        console.print(line, style="dim", highlight=False, soft_wrap=True)
    console.print()


def _cell(figure: Figure | None) -> str:
    return "–" if figure is None else _number(figure.median)


def _ratio(own: Figure | None, other: Figure | None) -> str:
    return "–" if own is None or other is None else f"{_number(ratio(own, other))} ×"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _modes(rows: Iterable[tuple[Key, Figure]]) -> Iterable[str]:
    """All modes that were measured, so that nobody has to believe that the table has the best one."""
    for key, figure in rows:
        if len(figure.by_mode) > 1:
            found = (f"{mode} {_number(median(values))}" for mode, values in figure.by_mode.items())
            yield f"  {key.system}, {key.label}: {', '.join(found)}"


def _print_verdicts(console: Console, verdicts: list[Verdict], options: Options) -> None:
    if not verdicts:
        return
    doubt = " · too quick to be judged" if options.is_quick else ""
    console.print(f"What Stepwell must reach{doubt}", style="bold", highlight=False)
    table = Table()
    for column in ("", "database", "figure", "wanted", "found", ""):
        table.add_column(column, justify="right" if column in ("wanted", "found") else "left")
    for verdict in verdicts:
        target = verdict.target
        unit = " ×" if target.against or target.over else ""
        divisor = target.against or target.over
        table.add_row(
            f"({target.scenario})",
            target.database,
            target.label + (f" / {divisor}" if divisor else ""),
            ("≤ " if target.is_limit else "≥ ") + f"{target.wanted:,g}{unit}",
            _number(verdict.found) + unit,
            "ok" if verdict.is_met else "[bold red]missed[/]",
        )
    console.print(table)


def as_json(figures: Figures, options: Options, databases: dict[str, Any]) -> dict[str, Any]:
    """Everything, each single measurement included."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "databases": databases,
        "quick": options.is_quick,
        "rounds": options.rounds,
        "figures": [
            {
                "scenario": key.scenario,
                "database": key.database,
                "figure": key.label,
                "system": key.system,
                "unit": figure.unit,
                "median": figure.median,
                "values": figure.values,
                "mode": figure.mode,
                "by_mode": figure.by_mode,
            }
            for key, figure in figures
        ],
        "targets": [
            {
                "scenario": verdict.target.scenario,
                "database": verdict.target.database,
                "figure": verdict.target.label,
                "divided_by": verdict.target.against or verdict.target.over,
                "wanted": verdict.target.wanted,
                "is_limit": verdict.target.is_limit,
                "found": verdict.found,
                "is_met": verdict.is_met,
            }
            for verdict in judge(figures)
        ],
        "failures": [
            {
                "scenario": key.scenario,
                "database": key.database,
                "figure": key.label,
                "system": key.system,
                "message": message,
            }
            for key, message in figures.failures
        ],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
