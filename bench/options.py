"""What is asked of one run of the benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.databases import default_server

__all__ = ["SCENARIOS", "Options", "read_options"]

SCENARIOS = {
    "a": "steps per second: runs of ten steps that do nothing",
    "b": "starts per second, one by one and in bulk",
    "c": "idle latency, from start() to the first line of a step",
    "d": "runs parked until one instant: from it until all have finished, and the worker's memory",
    "e": "steps per second with finished runs in the tables",
    "f": "rows per second of a resumable step, against the same loop in plain SQLAlchemy",
}
DATABASES = ("sqlite", "postgresql")
PEERS = ("dbos", "absurd", "bare")


@dataclass(frozen=True, slots=True)
class Options:
    """One run of the benchmark.

    Args:
        scenarios: Letters of ``SCENARIOS``.
        databases: Kinds of database.
        systems: Which systems, Stepwell first.
        server: The PostgreSQL server, by the URL of a user who may create databases.
        rounds: How often each figure is measured; its median counts.
        seconds: How long one measurement of a rate takes, about.
        runs: So many runs for each measurement of (a) and (e) instead, the same for each system.
        samples: How many starts the latency is measured with.
        sleepers: How many parked runs.
        finished: How many finished runs in the tables.
        items: How many rows the loop of (f) goes through.
        is_quick: Figures of a glance: too short to be judged.
        json: Where to write them.
    """

    scenarios: tuple[str, ...]
    databases: tuple[str, ...]
    systems: tuple[str, ...]
    server: str
    rounds: int
    seconds: float
    runs: int | None
    samples: int
    sleepers: int
    finished: int
    items: int
    is_quick: bool
    json: Path | None


def read_options(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line; exits with a message where it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="bin/bench",
        description="Measures Stepwell: "
        + "; ".join(f"({letter}) {text}" for letter, text in SCENARIOS.items())
        + ".",
    )
    parser.add_argument(
        "--only",
        type=_list_of(SCENARIOS),
        default=tuple(SCENARIOS),
        metavar="a,b…",
        help="these scenarios alone",
    )
    parser.add_argument(
        "--database", type=_list_of(DATABASES), default=DATABASES, metavar=",".join(DATABASES)
    )
    parser.add_argument(
        "--peers",
        nargs="?",
        type=_list_of(PEERS),
        const=PEERS,
        default=(),
        metavar="dbos,absurd,bare",
        help="also measure DBOS, Absurd, and the bare limit: the journal writes by the driver alone",
    )
    parser.add_argument(
        "--runs", type=_positive, help="runs for each measurement of (a) and (e), for each system"
    )
    parser.add_argument("--quick", action="store_true", help="a glance, too short to be judged")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every figure there")
    parser.add_argument("--rounds", type=_positive, help="how often each figure is measured")
    parser.add_argument("--server", default=default_server(), metavar="URL", help="the PostgreSQL server")
    # Without it the peers are measured alone: for work on their adapters.
    parser.add_argument("--no-stepwell", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    quick = given.quick
    systems = (() if given.no_stepwell else ("stepwell",)) + given.peers
    if not systems:
        parser.error("there is nothing to measure")
    return Options(
        scenarios=given.only,
        databases=given.database,
        systems=systems,
        server=given.server,
        rounds=given.rounds or (1 if quick else 3),
        seconds=0.3 if quick else 1.2,
        runs=given.runs,
        samples=10 if quick else 60,
        sleepers=300 if quick else 10_000,
        finished=5_000 if quick else 200_000,
        items=3_000 if quick else 100_000,
        is_quick=quick,
        json=given.json,
    )


def _list_of(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """A reader of comma-separated words, each one of the known ones."""
    words = tuple(known)

    def read(text: str) -> tuple[str, ...]:
        given = tuple(word.strip() for word in text.split(",") if word.strip())
        for word in given:
            if word not in words:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(words)}")
        return tuple(word for word in words if word in given)

    return read


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value
