"""One event loop for the whole process, in a thread of its own: where ``async def`` steps and ``run()`` are.

One loop and not one a step, so that authors can share HTTP clients and database pools between steps.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar, cast

from stepwell.errors import RunError, StepTimedOut
from stepwell.execution.suspension import Interrupted

__all__ = ["LoopThread"]

T = TypeVar("T")
_home: ContextVar[_Home | None] = ContextVar("stepwell_home", default=None)


class _Home:
    """The thread that waits for a coroutine, and does for it what must happen on that thread."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def serve_until(self, future: concurrent.futures.Future[Any]) -> None:
        """Do what the coroutine asks for, until it is over."""
        future.add_done_callback(lambda _: self._calls.put(None))
        while (call := self._calls.get()) is not None:
            call()

    async def call(self, work: Callable[[], T]) -> T:
        """Have it done there and wait for it without blocking the loop."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if answer.cancelled():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(cast(T, result))

        def do() -> None:
            if answer.cancelled():
                return
            try:
                result = work()
            except BaseException as error:
                loop.call_soon_threadsafe(settle, None, error)
            else:
                loop.call_soon_threadsafe(settle, result, None)

        self._calls.put(do)
        return await answer


class _Body:
    """A coroutine that runs for a waiting thread. How it ended is kept here and raised there.

    So no error reaches the loop: one that ends processes (``sys.exit()`` in a step) would end the loop too, and with
    it every other step that runs on it.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], timeout: timedelta | None) -> None:
        self._coroutine = coroutine
        self._timeout = timeout
        self._task: asyncio.Task[Any] | None = None
        self._is_interrupted = False
        self._value: Any = None
        self._error: BaseException | None = None

    async def run(self) -> None:
        self._task = asyncio.current_task()
        try:
            if self._is_interrupted:
                self._coroutine.close()
                raise Interrupted
            self._value = await _limited(self._coroutine, self._timeout)
        except BaseException as error:
            # Stopped by the worker, it may end by any error; by itself, a cancellation is an error like others.
            self._error = Interrupted() if self._is_interrupted else error

    def interrupt(self) -> None:
        """On the loop: the worker stops it."""
        self._is_interrupted = True
        if self._task is not None:
            self._task.cancel()

    def answer(self) -> Any:
        """On the waiting thread, once it is over: its result, or its error."""
        if self._error is not None:
            raise self._error
        return self._value


class LoopThread:
    """Runs coroutines for threads that wait for them; starts with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._running: set[_Body] = set()
        self._is_closed = False

    def run(
        self,
        coroutine: Coroutine[Any, Any, Any],
        timeout: timedelta | None,
        keep: Callable[[Callable[[], None]], None] = lambda stop: None,
    ) -> Any:
        """Run it to its end and answer its result.

        Args:
            coroutine: What to run.
            timeout: How long it may take.
            keep: Called with what stops it, from any thread.

        Raises:
            StepTimedOut: It took longer than ``timeout``, and was cancelled there.
            Interrupted: The worker stopped it, and it is over.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RunError(
                "an async step cannot wait for another one on the loop's own thread: await it instead."
            )
        body, home = _Body(coroutine, timeout), _Home()
        loop = self._take_on(body, coroutine)
        token = _home.set(home)
        try:
            future = asyncio.run_coroutine_threadsafe(body.run(), loop)
        finally:
            _home.reset(token)
        keep(lambda: self._interrupt(loop, body))
        try:
            home.serve_until(future)
        except BaseException:
            self._interrupt(loop, body)
            raise
        finally:
            with self._lock:
                self._running.discard(body)
        return body.answer()

    def cancel_all(self) -> None:
        """Cancel what is running: each waiting thread gets ``Interrupted`` once its coroutine is over."""
        with self._lock:
            loop, running = self._loop, list(self._running)
        for body in running:
            if loop is not None:
                self._interrupt(loop, body)

    @staticmethod
    def _interrupt(loop: asyncio.AbstractEventLoop, body: _Body) -> None:
        # A loop that is closed runs nothing any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(body.interrupt)

    def close(self) -> None:
        """Stop the loop, and what is running on it."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
        self.cancel_all()
        if loop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=5)

    def _take_on(self, body: _Body, coroutine: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                coroutine.close()
                raise Interrupted
            self._running.add(body)
            if self._loop is None:
                self._loop = self._start()
            return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        started: queue.SimpleQueue[asyncio.AbstractEventLoop] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, args=(started,), name="stepwell-loop", daemon=True
        )
        self._thread.start()
        return started.get()

    def _serve(self, started: queue.SimpleQueue[asyncio.AbstractEventLoop]) -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            started.put(loop)
            while not self._is_closed:
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt):
                    # Of a task beside a body. Whoever awaits it gets the error; the loop goes on.
                    continue

    async def call_home(self, work: Callable[[], T]) -> T:
        """Called in a coroutine: do it on the thread that waits for this coroutine, and answer its result.

        Raises:
            RunError: No thread waits for this coroutine.
        """
        home = _home.get()
        if home is None:
            raise RunError(
                "no step and no run() waits for this coroutine: in_session() works in the body of an async step only."
            )
        return await home.call(work)


async def _limited(coroutine: Coroutine[Any, Any, Any], timeout: timedelta | None) -> Any:
    if timeout is None:
        return await coroutine
    began = time.monotonic()
    limit = asyncio.timeout(timeout.total_seconds())
    try:
        # Inside the loop: only there a timeout really ends the task.
        async with limit:
            return await coroutine
    except TimeoutError:
        if not limit.expired():
            raise
        took = time.monotonic() - began
        raise StepTimedOut(f"the body was cancelled after {took:.1f} s (timeout {timeout})") from None
