"""A web server on loopback that answers as a test says, and writes down what it was asked."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Answer:
    """What to answer; `cut` ends the connection after so many bytes of the body."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


@dataclass(frozen=True)
class Asked:
    """What was asked."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Web:
    """Serves while it is entered; `answers` is called for each question."""

    def __init__(self) -> None:
        self.answers: Callable[[Asked], Answer] = lambda _: Answer({"data": {"version": "0"}})
        self.asked: list[Asked] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.path, headers, json.loads(self.rfile.read(size)))
                web.asked.append(asked)
                answer = web.answers(asked)
                body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if answer.cut is None:
                    self.wfile.write(body)
                else:
                    self.wfile.write(body[: answer.cut])
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
