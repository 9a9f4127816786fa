"""Durable workflows in the SQL database that the application already has.

A workflow is a class with steps. By default the steps run top to bottom; a run survives crashes, deploys and
restarts, and every step that was recorded as completed is done once.
"""

from __future__ import annotations

from stepwell.clock import ManualClock
from stepwell.definition.async_workflow import AsyncWorkflow
from stepwell.definition.cursor import Cursor
from stepwell.definition.resumable import resumable_step
from stepwell.definition.starting import Call
from stepwell.definition.steps import cancel_if, removed_step, step
from stepwell.definition.waits import Child, Poll, Signal
from stepwell.definition.workflow import Workflow
from stepwell.engine.engine import Stepwell
from stepwell.engine.queries import RunQuery
from stepwell.engine.run import Run
from stepwell.engine.step_executions import StepExecution
from stepwell.errors import (
    ChildFailed,
    DeadlineExceeded,
    DefinitionError,
    HeroGone,
    InvalidTransition,
    RecordGone,
    ResultTimeout,
    ResumeRefused,
    RunAlreadyExists,
    RunCanceled,
    RunError,
    RunFailed,
    RunNotFound,
    RunNotLive,
    SchemaOutdated,
    StepFailed,
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
from stepwell.observer import Event, EventKind, Observer
from stepwell.policies import Backoff, Cancel, Fail, Pause, Retry, Skip, handles
from stepwell.serialization import RecordAdapter, RecordRef
from stepwell.states import RunState
from stepwell.worker.worker import Worker

__all__ = [
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
    "ResumeRefused",
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

__version__ = "0.1.0"
