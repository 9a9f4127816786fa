"""A pass through ``run()``: every durable call goes one way, on the first pass and on replay alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NoReturn

from stepwell.entries import Execution, Settlement
from stepwell.errors import StepFailed, Undecodable, Unstorable, WaitTimedOut
from stepwell.execution.attempts import BESIDE, closed, is_final, latest_scheduled
from stepwell.execution.history import repetition_of
from stepwell.execution.journal import Fact
from stepwell.execution.outcome import Activated
from stepwell.execution.primitives.approach import Approach
from stepwell.execution.primitives.calls import child_failure
from stepwell.execution.recorder import Recorder
from stepwell.execution.runtime import ActivationRuntime
from stepwell.execution.site import Site
from stepwell.execution.suspension import Suspension
from stepwell.logs import facts_logger
from stepwell.requests import StopRequest
from stepwell.states import ExecutionState, Kind, Outcome, Reason, RunState

__all__ = ["Closed", "Passage", "recorded_position"]

_log: Final = facts_logger(__name__)
_MANY: Final = 100
_POSITION: Final = "_stepwell_position"
_WITH_ARGUMENTS: Final = frozenset({Kind.STEP, Kind.CALL})


class Closed(Suspension):
    """The activation has ended: whatever durable call comes next in ``run()`` raises it again."""


class Passage:
    """One pass through ``run()``: which call this is, what the journal answers to it, and how the activation ends.

    Args:
        recorder: The run's journal.
        runtime: What the workflow's methods see.
    """

    def __init__(self, recorder: Recorder, runtime: ActivationRuntime) -> None:
        self._recorder = recorder
        self._runtime = runtime
        self._history = recorder.history
        self._codec = recorder.codec
        self._approach = Approach(recorder, runtime)
        self._calls: dict[tuple[str, str, str | None], int] = {}
        self._reached: set[tuple[str, str, str | None]] = set()
        self._ended: Activated | None = None
        self._broken: BaseException | None = None
        self._closed: Closed | None = None
        self._refused = 0
        self._now = recorder.run.begins_at
        recorder.begin_replay()

    # -- the activation -----------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """The activation has ended, whatever ``run()`` makes of it."""
        return self._ended is not None or self._broken is not None

    def outcome(self) -> Activated:
        """How the activation has ended.

        Raises:
            LeaseLost: The run is no longer ours.
            Exception: The journal cannot be written.
        """
        if self._ended is None:
            raise self._broken or Closed
        return self._ended

    def close(self, ended: Activated) -> NoReturn:
        """The activation has ended here."""
        self._ended = ended
        self._closed = Closed()
        raise self._closed

    def caught_at(self) -> str | None:
        """The line of ``run()`` whose call has ended the activation, as file and number."""
        trace = None if self._closed is None else self._closed.__traceback__
        return None if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"

    def end(self, settlement: Settlement, state: ExecutionState, outcome: Outcome) -> Activated:
        """Leave the run for good; what is unfinished in its journal ends as ``state``."""
        self._recorder.catch_up()
        rows = self._closing(state, outcome)
        if settlement.state is RunState.COMPLETED:
            self._recorder.current_step = None
        return self._recorder.end(settlement, *rows, orphans=self._orphans(settlement))

    def _closing(self, state: ExecutionState, outcome: Outcome) -> list[Execution]:
        """The rows that end what is unfinished in the journal."""
        now = self._recorder.now()
        return [closed(fact, state, outcome, now) for fact in self._history.open.values()]

    def _orphans(self, settlement: Settlement) -> list[str]:
        """What is recorded and was not reached: the code has changed under the run."""
        if settlement.state is not RunState.COMPLETED:
            return []
        unreached = [
            site
            for site in dict.fromkeys(_called_as(*site) for site, _ in self._history.sites())
            if site not in self._reached and site[0] not in BESIDE
        ]
        names = [name if key is None else f"{name}[{key}]" for _, name, key in unreached]
        if names:
            run = self._recorder.run
            _log.warning(
                "recorded calls were not reached by run(): has its code changed?",
                extra={
                    "action": "run.orphans",
                    "run_id": str(run.id),
                    "workflow": run.plan.workflow,
                    "orphans": names[:20],
                },
            )
        return names

    # -- the one way of every call ------------------------------------------------------------------------------

    def _enter(self) -> None:
        """What has ended stays ended, whatever the author's code made of the exception that said so."""
        if self.is_closed:
            self._refused += 1
            if self._refused == _MANY:
                _log.error(
                    "run() calls on and on although its activation has ended: it catches what nobody may catch, and "
                    "keeps a thread of the worker for it. Let BaseException pass.",
                    extra={
                        "action": "run.stuck",
                        "run_id": str(self._recorder.run.id),
                        "workflow": self._recorder.run.plan.workflow,
                        "caught_at": self.caught_at(),
                    },
                )
            raise Closed

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """What breaks in here is no error of the author's: it ends the activation, and ``run()`` cannot catch it."""
        try:
            yield
        except (Closed, Unstorable, Undecodable):
            raise
        except BaseException as error:
            self._broken = error
            raise Closed from error

    @contextmanager
    def _of_no_call(self) -> Iterator[None]:
        """What cannot be read in here ends the activation: ``run()`` must not go on as if nothing had been changed."""
        try:
            yield
        except Undecodable as error:
            self._end_unread(error)

    def _end_unread(self, error: Undecodable) -> NoReturn:
        self._broken = error
        raise Closed from error

    def _site(self, site: Site) -> Site:
        """The site with the number of this call, where there were others like it."""
        return replace(site, key=self._numbered(site.kind, site.spec.name, site.key))

    def _numbered(self, kind: Kind, name: str, key: str | None) -> str | None:
        """The key of this call: with its number, where there were others like it."""
        call = (kind, name, key)
        self._calls[call] = number = self._calls.get(call, 0) + 1
        if number > 1:
            key = f"{key or ''}#{number}"
            call = (kind, name, key)
        self._reached.add(call)
        return key

    def _answer(self, site: Site, go_on: Callable[[Site], None] | None = None) -> Any:
        """What the journal says about this call; as long as it says nothing, go there."""
        while True:
            facts = self._history.of(site.kind, site.spec.name, site.key)
            if facts and is_final(facts[-1]):
                return self._value(site, facts)
            with self._ours():
                (go_on or self._go_on)(site)

    def _go_on(self, site: Site, take: Callable[[Site], Activated | None] | None = None) -> None:
        self._prepare()
        if self.honour_requests(site):
            return
        with self._of_no_call():
            self._recorder.take_up_changes()
        if self._recorder.stop_request is not None:
            # It came with that write, whose counter the next park goes by.
            return
        self._recorder.current_step = site.name
        ended = (take or self._approach.take)(self._with_stored_arguments(site))
        if ended is not None:
            self.close(ended)

    def _prepare(self) -> None:
        """Nothing that follows is answered by what was loaded."""
        self._recorder.catch_up()
        self._recorder.context.keep()

    def _with_stored_arguments(self, site: Site) -> Site:
        """The step gets its arguments as they would be read back: the same whatever pass it runs in."""
        if site.tick is not None or (not site.args and not site.kwargs):
            return site
        what = f"arguments of step {site.label}"
        args = tuple(self._codec.roundtrip(value, what=what) for value in site.args)
        named = {name: self._codec.roundtrip(value, what=what) for name, value in (site.kwargs or {}).items()}
        return replace(site, args=args, kwargs=named)

    def _value(self, site: Site, facts: Sequence[Fact]) -> Any:
        fact = facts[-1]
        if fact.args_digest != site.digest and site.spec.digest and site.kind in _WITH_ARGUMENTS:
            with self._ours():
                self._refuse(site, fact)
        if fact.state == ExecutionState.FAILED:
            self._passed(facts, site.spec.name)
            failure, self._runtime.failure = self._runtime.failure, None
            raise _recorded(site, fact, failure)
        answer = self._passed(facts, site.spec.name)
        return True if site.kind is Kind.POLL and fact.outcome == Outcome.SUCCESS else answer

    def _passed(self, facts: Sequence[Fact], name: str) -> Any:
        """A call is over: what it changed is changed, and the answer is what the last of its rows recorded."""
        fact = facts[-1]
        self._recorder.context.keep()
        try:
            # Most of a long replay comes past here: a context manager would cost as much as all the rest.
            self._recorder.replay(facts)
        except Undecodable as error:
            self._end_unread(error)
        if fact.finished_at is not None and fact.finished_at > self._now:
            self._now = fact.finished_at
        return None if fact.result is None else self._codec.loads(fact.result, what=f"result of {name}")

    def _refuse(self, site: Site, fact: Fact) -> NoReturn:
        """The code calls the step with other arguments than it was recorded with: nobody can tell what is meant."""
        self._recorder.catch_up()
        came = self._codec.canonical([*site.args, dict(site.kwargs or {})])
        message = (
            f"history does not match the code: step {site.label} is recorded at position {fact.position} with other "
            f"arguments (digest {fact.args_digest or 'of none'}) than it is called with now: {came[:500]} (digest "
            f"{site.digest or 'of none'}). What run() takes from the clock, from chance or from "
            "anything else that changes belongs into a step, or comes from self.now, self.random and self.uuid4(). "
            "Else deploy code that calls it as before, or tell calls apart by key_by=; then run.resume()."
        )
        self._recorder.context.forget()
        settlement = Settlement(
            RunState.FAILED,
            reason=Reason.HISTORY_MISMATCH,
            error_class="stepwell.HistoryMismatch",
            error_message=message,
        )
        while True:
            ended = self._recorder.stop(settlement, next_step=site.name)
            if ended is not None:
                self.close(ended)
            # Somebody has asked for the step to be left out.
            self.honour_requests(site)

    # -- what somebody asks for ---------------------------------------------------------------------------------

    def honour_requests(self, site: Site | None = None) -> bool:
        """Do what somebody asks of the run; True when ``site`` was left out for that.

        Raises:
            Closed: The activation has ended with it.
        """
        recorder = self._recorder
        # Before a call that is known the run stands at that one, and no longer at the one that was done last.
        at = recorder.current_step if site is None else site.name
        match StopRequest.parse(recorder.stop_request):
            case StopRequest(verb="cancel", reason=reason) as request:
                self._prepare()
                canceled = Settlement(RunState.CANCELED, reason=reason)
                rows = self._closing(ExecutionState.CANCELED, Outcome.CANCELED)
                self._close_if(recorder.honour(request, canceled, *rows, next_step=at))
            case StopRequest(verb="pause", reason=reason) as request:
                paused = Settlement(RunState.PAUSED, reason=reason)
                self._close_if(recorder.honour(request, paused, next_step=at))
            case StopRequest(verb="skip") as request if site is not None:
                return self._skip(site, request)
            case _ if site is not None and recorder.stop_request is not None:
                self._close_if(recorder.answer())
        return False

    def _close_if(self, ended: Activated | None) -> None:
        if ended is not None:
            self.close(ended)
        self.honour_requests()

    def _skip(self, site: Site, request: StopRequest) -> bool:
        """Leave the site out and give the run back in one write, so that no other call of the step is meant."""
        recorder = self._recorder
        rows = []
        if request.step == site.name and not self._is_over(request):
            open_row = latest_scheduled(self._history, site)
            now = recorder.now()
            skipped = (
                closed(open_row, ExecutionState.SKIPPED, Outcome.SKIPPED, now)
                if open_row is not None
                else site.row(
                    recorder.next_position, ExecutionState.SKIPPED, outcome=Outcome.SKIPPED, finished_at=now
                )
            )
            rows = [replace(skipped, details=request.note(RunState.RUNNING))]
            rows += () if site.then is None else site.then(rows[0], True)
        settlement = Settlement(RunState.READY, due_at=recorder.now(), answers_request=True)
        ended = recorder.park(settlement, *rows)
        if ended is not None:
            self.close(replace(ended, ready_in=recorder.run.queue))
        return True

    def _is_over(self, request: StopRequest) -> bool:
        """The call that was meant has ended since: the next one of the same step is another one."""
        if request.at is None or request.was is not None:
            # Of a run that nobody drove: it stood at this very call.
            return False
        return any(
            fact.name == request.step
            and is_final(fact)
            and fact.finished_at is not None
            and fact.finished_at >= request.at
            for fact in self._history
        )


def recorded_position(
    error: BaseException, has_gone_on: Callable[[int], bool] = lambda _: False
) -> int | None:
    """The position of the recorded error that this is, or that it came from; None if it is the body's own.

    Args:
        error: What ``run()`` raised.
        has_gone_on: Calls were recorded behind this position. Then an error that only happened in a handler of the
            recorded one (its implicit ``__context__``) is the body's own: the handler has dealt with the other.
    """
    seen: set[int] = set()
    found: BaseException | None = error
    is_said = True
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        position = getattr(found, _POSITION, None)
        if position is None and isinstance(found, BaseExceptionGroup):
            # A task group wraps what passes through it.
            inside = (recorded_position(error, has_gone_on) for error in found.exceptions)
            position = next((each for each in inside if each is not None), None)
        if isinstance(position, int):
            return position if is_said or not has_gone_on(position) else None
        # Behind `from None` is what the author has dealt with.
        is_said = is_said and found.__cause__ is not None
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return None


def _recorded(site: Site, fact: Fact, failure: BaseException | None) -> Exception:
    """The error that a failed row stands for."""
    error: Exception
    if site.kind is not Kind.STEP and fact.outcome == Outcome.TIMED_OUT:
        error = WaitTimedOut(fact.error_message or f"{site.label}: the wait ran out.")
    else:
        error = child_failure(fact) or StepFailed(site.label, fact.error_class, fact.error_message)
    error.__cause__ = failure
    setattr(error, _POSITION, fact.position)
    return error


def _called_as(kind: str, name: str, key: str | None) -> tuple[str, str, str | None]:
    """The call in ``run()`` to which rows of this kind, name and key belong."""
    return (Kind.REPEAT, name, repetition_of(key)) if kind == Kind.TICK else (kind, name, key)
