"""What happens when a step raises: small values, and one pure function from an error to a decision."""

from __future__ import annotations

from stepwell.policies.decisions import Decision, decide
from stepwell.policies.values import (
    Backoff,
    Cancel,
    Fail,
    Handler,
    Pause,
    Policy,
    Retry,
    Skip,
    Verb,
    handles,
)

__all__ = [
    "Backoff",
    "Cancel",
    "Decision",
    "Fail",
    "Handler",
    "Pause",
    "Policy",
    "Retry",
    "Skip",
    "Verb",
    "decide",
    "handles",
]
