"""A TCP proxy between a client and a broker, which can swallow everything or hang up."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Proxy:
    """Listens on a loopback port and passes on to another; without one it only takes connections."""

    def __init__(self, target_port: int | None = None) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._open: set[socket.socket] = set()
        self._swallow = self._hang_up = self._stop = False
        self._thread = threading.Thread(target=self._run, name="proxy")
        self._thread_end: socket.socket
        self._thread_end, self._waker = socket.socketpair()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._thread_end, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop = True
        self._waker.send(b".")
        self._thread.join()
        for one in (*self._open, self._listener, self._thread_end, self._waker):
            one.close()
        self._selector.close()

    def swallow(self) -> None:
        """Pass nothing on from now on, and go on reading."""
        self._swallow = True

    def hang_up(self) -> None:
        """Close all connections, and wait until that is done."""
        self._hang_up = True
        self._waker.send(b".")
        while self._hang_up:
            self._thread.join(0.01)

    def _run(self) -> None:
        while not self._stop:
            for key, _ in self._selector.select():
                self._serve(key.fileobj, key.data)
            if self._hang_up:
                for one in list(self._open):
                    self._drop(one)
                self._hang_up = False

    def _serve(self, source: socket.socket, target: socket.socket | None) -> None:
        if source is self._listener:
            self._accept()
        elif source is self._thread_end:
            source.recv(1)
        elif source in self._open:
            try:
                data = source.recv(65_536)
                if not data:
                    raise ConnectionError
                if target is not None and not self._swallow:
                    target.sendall(data)
            except OSError:
                self._drop(source)
                if target is not None:
                    self._drop(target)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = None
        if self._target_port is not None:
            server = socket.create_connection(("127.0.0.1", self._target_port))
            self._take(server, client)
        self._take(client, server)

    def _take(self, one: socket.socket, other: socket.socket | None) -> None:
        self._open.add(one)
        self._selector.register(one, selectors.EVENT_READ, other)

    def _drop(self, one: socket.socket) -> None:
        if one in self._open:
            self._open.remove(one)
            self._selector.unregister(one)
            with suppress(OSError):
                one.close()
