"""A small API for tests: made-up secrets, checks that answer as they are told, and a client in the process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cronless_dagster.api.access import Access, Caller
from cronless_dagster.api.app import ApiLimits, CheckApi
from cronless_dagster.api.secrets import digest_of
from cronless_dagster.checks.declaring import Answer, Check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cronless_dagster.api.calls import Call

# Made up, as long as real ones.
PATH = "path-" + "p" * 38
TOKEN = "token-" + "t" * 37
KEY = "key-" + "k" * 39
OTHER_TOKEN = "token-" + "o" * 37
OTHER_KEY = "key-" + "o" * 39
CREDENTIALS = ((b"authorization", f"Bearer {TOKEN}".encode()), (b"x-cronless-key", KEY.encode()))

ALL = Caller("all", (digest_of(TOKEN.encode()),), (digest_of(KEY.encode()),), frozenset({"*"}))
FEW = Caller(
    "few", (digest_of(OTHER_TOKEN.encode()),), (digest_of(OTHER_KEY.encode()),), frozenset({"other"})
)


def access_of(*callers: Caller, paths: tuple[str, ...] = (PATH,)) -> Access:
    """Return an access with these callers, `ALL` and `FEW` unless told."""
    return Access(tuple(digest_of(path.encode()) for path in paths), callers or (ALL, FEW))


@dataclass
class Asks:
    """A check's `ask`: notes with what it was asked, and answers or raises."""

    answers: Callable[[Any], Answer] = lambda _: Answer(0, {}, ())
    calls: list[Any] = field(default_factory=list)

    def __call__(self, asked: Any) -> Answer:
        """Answer."""
        self.calls.append(asked)
        return self.answers(asked)


def checks_of(**asks: Callable[[Any], Answer]) -> dict[str, Check]:
    """Return checks of these names: `checks_of(dispatch=Asks())`."""
    return {
        name: Check(name=name, ids="jobs", every=timedelta(minutes=1), ask=ask) for name, ask in asks.items()
    }


def asked_by_itself(call: Call) -> Any:
    """Ask a check with nothing but its call."""
    return call


def api_of(
    checks: Mapping[str, Check] | None = None,
    access: Access | None = None,
    asked: Callable[[Call], Any] = asked_by_itself,
    **limits: Any,
) -> CheckApi:
    """Return an API; without checks it has "dispatch" and "other", which find nothing to do."""
    if checks is None:
        checks = checks_of(dispatch=Asks(), other=Asks())
    return CheckApi(access or access_of(), checks, asked, ApiLimits(**limits))


@dataclass(frozen=True)
class Got:
    """An answer: its head as it was sent, in order."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    received: int = 0

    @property
    def json(self) -> Any:
        """Return the body's JSON."""
        import json

        return json.loads(self.body)

    def header(self, name: bytes) -> bytes | None:
        """Return a header's value."""
        return dict(self.headers).get(name)


async def ask(
    api: CheckApi,
    path: str = f"/{PATH}/checks/dispatch",
    query: str = "prefix=b",
    *,
    method: str = "POST",
    headers: tuple[tuple[bytes, bytes], ...] = CREDENTIALS,
    body: tuple[bytes, ...] = (b"",),
    peer: str | None = "127.0.0.1",
) -> Got:
    """Send one request to the application, as a server would; `received` says how many pieces of its body it took."""
    parts = list(body)
    sent: list[dict[str, Any]] = []
    received = 0

    async def receive() -> dict[str, Any]:
        nonlocal received
        if not parts:
            await asyncio.Event().wait()
        received += 1
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(errors="replace"),
        "query_string": query.encode(),
        "root_path": "",
        "headers": list(headers),
        "client": (peer, 50_000) if peer else None,
        "server": ("127.0.0.1", 8_088),
    }
    await api(scope, receive, send)
    start, *bodies = sent
    return Got(start["status"], tuple(start["headers"]), b"".join(one["body"] for one in bodies), received)
