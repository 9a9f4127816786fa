"""The reference says what the code says."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable

import pytest

import stepwell
from stepwell import Child, Cursor, Event, EventKind, Poll, Signal, StepExecution, Stepwell, Worker, Workflow
from stepwell.definition.findable import Findable
from stepwell.definition.hooks import HOOKS
from stepwell.definition.launching import LaunchOptions
from stepwell.definition.options import ResumableStepOptions, StepOptions
from stepwell.definition.repeats import RepeatOptions
from stepwell.definition.settings import SETTINGS
from stepwell.definition.verbs import Verbs
from stepwell.engine.contexts import RunContext
from stepwell.engine.queries import RunQuery
from stepwell.engine.run import Run
from stepwell.errors import StepwellError
from stepwell.states import ATTENTION, LIVE, TERMINAL, VERBS, ExecutionState, Kind, Outcome, Reason, RunState
from tests.architecture.sources import ROOT
from tests.docs.pages import Page


def _page(name: str) -> Page:
    return Page(ROOT / "docs" / name)


def _first_column(page: Page, heading: str) -> list[str]:
    """What stands in backticks in the first column of the table under this heading row."""
    lines = page.text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    names: list[str] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        names += [name.partition("(")[0] for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
    return names


def _parameters(function: object) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]  # type: ignore[arg-type]  # a callable


def _fields(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def _public(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


def test_the_attributes_of_an_entry_are_the_codes() -> None:
    """The page on states lists each attribute of a journal's entry, and no other."""
    assert sorted(_first_column(_page("reference/states.md"), "Attribute")) == sorted(_fields(StepExecution))


def test_every_public_name_is_in_the_reference() -> None:
    """Whatever can be imported from stepwell is described somewhere in reference or how-to."""
    text = "\n".join(
        Page(path).text
        for folder in ("reference", "how-to")
        for path in (ROOT / "docs" / folder).glob("*.md")
    )
    assert [name for name in stepwell.__all__ if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("reference/workflow.md", "Setting", SETTINGS),
        ("reference/workflow.md", "Option", StepOptions.__annotations__),
        (
            "reference/workflow.md",
            "Option of `@resumable_step`",
            ResumableStepOptions.__annotations__.keys() - StepOptions.__annotations__.keys(),
        ),
        ("reference/workflow.md", "Option of `with_options`", LaunchOptions.__annotations__),
        ("reference/workflow.md", "Argument of `Signal`", _fields(Signal)),
        ("reference/workflow.md", "Argument of `Poll`", _fields(Poll)),
        ("reference/workflow.md", "Argument of `Child`", _fields(Child)),
        ("reference/workflow.md", "Option of `repeat`", RepeatOptions.__annotations__),
        ("reference/workflow.md", "`self.cursor`", _public(Cursor)),
        ("reference/workflow.md", "Hook", HOOKS),
        ("reference/engine.md", "Argument", _parameters(Stepwell.__init__)),
        ("reference/engine.md", "Event", EventKind),
        ("reference/states.md", "Command", VERBS),
        ("reference/states.md", "Kind", Kind),
        ("reference/errors.md", "Reason", {*Reason, "replaced"}),
    ],
)
def test_a_table_of_the_reference_has_what_the_code_has(
    page: str, heading: str, names: Iterable[str]
) -> None:
    """Nothing is missing in a table, and nothing in it has gone."""
    assert sorted(_first_column(_page(page), heading)) == sorted(map(str, names))


def test_all_that_a_step_can_ask_and_say_is_in_the_reference() -> None:
    """Each property and each verb of a workflow stands in one of the two tables, and nothing else does."""
    sections = re.split(r"^## ", _page("reference/workflow.md").text, flags=re.MULTILINE)
    told = {
        name
        for section in sections
        if section.startswith("What a step can ")
        for name in re.findall(r"^\| `(?:await )?self\.(\w+)", section, re.MULTILINE)
    }
    functions = {name for name in _public(Workflow) if callable(getattr(Workflow, name))}
    properties = {name for name in _public(Workflow) if isinstance(vars(Workflow)[name], property)}
    assert told == (functions | properties) - {"start", "start_many", "with_args", "with_options"}


def test_all_that_run_can_say_is_in_the_reference() -> None:
    """Each durable verb, and each value that replays alike, stands in the table, with its parameters."""
    section = _page("reference/workflow.md").text.partition("| In `run()` |")[2].partition("\n\n")[0]
    told = dict(re.findall(r"`self\.(\w+)(?:\((.*?)\))?`", section))
    assert _public(Verbs) - told.keys() == set()
    for name in _public(Verbs) - {"now", "random"}:
        parameters = [
            each for each in _parameters(getattr(Verbs, name)) if each not in ("args", "kwargs", "options")
        ]
        assert [each for each in parameters if not re.search(rf"\b{each}\b", told[name])] == [], name


def test_how_runs_are_found_is_in_the_reference() -> None:
    """Each way to reach a run by what is known of it, with its parameters."""
    section = _page("reference/workflow.md").text.partition("## Find")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `(\w+)\((.*?)\)`", section, re.MULTILINE))
    assert told.keys() == _public(Findable)
    for name, parameters in told.items():
        named = re.findall(r"(\w+)(?:=\"?\w*\"?)?", parameters.replace('"raise"', "").replace("None", ""))
        assert named == _parameters(getattr(Findable, name))


def test_what_an_event_has_is_in_the_reference() -> None:
    """Each attribute of an event is named on the engine's page."""
    section = _page("reference/engine.md").text.partition("## Observer and Event")[2].partition("\n## ")[0]
    assert set(_fields(Event)) - set(re.findall(r"`(\w+)`", section)) == set()


def test_the_arguments_of_a_worker_are_in_the_reference() -> None:
    """The second table of arguments is the worker's."""
    text = _page("reference/engine.md").text.partition("## Worker")[2]
    rows = re.findall(r"^\| `(\w+)` \|", text.partition("| Method |")[0], re.MULTILINE)
    assert rows == _parameters(Worker.__init__)


@pytest.mark.parametrize("cls", [Stepwell, Run, RunQuery, RunContext, Worker])
def test_methods_in_the_reference_exist(cls: type) -> None:
    """Each method in the tables of the engine's page, and of the queries, is one."""
    page = _page("how-to/operate.md" if cls is RunQuery else "reference/engine.md")
    headings = {
        Stepwell: ("## Stepwell", "## Run\n"),
        Run: ("## Run\n", "## RunQuery"),
        RunContext: ("## RunContext", "## Worker"),
        Worker: ("## Worker", "## Observer"),
    }
    start, end = headings.get(cls, ("| Narrows to", "`well.run("))
    section = page.text.partition(start)[2].partition(end)[0]
    methods = set(re.findall(r"`(\w+)\(", section)) - {"with", "Stepwell", "start"}
    assert methods, section
    assert methods - {"run"} - set(dir(cls)) == set()


def test_every_command_is_a_method_of_a_run() -> None:
    """What the states allow can be asked of a handle, and is named where handles are described."""
    section = _page("reference/engine.md").text.partition("## Run\n")[2].partition("## RunQuery")[0]
    assert VERBS.keys() - set(dir(Run)) == set()
    assert VERBS.keys() - set(re.findall(r"`(\w+)\(", section)) == set()


def test_each_command_is_said_to_work_in_the_states_in_which_it_does() -> None:
    """The table of commands and states is that of the code."""
    text = _page("reference/states.md").text.partition("| Command |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE)
    told = {verb: set(re.findall(r"`(\w+)`", states)) for verb, states in rows if verb in VERBS}
    assert told == {verb: {str(state) for state in VERBS[verb]} for verb in VERBS}


def test_states_stand_in_their_groups() -> None:
    """Every state of a run is in the table, in the group that the code has it in."""
    rows = re.findall(r"^\| (live|attention|terminal) \| `(\w+)` \|", _page("reference/states.md").text, re.M)
    groups = {"live": LIVE, "attention": ATTENTION, "terminal": TERMINAL}
    assert sorted(rows) == sorted((name, str(state)) for name, states in groups.items() for state in states)
    assert len(rows) == len(RunState)


def test_states_and_outcomes_of_journal_entries_are_listed() -> None:
    """Every state and every outcome that an entry can have is in the table."""
    text = _page("reference/states.md").text.partition("## Entries of the journal")[2]
    named = set(re.findall(r"`(\w+)`", text))
    assert {str(state) for state in ExecutionState} - named == set()
    assert {str(outcome) for outcome in Outcome} - named == set()


def test_the_tree_of_errors_is_that_of_the_code() -> None:
    """Each public error stands in the tree under its base, and the tree has no other."""
    tree = _page("reference/errors.md").text.partition("```text")[2].partition("```")[0]
    above: list[str] = []
    told = {}
    for line in tree.splitlines():
        found = re.search(r"[A-Z]\w+", line)
        if found is None:
            continue
        depth = found.start() // 4
        above = [*above[:depth], found[0]]
        told[found[0]] = above[-2] if depth else None
    errors = [
        value
        for value in vars(stepwell).values()
        if isinstance(value, type) and issubclass(value, StepwellError)
    ]
    known = {
        cls.__name__: next((b.__name__ for b in cls.__bases__ if issubclass(b, StepwellError)), None)
        for cls in errors
    }
    assert told == known
