"""Targets for tests: real HTTP servers on loopback that answer as a test says; and configurations."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from cronless_dagster.client.config import parse_config
from cronless_dagster.client.credentials import Credentials

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from cronless_dagster.client.config import Config

WHO = Credentials("made-up-path-of-tests", "made-up-token-of-tests", "made-up-key-of-the-tests")
ENVIRONMENT = {
    "CRONLESS_CLIENT_PATH": WHO.path,
    "CRONLESS_CLIENT_TOKEN": WHO.token,
    "CRONLESS_CLIENT_KEY": WHO.key,
}


@dataclass
class Served:
    """A server that runs, and what it was asked."""

    port: int
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


def answer(path: str, acted: int = 1) -> bytes:
    """What the API says to a call with this path."""
    check = path.partition("?")[0].rpartition("/")[2]
    return json.dumps({"check": check, "acted": acted, "counts": {}, "notes": []}).encode()


class Handler(BaseHTTPRequestHandler):
    """A request, given to the test's function; `reply` answers it."""

    protocol_version = "HTTP/1.1"
    served: Served
    respond: Callable[[Handler], None]
    lock: Lock

    def setup(self) -> None:
        """Count the connection."""
        super().setup()
        with self.lock:
            self.served.connections += 1

    def do_POST(self) -> None:
        """Note the request, and let the test answer it."""
        with self.lock:
            self.served.paths.append(self.path)
            self.served.headers.append(dict(self.headers))
        type(self).respond(self)

    def reply(self, status: int = 200, body: bytes | None = None, **headers: str) -> None:
        """Answer; without a body, as the API does when the check is carried out."""
        content = answer(self.path) if body is None else body
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def raw(self, sent: bytes) -> None:
        """Answer by these bytes, and hang up."""
        self.wfile.write(sent)
        self.wfile.flush()
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that hang up are the tests' subject."""


@contextmanager
def serving(
    respond: Callable[[Handler], None] = Handler.reply, context: ssl.SSLContext | None = None
) -> Iterator[Served]:
    """Serve until the end of the block, by TLS if a context is given."""
    served = Served(0)
    made = type("Made", (Handler,), {"served": served, "respond": staticmethod(respond), "lock": Lock()})
    with _Server(("127.0.0.1", 0), made) as server:
        served.port = server.server_address[1]
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield served
        finally:
            server.shutdown()


def unused_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def config_of(
    targets: dict[str, str],
    checks: str = '[[check]]\nname = "dispatch"\n',
    *,
    top: str = "",
    sending: str = "timeout_seconds = 5",
    retries: str = "most = 2\nbase_seconds = 0.01\ncap_seconds = 0.02",
) -> Config:
    """A configuration with these targets."""
    return parse_config(text_of(targets, checks, top=top, sending=sending, retries=retries))


def text_of(
    targets: dict[str, str],
    checks: str = '[[check]]\nname = "dispatch"\n',
    *,
    top: str = "",
    sending: str = "",
    retries: str = "",
) -> str:
    """The same as text."""
    named = "\n".join(f'{name} = "{url}"' for name, url in targets.items())
    return f"{top}\n[targets]\n{named}\n[sending]\n{sending}\n[retries]\n{retries}\n{checks}"
