"""A TCP proxy between a worker and its database, which can stop forwarding, refuse, and cut at a chosen message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from sqlalchemy import make_url

__all__ = ["Cut", "Proxy"]

_CHUNK = 65536


@dataclass(eq=False)
class Cut:
    """Cut one connection, once, when these patterns were seen in this order in what the client sent on it.

    Attributes:
        patterns: Bytes; the last one is in the message at which the connection is cut.
        forwards: The server still gets that message.
        waits: The server's answer to it is waited for (and thrown away).
        done: Set when it has happened.
    """

    patterns: tuple[bytes, ...]
    forwards: bool = True
    waits: bool = True
    done: threading.Event = field(default_factory=threading.Event)


class _Watch:
    """How far one connection has come in the patterns of each cut."""

    def __init__(self) -> None:
        self._seen: dict[Cut, bytes] = {}
        self._missing: dict[Cut, list[bytes]] = {}

    def see(self, data: bytes, cuts: Sequence[Cut]) -> Cut | None:
        """The cut whose last pattern this is."""
        return next((cut for cut in cuts if self._fits(cut, data)), None)

    def _fits(self, cut: Cut, data: bytes) -> bool:
        missing = self._missing.setdefault(cut, list(cut.patterns))
        # A pattern may lie across two reads.
        text = self._seen.get(cut, b"") + data
        while missing and missing[0] in text:
            text = text.partition(missing.pop(0))[2]
        self._seen[cut] = text[-100:]
        return not missing


class Proxy:
    """Listens on a port of its own and forwards to the database of a URL.

    Args:
        url: The database's.
    """

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._cuts: list[Cut] = []
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refuses = False

    @property
    def url(self) -> str:
        """The same database, by way of this proxy; in clear text, so that messages can be recognised."""
        url = self._target.set(host="127.0.0.1", port=self._port)
        if url.get_backend_name() == "postgresql":
            url = url.update_query_dict({"sslmode": "disable"})
        return url.render_as_string(hide_password=False)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._wait_for(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait_for(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    # -- faults -------------------------------------------------------------------------------------------------

    def cut(self, *patterns: bytes, forwards: bool = True, waits: bool = True) -> Cut:
        """Cut one connection at the next message that fits."""
        cut = Cut(patterns, forwards, waits)
        self._call(lambda: self._cuts.append(cut))
        return cut

    def stall(self) -> None:
        """Forward nothing more, either way; connections stay open and new ones wait."""
        self._call(self._flowing.clear)

    def refuse(self) -> None:
        """Cut all connections and every new one."""

        def refuse() -> None:
            self._refuses = True
            self._cut_all()

        self._call(refuse)

    def resume(self) -> None:
        """Forward again."""

        def resume() -> None:
            self._refuses = False
            self._flowing.set()

        self._call(resume)

    def cut_all(self) -> None:
        """Cut all connections; new ones are welcome."""
        self._call(self._cut_all)

    # -- on the loop --------------------------------------------------------------------------------------------

    def _call(self, work: Callable[[], Any]) -> None:
        async def call() -> None:
            work()

        self._wait_for(call())

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _open(self) -> None:
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server = await asyncio.start_server(self._welcome, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        self._cut_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cut_all(self) -> None:
        for link in self._links:
            link.abort()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            await self._flowing.wait()
            if self._refuses:
                return
            host, port = self._target.host or "127.0.0.1", self._target.port or 0
            link = _Link(
                (reader, writer), await asyncio.open_connection(host, port), self._flowing, self._cuts
            )
            self._links.add(link)
            await link.run()
        except (OSError, asyncio.CancelledError):
            # A connection that broke, here on purpose as a rule.
            self._links -= {each for each in self._links if each.is_closed}
        finally:
            writer.transport.abort()


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One connection of a client and the one to the server that stands for it."""

    def __init__(self, client: _Streams, server: _Streams, flowing: asyncio.Event, cuts: list[Cut]) -> None:
        self._client_reader, self._client = client
        self._server_reader, self._server = server
        self._flowing = flowing
        self._cuts = cuts
        self._watch = _Watch()
        self._is_muted = False
        self._answered = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._client.transport.is_closing()

    async def run(self) -> None:
        pumps = [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._answers())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def abort(self) -> None:
        self._client.transport.abort()
        self._server.transport.abort()

    async def _requests(self) -> None:
        while data := await self._client_reader.read(_CHUNK):
            await self._flowing.wait()
            cut = self._watch.see(data, self._cuts)
            if cut is None:
                self._server.write(data)
                await self._server.drain()
                continue
            self._cuts.remove(cut)
            await self._carry_out(cut, data)
            return

    async def _answers(self) -> None:
        while data := await self._server_reader.read(_CHUNK):
            if self._is_muted:
                self._answered.set()
                continue
            await self._flowing.wait()
            self._client.write(data)
            await self._client.drain()

    async def _carry_out(self, cut: Cut, data: bytes) -> None:
        self._is_muted = True
        if cut.forwards:
            self._server.write(data)
            await self._server.drain()
            if cut.waits:
                await asyncio.wait_for(self._answered.wait(), timeout=10)
        self.abort()
        cut.done.set()
