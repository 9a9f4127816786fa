"""One event loop for the whole process, in a thread of its own: where ``async def`` steps run.

One loop and not one a step, so that authors can share HTTP clients and database pools between steps.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from stepwell.errors import RunError, StepTimedOut
from stepwell.execution.suspension import Interrupted

__all__ = ["LoopThread"]


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
        future = asyncio.run_coroutine_threadsafe(_limited(coroutine, timeout), self._ensure())
        with self._lock:
            self._running.add(future)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Interrupted from None
        except BaseException:
            future.cancel()
            raise
        finally:
            with self._lock:
                self._running.discard(future)

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
