"""Durable workflows in the SQL database that the application already has.

A workflow is a class with steps. By default the steps run top to bottom; a run survives crashes, deploys and
restarts, and every step that was recorded as completed is done once.
"""

from __future__ import annotations

from stepwell.clock import ManualClock
from stepwell.definition.starting import Call
from stepwell.definition.steps import cancel_if, removed_step, step
from stepwell.definition.workflow import Workflow
from stepwell.engine.engine import Stepwell
from stepwell.engine.queries import RunQuery
from stepwell.engine.run import Run
from stepwell.errors import (
    DefinitionError,
    HeroGone,
    InvalidTransition,
    RecordGone,
    ResultTimeout,
    RunAlreadyExists,
    RunCanceled,
    RunError,
    RunFailed,
    RunNotFound,
    RunNotLive,
    SchemaOutdated,
    StepTimedOut,
    StepwellError,
    StoreError,
    TooLarge,
    Undecodable,
    UnknownWorkflow,
    Unstorable,
    UnsupportedDatabase,
    WaitTimedOut,
    WrongArguments,
)
from stepwell.policies import Backoff, Cancel, Fail, Pause, Retry, Skip, handles
from stepwell.serialization import RecordAdapter, RecordRef
from stepwell.states import RunState
from stepwell.worker.worker import Worker

__all__ = [
    "Backoff",
    "Call",
    "Cancel",
    "DefinitionError",
    "Fail",
    "HeroGone",
    "InvalidTransition",
    "ManualClock",
    "Pause",
    "RecordAdapter",
    "RecordGone",
    "RecordRef",
    "ResultTimeout",
    "Retry",
    "Run",
    "RunAlreadyExists",
    "RunCanceled",
    "RunError",
    "RunFailed",
    "RunNotFound",
    "RunNotLive",
    "RunQuery",
    "RunState",
    "SchemaOutdated",
    "Skip",
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
    "step",
]
