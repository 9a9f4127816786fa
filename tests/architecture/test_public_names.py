"""What ``import stepwell`` offers is a promise: it changes on purpose only."""

from __future__ import annotations

import stepwell

PUBLIC_NAMES: list[str] = [
    "AsyncWorkflow",
    "Backoff",
    "Call",
    "Cancel",
    "Child",
    "ChildFailed",
    "Cursor",
    "DeadlineExceeded",
    "DefinitionError",
    "Event",
    "EventKind",
    "Fail",
    "HeroGone",
    "InvalidTransition",
    "ManualClock",
    "Observer",
    "Pause",
    "Poll",
    "RecordAdapter",
    "RecordGone",
    "RecordRef",
    "ResultTimeout",
    "Retry",
    "Run",
    "ResumeRefused",
    "RunAlreadyExists",
    "RunCanceled",
    "RunError",
    "RunFailed",
    "RunNotFound",
    "RunNotLive",
    "RunQuery",
    "RunState",
    "SchemaOutdated",
    "Signal",
    "Skip",
    "StepExecution",
    "StepFailed",
    "StepTimedOut",
    "Stepwell",
    "StepwellError",
    "StoreError",
    "TooLarge",
    "Undecodable",
    "UnknownWorkflow",
    "Unstorable",
    "UnsupportedDatabase",
    "WaitTimedOut",
    "Worker",
    "Workflow",
    "WrongArguments",
    "cancel_if",
    "handles",
    "removed_step",
    "resumable_step",
    "step",
]


def test_public_names_are_these() -> None:
    """A name is added or taken away together with this list and a line in the changelog."""
    assert sorted(stepwell.__all__) == sorted(PUBLIC_NAMES)


def test_public_names_exist() -> None:
    """``from stepwell import *`` works."""
    assert [name for name in stepwell.__all__ if not hasattr(stepwell, name)] == []
