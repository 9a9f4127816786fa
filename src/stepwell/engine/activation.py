"""One activation of one run: prepare, drive, settle. The only place that sees both an author's class and the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from stepwell.clock import from_micros
from stepwell.definition.registry import find_workflow, is_procedural
from stepwell.engine.children import CALLED_OFF
from stepwell.engine.heroes import hero_reference
from stepwell.engine.honouring import honour
from stepwell.engine.leases import Lease
from stepwell.engine.store_journal import Place, StoreJournal
from stepwell.entries import Settlement
from stepwell.errors import DefinitionError, StoreError, Undecodable, UnknownWorkflow
from stepwell.execution.apart import apart
from stepwell.execution.errors import describe
from stepwell.execution.journal import Fact, RunFacts, WritesRefused
from stepwell.execution.linear import LinearDriver
from stepwell.execution.outcome import Activated
from stepwell.execution.primitives.notices import Notices
from stepwell.execution.recorder import Recorder
from stepwell.execution.replay import ReplayDriver
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.suspension import LeaseLost
from stepwell.logs import facts_logger
from stepwell.states import Reason, RunState
from stepwell.store.reads import last_end
from stepwell.store.rows import RunRow
from stepwell.texts import details_of

if TYPE_CHECKING:
    from stepwell.engine.engine import Stepwell

__all__ = ["activate", "replayed"]

_log = facts_logger(__name__)
_FIRST_DEFERRAL: Final = timedelta(seconds=15)
_LONGEST_DEFERRAL: Final = timedelta(minutes=5)
_MOST_DOUBLINGS: Final = 8
_FORGOTTEN: Final = 3 * _LONGEST_DEFERRAL
_PREDECESSOR_POLL: Final = timedelta(seconds=30)


class _Deferred(Exception):
    """This worker does not know what the run needs; another one may (a deploy is rolling)."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def replayed(runs: Iterable[RunRow]) -> set[UUID]:
    """Those of the runs whose class has ``run()``: a driver needs more of their journals."""
    return {run.id for run in runs if is_procedural(run.workflow)}


def activate(
    engine: Stepwell,
    run: RunRow,
    lease: Lease,
    place: Place,
    known: Sequence[Fact],
    journal: Callable[..., StoreJournal] = StoreJournal,
) -> Activated | None:
    """Drive a claimed run until it parks or ends.

    Args:
        engine: The engine.
        run: The row, as claimed.
        lease: Its lease, in the engine's book.
        place: The worker.
        known: The run's journal.
        journal: How it is written; one that breaks down at a chosen place, in tests.

    Returns:
        None when the lease was lost: whoever has the run now goes on from what is durable.
    """
    try:
        activated = apart(_prepared, engine, run, lease, place, known, journal)
    except LeaseLost:
        _log.warning("a lease was lost", extra={"action": "activation.lost", **_facts(run)})
        return None
    finally:
        engine.leases.remove(lease)
    if activated.state not in (RunState.WAITING, RunState.AWAITING):
        _after_the_end(engine, run, activated)
    return activated


def _prepared(
    engine: Stepwell,
    run: RunRow,
    lease: Lease,
    place: Place,
    known: Sequence[Fact],
    make: Callable[..., StoreJournal],
) -> Activated:
    plain = make(engine, lease, place, known, None, hero_is_optional=True, workflow=run.workflow)
    try:
        if run.after_id is not None and engine.is_open(run.after_id):
            stopped = honour(plain, run, known)
            if stopped is not None:
                _tell_stopped(stopped, lambda: _recorder(engine, run, lease, place, known, make))
            return stopped or _settle(plain, run, _awaiting_predecessor(engine, run))
        if engine.children.is_called_off(run):
            stopped = honour(plain, replace(run, stop_request=CALLED_OFF.text()), known)
            if stopped is not None:
                _tell_stopped(stopped, lambda: _recorder(engine, run, lease, place, known, make))
                return stopped
        recorder = _recorder(engine, run, lease, place, known, make)
    except _Deferred as deferred:
        return honour(plain, run, known) or _settle(plain, run, _deferral(engine, run, deferred))
    except Undecodable as error:
        return honour(plain, run, known) or _settle(plain, run, _failure(Reason.UNDECODABLE, error))
    # Outside: from here on the run may be a step further than its row was when it was claimed.
    driver = ReplayDriver if recorder.run.plan.is_procedural else LinearDriver
    try:
        return driver(recorder).drive()
    except Undecodable as error:
        # A row of the journal that no call of the author's asks for.
        return _broken_down(recorder, Reason.UNDECODABLE, error)
    except (SQLAlchemyError, StoreError):
        raise
    except Exception as error:
        # Nobody expected it there, and the next worker would fare no better.
        _log.exception("a run could not be driven", extra={"action": "activation.failed", **_facts(run)})
        return _broken_down(recorder, Reason.STEP_FAILED, _said_by(error))


def _said_by(error: Exception) -> BaseException:
    return error.error if isinstance(error, WritesRefused) else error


def _broken_down(recorder: Recorder, reason: Reason, error: BaseException) -> Activated:
    """The run cannot be driven on: a person must look at it."""
    recorder.context.forget()
    ended = recorder.stop(_failure(reason, error), next_step=recorder.current_step)
    if ended is None:
        # Somebody has asked for the step to be left out, which nobody can without driving it.
        return recorder.answer() or _broken_down(recorder, reason, error)
    if recorder.settled is not None:
        Notices(recorder, ActivationRuntime(recorder)).settled(recorder.settled, error)
    return replace(ended, error=error)


def _recorder(
    engine: Stepwell,
    run: RunRow,
    lease: Lease,
    place: Place,
    known: Sequence[Fact],
    make: Callable[..., StoreJournal],
) -> Recorder:
    try:
        workflow: Any = find_workflow(run.workflow)
    except (UnknownWorkflow, DefinitionError) as error:
        raise _Deferred(Reason.UNKNOWN_WORKFLOW, str(error)) from error
    plan = workflow.plan
    if run.version > workflow.version:
        raise _Deferred(
            Reason.NEWER_VERSION,
            f"{run.workflow} {run.version} is newer than this worker's {workflow.version}",
        )
    if run.current_step is not None and not plan.is_procedural and plan.find(run.current_step) is None:
        raise _Deferred(Reason.UNKNOWN_STEP, f"{run.workflow} has no step {run.current_step!r} here")
    options = _mapping(run.options, "options")
    _mapping(run.stop_request, "stop request")
    facts = RunFacts(
        id=run.id,
        workflow=workflow,
        plan=plan,
        version=options.get("version", 1),
        args=_decoded_args(engine, run),
        context=_checked_context(run),
        current_step=run.current_step,
        queue=run.queue,
        priority=run.priority,
        begins_at=from_micros(options["at"]) if "at" in options else run.created_at,
        wakeups=run.wakeups,
        stop_request=run.stop_request,
        options=options,
        is_called=run.parent_id is not None and run.open_branch is not None,
    )
    hero = hero_reference(run, engine.codec)
    journal = make(
        engine, lease, place, known, hero, workflow.is_hero_optional, workflow.version, run.workflow
    )
    return Recorder(journal, facts, engine.codec, result_limit=engine.result_limit, chance=engine.chance)


def _decoded_args(engine: Stepwell, run: RunRow) -> dict[str, Any]:
    value = engine.codec.loads(run.args, what="arguments") if run.args != "{}" else {}
    if not isinstance(value, dict):
        raise Undecodable("arguments cannot be read back: they are no mapping")
    return value


def _checked_context(run: RunRow) -> str | None:
    if run.context is not None:
        _mapping(run.context, "context")
    return run.context


def _mapping(text: str | None, what: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Undecodable(f"{what} cannot be read back: its text is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise Undecodable(f"{what} cannot be read back: it is no mapping")
    return value


# -- settlements without a driver -----------------------------------------------------------------------------------


def _settle(journal: StoreJournal, run: RunRow, settlement: Settlement) -> Activated:
    settlement = replace(settlement, seen_wakeups=run.wakeups)
    verdict = journal.write((), current_step=run.current_step, settlement=settlement)
    while not verdict.accepted:
        # Something came: it is on the row, and whoever claims the run next will see it.
        settlement = Settlement(RunState.READY, due_at=journal.now())
        verdict = journal.write((), current_step=run.current_step, settlement=settlement)
    return Activated(settlement.state, 0, settlement.reason, settlement.wake_at)


def _tell_stopped(stopped: Activated, prepare: Callable[[], Recorder]) -> None:
    """Call the class's hook for a run that was stopped before anything of it was driven."""
    try:
        recorder = prepare()
    except (_Deferred, Undecodable):
        return
    settlement = Settlement(stopped.state, reason=stopped.reason)
    Notices(recorder, ActivationRuntime(recorder)).settled(settlement, None)


def _awaiting_predecessor(engine: Stepwell, run: RunRow) -> Settlement:
    return Settlement(
        RunState.AWAITING,
        reason=Reason.PREDECESSOR,
        wake_at=engine.now() + _PREDECESSOR_POLL,
    )


def _deferral(engine: Stepwell, run: RunRow, deferred: _Deferred) -> Settlement:
    """Put the run off, twice as long each time; after ``unknown_grace`` it fails and says why."""
    now = engine.now()
    details = details_of(run.details)
    known = details.get("deferred")
    since: dict[str, Any] = known if isinstance(known, dict) else {}
    # One that ended long ago is not this one, nor one since which a worker that knows the run has driven it.
    if (
        since.get("reason") != deferred.reason
        or now.timestamp() - since["last"] > _FORGOTTEN.total_seconds()
        or _was_driven_since(engine, run, since["last"])
    ):
        since = {"reason": str(deferred.reason), "at": now.timestamp(), "last": now.timestamp(), "times": 0}
    if now.timestamp() - since["at"] >= engine.unknown_grace.total_seconds():
        details.pop("deferred", None)
        return Settlement(
            RunState.FAILED,
            reason=deferred.reason,
            error_class="stepwell.UnknownWorkflow",
            error_message=f"{deferred}. Deploy a worker that knows it, then run.resume().",
            details=json.dumps(details),
        )
    wait = min(_FIRST_DEFERRAL * 2 ** min(since["times"], _MOST_DOUBLINGS), _LONGEST_DEFERRAL)
    details["deferred"] = {**since, "last": now.timestamp(), "times": since["times"] + 1}
    _log.warning(
        "a run was deferred", extra={"action": "activation.defer", "why": str(deferred), **_facts(run)}
    )
    return Settlement(
        RunState.WAITING, reason=deferred.reason, wake_at=now + wait, details=json.dumps(details)
    )


def _was_driven_since(engine: Stepwell, run: RunRow, moment: float) -> bool:
    with engine.reading() as connection:
        last = last_end(connection, run.id)
    return last is not None and last.timestamp() > moment


def _failure(reason: Reason, error: BaseException) -> Settlement:
    record = describe(error)
    return Settlement(
        RunState.FAILED, reason=reason, error_class=record.error_class, error_message=record.message
    )


def _after_the_end(engine: Stepwell, run: RunRow, activated: Activated) -> None:
    if activated.state is RunState.READY:
        engine.wake_queue(activated.ready_in or run.queue)
        return
    engine.hub.run_ended()
    if activated.reason != Reason.CONTINUED:
        engine.children.ended(run.id, run.parent_id, activated.state)
    if activated.successor is not None:
        engine.wake_runs([activated.successor])


def _facts(run: RunRow) -> dict[str, str | None]:
    return {"run_id": str(run.id), "workflow": run.workflow, "step": run.current_step}
