"""Testing workflows: an engine without configuration, a clock that a test moves, a worker made of calls.

With pytest there is nothing to import: the fixture ``stepwell`` is a :class:`Workbench`.
"""

from __future__ import annotations

from stepwell.testing.crashes import CrashPoint
from stepwell.testing.workbench import Workbench

__all__ = ["CrashPoint", "Workbench"]
