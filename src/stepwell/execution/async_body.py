"""``run()`` as a coroutine: on the process's event loop, with its durable calls on the activation's own thread.

Nothing is written, and no step's body called, on the loop. What ends an activation reaches the coroutine as the error
of the call that it awaits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Final, NoReturn

from stepwell.errors import RunError
from stepwell.execution.journal import Journal
from stepwell.execution.suspension import Interrupted, Suspension, find_suspension

__all__ = ["AsyncBody", "is_the_end"]

GRACE_SECONDS = 5.0
"""How long a coroutine may go on by itself once its activation has ended, before it is cancelled; and then again."""
MOST_CANCELLATIONS = 3
"""So often it is cancelled before it is left alone."""
_FOR_GOOD: Final = timedelta(days=36500).total_seconds()

_here: ContextVar[AsyncBody | None] = ContextVar("stepwell_async_body", default=None)


class _Left(Suspension):
    """``run()`` is over, by a verb of its own or at its end."""


class AsyncBody:
    """One pass through the coroutine of ``run()``.

    Args:
        journal: Knows the way to the loop and back.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._loop: asyncio.AbstractEventLoop | None = None
        self._numbers = count()
        self._made: dict[int, tuple[str, Coroutine[Any, Any, Any]]] = {}
        self._under_way: str | None = None
        self._torn: str | None = None
        self._ended: BaseException | None = None
        self._is_over: asyncio.Future[None] | None = None
        self._last: Callable[[], NoReturn] | None = None
        self._left: list[str] = []
        self._is_left_alone = False
        self._error: BaseException | None = None
        self._value: Any = None

    # -- on the activation's thread -----------------------------------------------------------------------------

    def run(self, function: Callable[[], Any]) -> Any:
        """Run the coroutine that ``function`` makes to its end, and answer its result.

        Raises:
            Interrupted: The worker has stopped it.
        """
        try:
            self._journal.run_coroutine(self._supervised(function), None)
        except Interrupted:
            if self._last is None:
                raise
        if self._last is not None:
            with contextlib.suppress(Suspension):
                self._last()
        if self._error is not None:
            raise self._error
        self._refuse_if_torn()
        if self._left:
            raise RunError(
                f"run() has ended without awaiting {' and '.join(self._left)}: write await in front of each durable "
                "call, and start no task with one."
            )
        return self._value

    # -- in the coroutine ---------------------------------------------------------------------------------------

    @property
    def is_here(self) -> bool:
        """What runs now is the coroutine, or a task that it has started; no step, and no thread of another's."""
        return _here.get() is self

    def call(
        self, what: str, work: Callable[[], Any], recorded: Callable[[], tuple[Any] | None] | None = None
    ) -> Coroutine[Any, Any, Any]:
        """What does ``work`` on the activation's thread, once it is awaited.

        Args:
            what: What is called, for people.
            work: Does it.
            recorded: Looks first, on the loop, whether that is needed; it answers (the result,) if not.
        """
        number = next(self._numbers)
        call = self._called(number, what, work, recorded)
        self._made[number] = (what, call)
        return call

    def end(self, what: str, work: Callable[[], NoReturn]) -> NoReturn:
        """``run()`` ends here: ``work`` is done as soon as the coroutine is over."""
        if self._ended is not None:
            raise self._ended
        self.check(what)
        self._refuse_if_torn()
        self._last = work
        self._stop(_Left())
        raise _Left

    def check(self, what: str) -> None:
        """Refuse what must not happen beside a durable call, nor in another thread.

        Raises:
            RunError: It would.
        """
        if not self._is_on_loop():
            raise RunError(
                f"{what} was called in another thread than the one of run(): call it in run() itself."
            )
        if self._under_way is not None:
            raise RunError(
                f"{what} was called while {self._under_way} of the same run is under way: a replay goes by the "
                "order of the calls, so await one after the other. What should happen at the same time belongs into "
                "one async step."
            )

    def _refuse_if_torn(self) -> None:
        if self._torn is not None:
            raise RunError(
                f"{self._torn} was cancelled while it was under way, as asyncio.timeout() does, and run() went on. A "
                "replay would pass it and take another way. Limit a step by its own timeout=, and a wait by that of "
                "the verb."
            )

    def _refuse_if_forgotten(self, number: int, what: str) -> None:
        """A wait that nobody waits for must not let what stands behind it happen."""
        forgotten = next((other for made, (other, _) in self._made.items() if made < number), None)
        if forgotten is not None:
            raise RunError(
                f"{forgotten} was called before {what} and has not been awaited: write await in front of it. Durable "
                "calls happen in the order in which they are called."
            )

    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def _called(
        self,
        number: int,
        what: str,
        work: Callable[[], Any],
        recorded: Callable[[], tuple[Any] | None] | None,
    ) -> Any:
        self._made.pop(number, None)
        if self._ended is not None:
            await self._raise_again(self._ended)
        self.check(what)
        self._refuse_if_torn()
        self._refuse_if_forgotten(number, what)
        self._under_way = what
        try:
            known = None if recorded is None else recorded()
            if known is None:
                return await self._at_home(what, work)
            # One that is called meanwhile is refused on a replay as on the first pass.
            await asyncio.sleep(0)
            return known[0]
        finally:
            self._under_way = None

    async def _at_home(self, what: str, work: Callable[[], Any]) -> Any:
        home = asyncio.ensure_future(self._journal.call_home(partial(_result_of, work)))
        is_cancelled = False
        while not home.done():
            try:
                await asyncio.wait({home})
            except asyncio.CancelledError:
                # It is being done and cannot be called back: what comes of it is recorded.
                is_cancelled = True
        value, error = home.result()
        if error is not None and not isinstance(error, Exception):
            self._stop(error)
            raise error
        if is_cancelled:
            if self._ended is None:
                self._torn = what
            raise asyncio.CancelledError
        if error is not None:
            raise error
        return value

    async def _raise_again(self, ended: BaseException) -> NoReturn:
        if self._is_left_alone:
            # It has been left alone: whatever it does to go on, it stands still here.
            await asyncio.get_running_loop().create_future()
        # Code that swallows it in a loop must not keep the loop from everything else.
        await asyncio.sleep(0)
        raise ended

    # -- around it ----------------------------------------------------------------------------------------------

    def _stop(self, error: BaseException) -> None:
        """Whatever durable call comes next raises this."""
        if self._ended is None:
            self._ended = error
        if self._is_over is not None and not self._is_over.done():
            self._is_over.set_result(None)

    async def _supervised(self, function: Callable[[], Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_over = self._loop.create_future()
        _here.set(self)
        body = asyncio.create_task(self._kept(function))
        try:
            await asyncio.wait({body, self._is_over}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({body}, timeout=GRACE_SECONDS)
            await self._cancel(body)
        except asyncio.CancelledError:
            # The worker drains. What has not been decided by now is not decided any more.
            if self._ended is None:
                self._ended = asyncio.CancelledError()
            await self._cancel(body)
            raise
        finally:
            await self._tidy_up()

    async def _kept(self, function: Callable[[], Any]) -> None:
        """Run it and keep how it ended: no error of it may reach the loop."""
        try:
            self._value = await function()
        except BaseException as error:
            self._error = error

    async def _cancel(self, body: asyncio.Task[None]) -> None:
        """Cancel it until it is over; one that does not end although its activation has is left alone at last."""
        times = 0
        while not body.done():
            is_decided = self._is_over is not None and self._is_over.done()
            if is_decided and self._under_way is None and times >= MOST_CANCELLATIONS:
                self._is_left_alone = True
                # The loop remembers it: to be collected is one more thing that it would swallow.
                asyncio.get_running_loop().call_later(_FOR_GOOD, body.cancel)
                return
            body.cancel()
            times += 1
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({body}, timeout=GRACE_SECONDS)

    async def _tidy_up(self) -> None:
        """Let nothing go on by itself: neither a call that nobody awaits nor a task that ``run()`` has started."""
        made = list(self._made.values())
        self._left = [what for what, _ in made] + ([] if self._under_way is None else [self._under_way])
        if self._ended is None:
            self._ended = _Left()
        if made:
            # Calls in tasks that have not begun yet begin now, and are refused; the others never will.
            await asyncio.sleep(0)
            for _, call in self._made.values():
                call.close()


def is_the_end(error: BaseException) -> bool:
    """A coroutine raises this when it lets the end of its activation pass, or is cancelled after it.

    Task groups wrap what passes through them.
    """
    return isinstance(error, Interrupted | asyncio.CancelledError) or find_suspension(error) is not None


def _result_of(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What it answers, or its error: as a value, since not every error can be a future's."""
    try:
        return work(), None
    except BaseException as error:
        return None, error
