"""From a stored name to its class."""

from __future__ import annotations

import gc
import sys
import types
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell.definition import registry
from stepwell.definition.registry import find_workflow, known_workflows
from stepwell.definition.steps import step
from stepwell.definition.workflow import Workflow
from stepwell.errors import DefinitionError, UnknownWorkflow
from tests.unit.definition.sample import refusal


@pytest.fixture
def name() -> Iterator[str]:
    """A name that no other test uses; its classes are gone afterwards."""
    yield f"Flow{uuid.uuid4().hex}"
    gc.collect()


def define(name: str, module: str, *, qualname: str | None = None, base: Any = Workflow, **body: Any) -> Any:
    """A class of a module's top level."""
    body = {"__module__": module, "__qualname__": qualname or name, "greet": step(lambda self: None), **body}
    return types.new_class(name, (base,), {}, lambda namespace: namespace.update(body))


def test_a_class_is_found_by_its_stored_name(name: str) -> None:
    """Which is the class's own name, or the one that it was given."""
    plain, named = define(name, "app"), define("Other", "app", workflow_name=f"{name}-2")
    assert find_workflow(name) is plain
    assert find_workflow(f"{name}-2") is named


def test_all_classes_are_listed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their names, bases without steps left out."""
    base = define(name, "app", greet=None)
    sub, other = define(f"{name}B", "app", base=base), define(f"{name}A", "app", base=base)
    monkeypatch.setattr(registry, "Workflow", base)
    assert list(known_workflows().items()) == [(f"{name}A", other), (f"{name}B", sub)]


def test_subclasses_are_found_at_any_depth(name: str) -> None:
    """Under their own names."""
    base = define(name, "app")
    sub = define(f"{name}Sub", "app", base=define(f"{name}Mid", "app", base=base))
    assert find_workflow(f"{name}Sub") is sub


def test_an_unknown_name_says_what_to_do(name: str) -> None:
    """The class was not imported, or is called otherwise now."""
    with pytest.raises(UnknownWorkflow) as refused:
        find_workflow(name)
    assert str(refused.value) == (
        f"no workflow {name!r} is loaded in this process. Import the module that defines it, or set "
        f"workflow_name = {name!r} in the class that now does its work."
    )


def test_a_new_definition_replaces_the_old_one(name: str) -> None:
    """As when a notebook's cell runs again."""
    old, new = define(name, "app"), define(name, "app")
    assert find_workflow(name) is new
    assert old is not new


def test_a_local_class_replaces_what_was_there(name: str) -> None:
    """As in tests, which define small workflows in functions."""
    define(name, "app")
    local = define(name, "tests", qualname=f"test.<locals>.{name}")
    assert find_workflow(name) is local


def test_two_classes_of_one_name_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take each other's runs; the message names both."""
    base = define(f"{name}Base", "app", greet=None)
    kept = [define(name, "app.billing", base=base), define(name, "app.sales", base=base)]
    text = (
        f"{name}: two workflows have this name: app.billing.{name} and app.sales.{name}. Give one of "
        f"them another "
        "workflow_name"
    )
    assert refusal(lambda: find_workflow(name)) == text
    monkeypatch.setattr(registry, "Workflow", base)
    assert refusal(known_workflows) == text
    del kept


def test_a_script_that_is_imported_too_is_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python app.py`` defines everything in ``__main__``, and again when a module imports ``app``."""
    for module_name in ("app_main", "app_imported"):
        module = types.ModuleType(module_name)
        module.__file__ = "app.py"
        monkeypatch.setitem(sys.modules, module_name, module)
    kept = [define(name, "app_main"), define(name, "app_imported")]
    assert find_workflow(name) is kept[-1]


def test_bases_without_steps_count_nowhere(name: str) -> None:
    """Two abstract bases may share a name."""
    kept = [define(name, "app.a", greet=None), define(name, "app.b", greet=None)]
    with pytest.raises(UnknownWorkflow):
        find_workflow(name)
    del kept


def test_a_class_that_was_refused_counts_nowhere(name: str) -> None:
    """Python keeps it alive for a while after its definition failed."""
    base = define(f"{name}Base", "app")
    with pytest.raises(DefinitionError) as refused:
        define(name, "app", base=base, version=0)
    with pytest.raises(UnknownWorkflow):
        find_workflow(name)
    del refused
