"""What a run waits for, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from stepwell.execution.attempts import BESIDE
from stepwell.requests import StopRequest
from stepwell.states import BODIES, TERMINAL, ExecutionState, Kind, Reason, RunState
from stepwell.store.children import successor_of
from stepwell.store.rows import ExecutionRow, RunRow
from stepwell.texts import details_of

__all__ = ["explain"]


def explain(
    run: RunRow,
    history: Sequence[ExecutionRow],
    now: datetime,
    unread: Mapping[str, int] | None = None,
    changes: int = 0,
) -> str:
    """A sentence or two: where the run stands, since when, and who can release it.

    Args:
        run: Its row.
        history: Its journal.
        now: The instant to tell ages by.
        unread: How many signals of each name nobody has read.
        changes: How many changes of its context from outside it has not taken up.
    """
    at = f" at step {run.current_step!r}" if run.current_step else ""
    since = f"since {_ago(now - run.changed_at)}"
    match run.state:
        case RunState.READY:
            text = f"is due{at} in queue {run.queue!r} {since} and waits for a worker"
        case RunState.RUNNING:
            text = f"is driven by {run.lease_owner}{at} {since}{_lease(run, now)}"
        case RunState.WAITING:
            text = f"waits{at} until {_instant(run.wake_at)} ({_why(run)}); run.reschedule() moves it"
        case RunState.AWAITING:
            text = f"waits{at} {since} for {_awaited(run, history)}{_deadline(run)}"
        case RunState.PAUSED:
            text = (
                f"was paused{_by(history, 'pause')}{at} {since}{_reason(run)}; "
                "run.resume() goes on, run.skip() leaves the step out"
            )
        case RunState.FAILED:
            text = f"failed{at} {since}{_reason(run)}{_error(run)}; {_way_on(history)}"
        case RunState.COMPLETED:
            text = f"completed {_ago(now - run.changed_at)} ago{_continued(run)}"
        case RunState.CANCELED:
            text = f"was canceled{_by(history, 'cancel')} {_ago(now - run.changed_at)} ago{_reason(run)}"
        case _:
            text = f"is in state {run.state!r}, which this version of Stepwell does not know"
    more = f"{_request(run, now)}{_attempts(run, history)}{_unread(run, unread or {})}"
    more += f"{_changes(run, changes)}{_orphans(run)}"
    return f"Run {run.id} of {run.workflow} {text}.{more}"


def _way_on(history: Sequence[ExecutionRow]) -> str:
    """How a failed run is tried again."""
    counting = [row for row in history if row.superseded_at is None and row.kind not in BESIDE]
    errors = [row for row in history if row.superseded_at is None and row.kind == Kind.BODY]
    escaped = details_of(errors[-1].details).get("escaped") if errors else None
    failed = next((row for row in counting if row.position == escaped), None)
    if failed is None or counting[-1] is failed:
        return "run.resume() tries again"
    return f"run.resume(from_step={failed.name!r}) makes that call and all that came after it anew"


def _unread(run: RunRow, unread: Mapping[str, int]) -> str:
    if not unread:
        return ""
    names = ", ".join(f"{name!r} ({count})" if count > 1 else repr(name) for name, count in unread.items())
    return f" Signals that were never read: {names}." if run.finished_at else f" Unread signals: {names}."


def _changes(run: RunRow, count: int) -> str:
    if not count:
        return ""
    what = f"{count} changes" if count > 1 else "A change"
    return f" {what} of its context {'came too late' if run.finished_at else 'not taken up yet'}."


def _orphans(run: RunRow) -> str:
    """Calls that are recorded and that the code did not come to."""
    names = details_of(run.details).get("orphans")
    if not isinstance(names, list) or not names:
        return ""
    return f" Recorded calls that run() did not come to: {', '.join(map(str, names))}."


def _ago(span: timedelta) -> str:
    seconds = max(0, int(span.total_seconds()))
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{seconds} s"


def _instant(instant: datetime | None) -> str:
    return "?" if instant is None else instant.isoformat(timespec="seconds")


def _awaited(run: RunRow, history: Sequence[ExecutionRow]) -> str:
    """What releases a run that waits to be woken."""
    waits = [row for row in history if row.name == run.current_step and row.state == ExecutionState.SCHEDULED]
    # In run() the wait is called like the signal; a declared step's has the signal's name as its key.
    names = [row.name if _is_numbered(row.key) else row.key for row in waits if row.kind == Kind.SIGNAL]
    if names:
        until = (
            f", until {_instant(waits[-1].scheduled_for)} at the latest" if waits[-1].scheduled_for else ""
        )
        return f"the signal {names[-1]!r}{until}: run.signal({names[-1]!r}) sends it"
    called = _called(waits)
    if called is not None:
        return f"run {called['child']} of {called['workflow']}, which it has called, to be over"
    if run.reason == Reason.GATE:
        return "its gate to open: run.wake() makes it look again"
    return _why(run)


def _continued(run: RunRow) -> str:
    successor = successor_of(run)
    return "" if successor is None else f"; it was started over, and run {successor} goes on in its place"


def _called(waits: Sequence[ExecutionRow]) -> Mapping[str, str] | None:
    """What is known of the child that a run waits for."""
    for row in waits:
        try:
            told = json.loads(row.details or "{}") if row.kind == Kind.CALL else {}
        except ValueError:
            continue
        if isinstance(told, dict) and "child" in told and "workflow" in told:
            return told
    return None


def _is_numbered(key: str | None) -> bool:
    return key is None or key.startswith("#")


def _why(run: RunRow) -> str:
    words = {
        Reason.TIMER: "its wait",
        Reason.POLL: "the next look at its condition",
        Reason.TICK: "the next tick of its repetition",
        Reason.RETRY: "the delay before a retry",
        Reason.RECOVERING: "its worker was lost",
        Reason.PREDECESSOR: f"run {run.after_id}, whose place it takes, is not over yet",
        Reason.UNKNOWN_WORKFLOW: "no worker so far knows this workflow",
        Reason.UNKNOWN_STEP: "no worker so far knows this step",
        Reason.NEWER_VERSION: "no worker so far has this version",
    }
    return (
        words.get(Reason(run.reason), run.reason) if run.reason in set(Reason) else (run.reason or "its wait")
    )


def _lease(run: RunRow, now: datetime) -> str:
    if run.lease_expires_at is not None and run.lease_expires_at < now:
        return "; its lease has run out, any worker will take it over"
    return ""


def _deadline(run: RunRow) -> str:
    if run.wake_at is None or run.reason == Reason.SIGNAL:
        return ""
    return f", looked at again at {_instant(run.wake_at)}"


def _reason(run: RunRow) -> str:
    return f" ({run.reason})" if run.reason else ""


def _error(run: RunRow) -> str:
    said = f" with {run.error_class}: {run.error_message or ''}" if run.error_class else ""
    # What follows begins with a sign of its own.
    return said.rstrip(" :.")


def _by(history: Sequence[ExecutionRow], verb: str) -> str:
    """Who brought the run to where it stands, if a person did and said so: it is the last entry then."""
    last = max(history, key=lambda row: row.position, default=None)
    if last is None or last.kind != Kind.COMMAND or last.name != verb:
        return ""
    try:
        by = json.loads(last.details or "{}").get("by")
    except (ValueError, AttributeError):
        return ""
    return f" by {by}" if by else ""


def _request(run: RunRow, now: datetime) -> str:
    if not run.stop_request:
        return ""
    request = StopRequest.parse(run.stop_request)
    if request is None:
        return " A stop request is on it that cannot be read." if run.state not in TERMINAL else ""
    who, why = request.by or "Somebody", f" ({request.reason})" if request.reason else ""
    asked = "" if request.at is None else f" {_ago(now - request.at)} ago"
    if run.state in TERMINAL:
        return f" {who} asked to {request.verb} it{asked}{why}, which was too late."
    return f" {who} asked to {request.verb} it{asked}{why}; a worker does that at the next step boundary."


def _attempts(run: RunRow, history: Sequence[ExecutionRow]) -> str:
    tried = [
        row
        for row in history
        if row.superseded_at is None and row.name == run.current_step and row.kind in BODIES
    ]
    # Of a repetition, those at the tick that it stands at.
    failed = [
        row
        for row in tried
        if row.state == ExecutionState.FAILED and (row.kind == Kind.STEP or row.key == tried[-1].key)
    ]
    if not failed or run.finished_at is not None:
        return ""
    last = failed[-1]
    times = f"{len(failed)} times, last" if len(failed) > 1 else "once,"
    return f" The step has failed {times} with {last.error_class}: {last.error_message}"
