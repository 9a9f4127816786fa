"""A cable between a client and a database server that can be cut at a chosen moment."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final

from sqlalchemy import URL, make_url

__all__ = ["Cable", "Cut"]

_CHUNK: Final = 1 << 16


class Cut(Enum):
    """What becomes of the message at which the cable is cut."""

    LOST = "the server never gets it"
    DONE = "the server gets it and answers, and the client never hears of it"
    LATE = "the client is cut off at once, and the server gets it when it is let through"


class Cable:
    """A TCP proxy in front of a database server.

    Args:
        url: The server's database.

    Attributes:
        round_trips: How often the client has sent something and waited for an answer.
        cuts: How many connections were cut.
    """

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._server = (str(self._url.host), int(self._url.port or 0))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._trap: tuple[Callable[[bytes], bool], Cut] | None = None
        self._lock = threading.Lock()
        self._let_through, self._arrived = threading.Event(), threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.round_trips = 0
        self.cuts = 0
        self._start(self._accept)

    @property
    def url(self) -> str:
        """The same database, through the cable."""
        port = self._listener.getsockname()[1]
        through: URL = self._url.set(host="127.0.0.1", port=port)
        return through.render_as_string(hide_password=False)

    def cut(self, how: Cut, at: Callable[[bytes], bool] = lambda message: True) -> None:
        """Cut the connection that sends the next message for which ``at`` holds."""
        self._let_through.clear()
        self._arrived.clear()
        with self._lock:
            self._trap = (at, how)

    def let_through(self) -> None:
        """Let the message of a ``LATE`` cut reach the server, and wait until it has answered."""
        self._let_through.set()
        if not self._arrived.wait(timeout=10):
            raise TimeoutError("the server did not answer")

    def close(self) -> None:
        self._let_through.set()
        for end in [self._listener, *self._sockets]:
            _close(end)
        for thread in self._threads:
            thread.join(timeout=10)

    # -- pumping --------------------------------------------------------------------------------------------

    def _start(self, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(end)
            line = _Line(client, server)
            self._start(lambda line=line: self._pump_up(line))  # type: ignore[misc]
            self._start(lambda line=line: self._pump_down(line))  # type: ignore[misc]

    def _pump_up(self, line: _Line) -> None:
        with suppress(OSError):
            while message := line.client.recv(_CHUNK):
                how = self._sprung(message)
                if how is Cut.LATE:
                    _close(line.client)
                    self._let_through.wait(timeout=30)
                if how is not None:
                    line.is_cut = True
                if how is not Cut.LOST:
                    self._note(line)
                    line.server.sendall(message)
                if how is not None:
                    if how is not Cut.LOST:
                        line.answered.wait(timeout=10)
                        self._arrived.set()
                    break
        line.end()

    def _pump_down(self, line: _Line) -> None:
        with suppress(OSError):
            while answer := line.server.recv(_CHUNK):
                line.waits_for_answer = False
                if line.is_cut:
                    line.answered.set()
                else:
                    line.client.sendall(answer)
        line.answered.set()
        line.end()

    def _note(self, line: _Line) -> None:
        if not line.waits_for_answer:
            line.waits_for_answer = True
            with self._lock:
                self.round_trips += 1

    def _sprung(self, message: bytes) -> Cut | None:
        with self._lock:
            if self._trap is None or not self._trap[0](message):
                return None
            how, self._trap = self._trap[1], None
            self.cuts += 1
            return how


class _Line:
    """One connection: the client's end and the server's."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.is_cut = False
        self.waits_for_answer = False
        self.answered = threading.Event()

    def end(self) -> None:
        _close(self.client)
        _close(self.server)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
