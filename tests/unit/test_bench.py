"""The benchmark's own workflows are sound: it is run by hand, and seldom."""

from __future__ import annotations

import importlib


def test_its_workflows_can_be_defined() -> None:
    """A name that the library takes for itself one day would break it unnoticed."""
    assert importlib.import_module("bench.systems.stepwell").Sleeper.plan.first is not None
