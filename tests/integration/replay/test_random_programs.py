"""Random programs of ``run()`` on real databases: wherever a worker dies, they end as if none had."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from stepwell import Retry, StepFailed, Workflow, step
from stepwell.store.schema import executions
from stepwell.testing import CrashPoint, Workbench
from tests.integration.store.rig import ledger

HOUR = timedelta(hours=1)
ACTS = st.one_of(
    st.tuples(st.just("work"), st.integers(0, 2)),
    st.tuples(st.just("broken"), st.just(0)),
    st.tuples(st.just("sleep"), st.integers(0, 3)),
    st.tuples(st.just("signal"), st.just(0)),
    st.tuples(st.just("poll"), st.just(0)),
    st.tuples(st.just("remember"), st.integers(0, 9)),
)
PROGRAMS = st.lists(ACTS, min_size=1, max_size=6)
DEATHS = st.lists(st.tuples(st.sampled_from(list(CrashPoint)), st.integers(1, 4)), min_size=1, max_size=3)


class Program(Workflow):
    """Does what it is told, one thing after the other."""

    workflow_name = "random_programs.Program"

    def run(self, acts: list[Any]) -> list[Any]:
        seen: list[Any] = []
        for number, (kind, how) in enumerate(acts):
            match kind:
                case "work":
                    seen.append(self.work(number, how))
                case "broken":
                    try:
                        self.broken(number)
                    except StepFailed as failure:
                        seen.append(failure.error_class)
                case "sleep":
                    self.sleep(how * HOUR)
                case "signal":
                    seen.append(self.wait_for_signal("go", timeout=HOUR, default="late"))
                case "poll":
                    seen.append(self.wait_until(self.is_so, every=HOUR))
                case "remember":
                    self.context.setdefault("list", []).append(how)
            seen.append(copy.deepcopy(dict(self.context)))
        return seen

    def is_so(self) -> bool:
        return True

    @step(key_by="number", on_exception=Retry(ConnectionError, attempts=3, wait=HOUR))
    def work(self, number: int, fails: int) -> list[int]:
        self.session.execute(ledger.insert().values(n=number))
        self.context[f"work{number}"] = number
        failed = select(func.count()).where(
            executions.c.run_id == self.run_id,
            executions.c.name == "work",
            executions.c.key == str(number),
            executions.c.outcome == "retried",
        )
        if self.session.execute(failed).scalar_one() < fails:
            raise ConnectionError
        return [number, fails]

    @step(key_by="number")
    def broken(self, number: int) -> None:
        self.context["broken"] = number
        raise LookupError(number)


def told(acts: list[Any]) -> list[Any]:
    """What the program answers, without any durability."""
    seen: list[Any] = []
    context: dict[str, Any] = {}
    signals = ["came"]
    for number, (kind, how) in enumerate(acts):
        match kind:
            case "work":
                context[f"work{number}"] = number
                seen.append([number, how])
            case "broken":
                seen.append("LookupError")
            case "signal":
                seen.append(signals.pop() if signals else "late")
            case "poll":
                seen.append(True)
            case "remember":
                context.setdefault("list", []).append(how)
        seen.append(copy.deepcopy(context))
    return seen


def the_end(bench: Workbench, acts: list[Any], deaths: list[tuple[CrashPoint, int]]) -> dict[str, Any]:
    """Where the program comes to, with workers that die at these places."""
    bench.delete_all_runs()
    with bench.engine.database.begin() as connection:
        connection.execute(ledger.delete())
    run = Program.start(acts=acts)
    run.signal("go", "came")
    died = 0
    for point, nth in deaths:
        try:
            with bench.crash_at(point, nth=nth):
                bench.run_to_end(run)
        except AssertionError:
            # The program does not come there so often.
            continue
        died += 1
    bench.run_to_end(run)
    event(f"{died} deaths")
    with bench.engine.database.read() as connection:
        lines = sorted(connection.execute(select(ledger.c.n)).scalars())
    rows = [row for row in run.steps if row.outcome in ("success", "failed", "retried", "timed_out")]
    return {
        "state": run.state,
        "result": run.result(timedelta()),
        "context": dict(run.context),
        "lines": lines,
        "rows": [(row.kind, row.name, row.key, row.outcome) for row in rows],
    }


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=PROGRAMS, deaths=DEATHS)
def test_deaths_change_no_end(
    bench: Workbench, acts: list[Any], deaths: list[tuple[CrashPoint, int]]
) -> None:
    """The same result, context, rows, and lines that steps have written."""
    given_acts = [list(act) for act in acts]
    undisturbed = the_end(bench, given_acts, [])
    assert undisturbed["result"] == told(given_acts)
    assert the_end(bench, given_acts, deaths) == undisturbed
