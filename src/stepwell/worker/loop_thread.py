"""One event loop for the whole process, in a thread of its own: where ``async def`` steps run.

One loop and not one a step, so that authors can share HTTP clients and database pools between steps.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
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
            try:
                result = work()
            except BaseException as error:
                loop.call_soon_threadsafe(settle, None, error)
            else:
                loop.call_soon_threadsafe(settle, result, None)

        self._calls.put(do)
        return await answer


class LoopThread:
    """Runs coroutines for threads that wait for them; starts with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._running: set[concurrent.futures.Future[Any]] = set()
        self._is_closed = False

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout: timedelta | None) -> Any:
        """Run it to its end and answer its result.

        Raises:
            StepTimedOut: It took longer than ``timeout``, and was cancelled there.
            Interrupted: The worker stopped it.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RunError(
                "an async step cannot wait for another one on the loop's own thread: await it instead."
            )
        home = _Home()
        token = _home.set(home)
        try:
            future = asyncio.run_coroutine_threadsafe(_limited(coroutine, timeout), self._ensure())
        finally:
            _home.reset(token)
        with self._lock:
            self._running.add(future)
        try:
            home.serve_until(future)
            return future.result()
        except concurrent.futures.CancelledError:
            raise Interrupted from None
        except BaseException:
            future.cancel()
            raise
        finally:
            with self._lock:
                self._running.discard(future)

    async def call_home(self, work: Callable[[], T]) -> T:
        """Called in a coroutine: do it on the thread that waits for this coroutine, and answer its result.

        Raises:
            RunError: No thread waits for this coroutine.
        """
        home = _home.get()
        if home is None:
            raise RunError("no step waits for this coroutine: in_session() works in the body of an async step only.")
        return await home.call(work)

    def cancel_all(self) -> None:
        """Cancel what is running: each waiting thread gets ``Interrupted``."""
        with self._lock:
            running = list(self._running)
        for future in running:
            future.cancel()

    def close(self) -> None:
        """Stop the loop."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(self._stop.set)
            thread.join(timeout=5)

    def _ensure(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise Interrupted
            if self._loop is None:
                started = threading.Event()
                self._thread = threading.Thread(
                    target=self._serve, args=(started,), name="stepwell-loop", daemon=True
                )
                self._thread.start()
                started.wait()
            if self._loop is None:
                raise RuntimeError("the event loop did not start")
            return self._loop

    def _serve(self, started: threading.Event) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            started.set()
            await self._stop.wait()

        with asyncio.Runner() as runner:
            runner.run(serve())


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
