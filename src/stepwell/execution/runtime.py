"""What a running activation offers to the methods of its workflow."""

from __future__ import annotations

import copy
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, NoReturn
from uuid import UUID

from stepwell.definition.plan import StepSpec
from stepwell.definition.program import Program
from stepwell.definition.runtime import Logger, current
from stepwell.definition.starting import Starter
from stepwell.errors import RunError
from stepwell.execution.arguments import Arguments
from stepwell.execution.async_body import AsyncBody
from stepwell.execution.attempts import key_renewals
from stepwell.execution.context import Context
from stepwell.execution.cursor import Cursor
from stepwell.execution.journal import Scope
from stepwell.execution.recorder import Recorder
from stepwell.execution.site import Site
from stepwell.execution.suspension import (
    CancelRequested,
    ContinueRequested,
    FinishRequested,
    PauseRequested,
    RetryRequested,
    SkipRequested,
    Suspension,
)
from stepwell.serialization import RecordRef
from stepwell.texts import storable_or_none

__all__ = ["ActivationRuntime"]

_log: Final = logging.getLogger("stepwell.run")
_CONTAINERS: Final = frozenset({list, dict, set, bytearray, deque})
_NO_WAIT: Final = timedelta()


class ActivationRuntime:
    """One activation, as the workflow's verbs and properties see it (see ``definition.runtime.Runtime``).

    Attributes:
        asked: The verb that the current attempt has said. It stands, whatever the author's code makes of the
            exception that carries it.
        failure: The error that made the run fail, if one did.
        told: How far the current attempt has come, as it said by ``progress()``; as it is stored.
        arguments: The start's, as steps see them.
        replay: The body of ``run()``, if the class has one.
        body: The instance whose ``run()`` is called: its steps see what it has put on itself.
        async_body: That ``run()`` as a coroutine, if it is one.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._run = recorder.run
        self.arguments = Arguments(recorder.run.args, self.load)
        self._scope: Scope | None = None
        self._site: Site | None = None
        self.asked: Suspension | None = None
        self._cursor: Cursor | None = None
        self.told: str | None = None
        self._is_telling = False
        self.failure: BaseException | None = None
        self.replay: Program | None = None
        self.body: Any = None
        self.async_body: AsyncBody | None = None

    def attempting(self, site: Site | None, scope: Scope) -> _Attempting:
        """``with`` this for one attempt: answer a fresh instance of the workflow that is connected to this activation.

        Fresh for each attempt, so that what a step leaves on ``self`` is never there in the next one by
        chance and absent after a restart. What ``run()`` has left on its own is there: a replay leaves it there too.
        """
        return _Attempting(self, site, scope)

    def _begin(self, site: Site | None, scope: Scope) -> Any:
        cls: Any = self._run.workflow
        workflow = object.__new__(cls)
        if self.body is not None:
            workflow.__dict__.update({name: _apart(value) for name, value in self.body.__dict__.items()})
        workflow._runtime, workflow._args = self, self.arguments
        self._scope, self._site, self.asked, self.told = scope, site, None, None
        return workflow

    def _end(self) -> None:
        self._scope = self._site = self._cursor = None

    @contextmanager
    def telling(self) -> Iterator[None]:
        """For hooks that are told of something durable: they are in no step any more."""
        self._is_telling, self._cursor, self.asked = True, None, None
        try:
            yield
        finally:
            self._is_telling = False
            self.context.roll_back()

    @property
    def is_in_body(self) -> bool:
        """It is ``run()`` itself that runs now: no step, no condition, no hook."""
        return self.replay is not None and (self._scope is None or self._coroutine is not None)

    @property
    def _coroutine(self) -> AsyncBody | None:
        """The coroutine of ``run()``, if it is what runs in this task."""
        body = self.async_body
        return body if body is not None and body.is_here else None

    @property
    def is_in_step(self) -> bool:
        """There is a step to whose transaction something can be added."""
        return self._scope is not None and not self._is_telling

    def moves(self, cursor: Cursor) -> None:
        """The body that follows is a resumable step's."""
        self._cursor = cursor

    @property
    def cursor(self) -> Cursor:
        if self._cursor is None:
            raise RunError(f"self.cursor works in resumable steps only; {self._step_name()!r} is none.")
        return self._cursor

    @property
    def run_id(self) -> UUID:
        return self._run.id

    @property
    def workflow_version(self) -> int:
        return self._run.version

    @property
    def logger(self) -> Logger:
        facts = {"run_id": str(self._run.id), "workflow": self._run.plan.workflow, "step": self._step_name()}
        return logging.LoggerAdapter(_log, facts)

    @property
    def starter(self) -> Starter:
        return self._recorder.journal.starter

    @property
    def context(self) -> Context:
        if self._coroutine is not None:
            self._coroutine.check("self.context")
        return self._recorder.context

    @property
    def hero(self) -> Any:
        return self._in_step("self.hero").hero

    def resolved(self, value: Any) -> Any:
        """A value that was read back, for a step: references in it answer with the records."""
        return self.arguments.resolved(value)

    def load(self, ref: RecordRef) -> Any:
        return self._in_step("a record among the arguments").load(ref)

    @property
    def session(self) -> Any:
        scope = self._in_step("self.session")
        if self._is_telling:
            raise RunError(
                "this hook is called when everything is committed, and nobody would commit what it writes: "
                "open a session of your own."
            )
        return scope.session

    async def in_session(self, work: Callable[[Any], Any]) -> Any:
        scope = self._in_step("self.in_session()")
        return await self._recorder.journal.call_home(lambda: work(scope.session))

    @property
    def scope(self) -> Scope:
        """The surroundings of the current attempt, for what joins its transaction."""
        return self._in_step("joining the step's transaction")

    @property
    def idempotency_key(self) -> str:
        self._in_step("self.idempotency_key")
        key = f"{self._run.id}:{self._step_name()}"
        renewals = (
            0 if self._site is None else key_renewals(self._recorder.history, self._run.plan, self._site)
        )
        return f"{key}:{renewals + 1}" if renewals else key

    @property
    def stop_requested(self) -> bool:
        return self._recorder.journal.stop_requested

    def call_step(
        self, spec: StepSpec, workflow: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self.is_in_body and self.replay is not None:
            if current.get() is not self:
                raise RunError(
                    f"step {spec.name!r} was called where no activation of its run is active, such as another thread. "
                    "Call steps one after the other in run() itself."
                )
            return self.replay.call_step(spec, args, kwargs)
        raise RunError(
            f"step {spec.name!r} was called from inside step {self._step_name()!r}: a step is durable as a "
            "whole and cannot contain another one. Move the shared code into an ordinary method and call that."
        )

    def durable(self, what: str, work: Callable[[], Any]) -> Any:
        coroutine = self._coroutine
        return work() if coroutine is None else coroutine.call(what, work)

    def program(self, verb: str) -> Program:
        if self._coroutine is not None:
            self._coroutine.check(verb)
        if self.replay is None:
            raise RunError(
                f"{verb} works in run(), and {self._run.plan.workflow} has none: say it by an option of a step, such "
                "as wait=, wait_until= or awaits=."
            )
        if not self.is_in_body:
            raise RunError(
                f"{verb} works in the body of run(), not inside step {self._step_name()!r}: a step is durable as a "
                "whole."
            )
        return self.replay

    def pause(self, reason: str | None, done: bool) -> None:
        if self.is_in_body and self.replay is not None:
            self.replay.pause(storable_or_none(reason))
            return
        self._ask(PauseRequested(storable_or_none(reason), done))

    def cancel(self, reason: str | None) -> NoReturn:
        if self.is_in_body and self.replay is not None:
            self.replay.cancel(storable_or_none(reason))
        self._ask(CancelRequested(storable_or_none(reason)))

    def skip(self) -> NoReturn:
        self._refuse_in_body("skip()")
        self._ask(SkipRequested())

    def retry(self, wait: timedelta | None, rewind: bool) -> NoReturn:
        self._refuse_in_body("retry()")
        self._ask(RetryRequested(_NO_WAIT if wait is None else wait, rewind))

    def finish(self, result: object) -> NoReturn:
        if self.is_in_body and self.replay is not None:
            self.replay.finish(result)
        self._ask(FinishRequested(result))

    def _refuse_in_body(self, verb: str) -> None:
        if self.is_in_body:
            raise RunError(f"{verb} works inside a step only; this is the body of run().")

    def _ask(self, request: Suspension) -> NoReturn:
        if self._is_telling:
            raise RunError("it is too late for a verb: this hook is told what is durable already.")
        if self.asked is None:
            self.asked = request
        raise self.asked

    def suspend(self, wait: timedelta | None) -> NoReturn:
        self._refuse_in_body("suspend()")
        if self._cursor is None:
            raise RunError(f"suspend() works in resumable steps only; {self._step_name()!r} is none.")
        self._ask(ContinueRequested(_NO_WAIT if wait is None else wait))

    def leave(self, wait: timedelta) -> NoReturn:
        """A checkpoint is written, and the step stops there."""
        self._ask(ContinueRequested(wait, is_written=True))

    def progress(self, done: int, total: int | None) -> None:
        self._refuse_in_body("progress()")
        given: tuple[Any, ...] = (done, 0 if total is None else total)
        if not all(isinstance(number, int) for number in given):
            raise TypeError(f"progress() takes whole numbers; got {done!r} and {total!r}")
        self.told = json.dumps({"progress": {"done": done, "total": total}})
        self._recorder.journal.show_progress(done, total)

    def _step_name(self) -> str | None:
        return None if self._site is None else self._site.label

    def _in_step(self, what: str) -> Scope:
        if self._scope is None or self._coroutine is not None:
            raise RunError(f"{what} works inside a step only: what it answers elsewhere is not journaled.")
        return self._scope


def _apart(value: Any) -> Any:
    """What ``run()`` has put on ``self``, for a step: a list that the step changes is another one.

    Other things, such as a client, are the same: nobody can tell what a copy of them would be.
    """
    if type(value) not in _CONTAINERS:
        return value
    try:
        return copy.deepcopy(value)
    except Exception:
        return copy.copy(value)


class _Attempting:
    """An attempt in a ``with`` statement; a generator would cost each step as much as its row."""

    __slots__ = ("_runtime", "_scope", "_site", "_token")

    def __init__(self, runtime: ActivationRuntime, site: Site | None, scope: Scope) -> None:
        self._runtime = runtime
        self._site = site
        self._scope = scope

    def __enter__(self) -> Any:
        workflow = self._runtime._begin(self._site, self._scope)
        self._token = current.set(self._runtime)
        return workflow

    def __exit__(self, *raised: object) -> None:
        current.reset(self._token)
        self._runtime._end()
