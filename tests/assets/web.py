"""A real HTTP server on a loopback port whose routes are functions, and which counts what it served."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


@dataclass(frozen=True)
class Request:
    """What a client asked: header names in lower case, the body already read."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """The fields of a body that is `application/x-www-form-urlencoded`."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


@dataclass(frozen=True)
class Reply:
    """What a route answers. A body of several parts is sent chunked, each part as soon as it is there."""

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Bytes for the wire from the status line on, right or wrong; then the connection is closed."""

    parts: Iterable[bytes]


@dataclass(frozen=True)
class Reset:
    """No answer: the connection is torn down, as by a crashed server."""


Route = Callable[[Request], "Reply | Raw | Reset | bytes"]


class WebServer:
    """Serves while its `with` block lasts, each connection in a thread of its own, connections kept alive.

    A route is called with the `Request` and returns a `Reply`, a `Raw`, a `Reset`, or the bytes of a body. The route
    of a path is looked up exactly, then `"*"`; without one the answer is 404. A route that waits does so by
    `server.wait(seconds)`, which ends early with the server.

    Attributes:
        requests: Everything asked, in order.
        counts: How often each path was asked for.
        highest: The most requests that were served at the same time.
        connections: How many connections were opened.
    """

    def __init__(
        self,
        routes: Mapping[str, Route] | None = None,
        *,
        host: str = "127.0.0.1",
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self.routes: dict[str, Route] = dict(routes or {})
        self.requests: list[Request] = []
        self.counts: Counter[str] = Counter()
        self.highest = self.connections = 0
        self._host, self._scheme = host, "https" if certificate else "http"
        self._now = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server = _Server((host, 0), self)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="web server")

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def url(self, path: str = "/", *, host: str | None = None) -> str:
        """Return the address of a path, by another name of this machine if one is given."""
        name = host or self._host
        return f"{self._scheme}://{f'[{name}]' if ':' in name else name}:{self.port}{path}"

    def wait(self, seconds: float) -> None:
        """Wait in a route, but not beyond the end of the server."""
        self._stopping.wait(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def answer(self, request: Request, send: Callable[[Reply | Raw | Reset], None]) -> None:
        """Count a request and send its route's answer; a body that comes in parts counts to its end."""
        with self._lock:
            self.requests.append(request)
            self.counts[request.path] += 1
            self._now += 1
            self.highest = max(self.highest, self._now)
        try:
            route = self.routes.get(request.path) or self.routes.get("*")
            answer = route(request) if route else Reply(404)
            send(Reply(body=answer) if isinstance(answer, bytes) else answer)
        finally:
            with self._lock:
                self._now -= 1


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], web: WebServer) -> None:
        self.web = web
        self._open: set[socket.socket] = set()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.web.connections += 1
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Wake the threads that wait for a next request on a connection kept alive."""
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65_536
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is the base class's
        pass

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(
            method=self.command,
            path=parts.path,
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )
        self.server.web.answer(request, self._send)

    do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = _handle  # noqa: N815  # the names are the base class's

    def _send(self, reply: Reply | Raw | Reset) -> None:
        if isinstance(reply, Reset):
            # Lingering for no time at all makes closing a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
        elif isinstance(reply, Raw):
            self.close_connection = True
            for part in reply.parts:
                self.wfile.write(part)
                self.wfile.flush()
        else:
            self._send_reply(reply)

    def _send_reply(self, reply: Reply) -> None:
        whole = reply.body if isinstance(reply.body, bytes) else None
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if whole is None:
            self.send_header("Transfer-Encoding", "chunked")
        elif reply.status not in (204, 304):
            self.send_header("Content-Length", str(len(whole)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if whole is not None:
            self.wfile.write(whole)
            self.wfile.flush()
            return
        for part in reply.body:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
