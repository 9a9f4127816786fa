"""What the tests of definitions share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from stepwell.definition.starting import Call, StartOptions
from stepwell.definition.workflow import Workflow
from stepwell.errors import DefinitionError


class User:
    """A record, as far as definitions care."""


class Admin(User):
    """A kind of user."""


class Company:
    """Another record."""


def names(workflow: type[Workflow[Any]]) -> list[str]:
    """The steps in their order."""
    return [spec.name for spec in workflow.plan.steps]


def refusal(build: Callable[[], object]) -> str:
    """What a class is told that breaks a rule."""
    with pytest.raises(DefinitionError) as refused:
        build()
    return str(refused.value)


@dataclass
class RecordingEngine:
    """Remembers what it is asked to start."""

    started: list[tuple[Call, StartOptions]] = field(default_factory=list)

    def start(self, call: Call, options: StartOptions) -> Any:
        self.started.append((call, options))
        return f"run {len(self.started)}"

    def start_many(self, calls: Iterable[Call], options: StartOptions) -> list[Any]:
        return [self.start(call, options) for call in calls]
