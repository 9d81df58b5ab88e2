"""A WebSub hub on a loopback port, and the callbacks' application served by a real uvicorn."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import httpx
import uvicorn

from tests.assets.web import Reply, Request, WebServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from starlette.applications import Starlette

TOPIC = "https://feeds.example/made-up.xml"


@dataclass
class Hub:
    """A hub that grants what it is told to, in the middle of a request (`at_once`) or when `verify` is called.

    Attributes:
        lease: What it grants, whatever was wished for; texts may be garbage.
        answer: How it answers requests.
        requests: The forms it was sent.
        verdicts: The subscriber's answers to its GETs: status and body.
    """

    lease: str = "864000"
    at_once: bool = False
    answer: Reply = field(default_factory=lambda: Reply(202))
    seconds: float = 0.0
    requests: list[dict[str, str]] = field(default_factory=list)
    verdicts: list[httpx.Response] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = WebServer({"/hub": self._asked, "/moved": self._moved})

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.__exit__(kind, error, trace)

    @property
    def url(self) -> str:
        """Where requests go."""
        return self.server.url("/hub")

    def _asked(self, request: Request) -> Reply:
        assert request.headers["content-type"] == "application/x-www-form-urlencoded"
        self.requests.append(request.form)
        if self.at_once:
            self.verify()
        if self.seconds:
            self.server.wait(self.seconds)
        return self.answer

    def _moved(self, request: Request) -> Reply:
        return Reply(308, headers={"Location": self.url})

    def verify(self, **changed: str) -> httpx.Response:
        """Send the GET that the last request asks for, with fields changed: `topic="…"`; returns the answer."""
        asked = self.requests[-1]
        fields = {
            "hub.mode": asked["hub.mode"],
            "hub.topic": asked["hub.topic"],
            "hub.challenge": "made-up-challenge",
            "hub.lease_seconds": self.lease,
            **{f"hub.{name}": value for name, value in changed.items()},
        }
        answer = httpx.get(asked["hub.callback"], params=fields, timeout=30)
        self.verdicts.append(answer)
        return answer

    def deny(self, reason: str = "not for you") -> httpx.Response:
        """Send the GET of WebSub 5.2."""
        asked = self.requests[-1]
        fields = {"hub.mode": "denied", "hub.topic": asked["hub.topic"], "hub.reason": reason}
        return httpx.get(asked["hub.callback"], params=fields, timeout=30)

    def deliver(self, body: bytes, *, method: str = "sha256", **headers: str) -> httpx.Response:
        """Deliver content, signed with the secret of the first request that had one."""
        asked = next(one for one in self.requests if "hub.secret" in one)
        digest = hmac.new(asked["hub.secret"].encode(), body, getattr(hashlib, method)).hexdigest()
        sent = {"Content-Type": "application/atom+xml", "X-Hub-Signature": f"{method}={digest}", **headers}
        return httpx.post(asked["hub.callback"], content=body, headers=sent, timeout=30)


@contextmanager
def served(app: Starlette) -> Iterator[str]:
    """Serve an application on a free loopback port; gives its address."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, name="callbacks")
    thread.start()
    try:
        hang_guard = time.monotonic() + 60
        while not server.started and thread.is_alive() and time.monotonic() < hang_guard:
            time.sleep(0.01)
        assert server.started
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
