"""What is sent back: one constant 404 for whatever isn't authorised, and JSON for those who are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Send

_NOT_FOUND_BODY = b"Not Found"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; its headers are exactly these, the server's `date` aside."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]

    async def send(self, send: Send) -> None:
        """Send it whole."""
        await send({"type": "http.response.start", "status": self.status, "headers": list(self.headers)})
        await send({"type": "http.response.body", "body": self.body})


NOT_FOUND = Reply(
    404,
    _NOT_FOUND_BODY,
    (
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(_NOT_FOUND_BODY)).encode()),
        # What is left of a body that nobody wants isn't read.
        (b"connection", b"close"),
    ),
)
"""For an unknown path, a wrong method, a wrong secret, a check that isn't there or isn't theirs: byte for byte."""


def as_json(status: int, content: Mapping[str, Any], *, retry_after: int | None = None) -> Reply:
    """Return an answer in JSON; `retry_after` is the header's seconds."""
    body = json.dumps(content, separators=(",", ":")).encode() + b"\n"
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if retry_after is not None:
        headers.append((b"retry-after", str(retry_after).encode()))
    return Reply(status, body, tuple(headers))


def refusal(status: int, sentence: str, *, retry_after: int | None = None) -> Reply:
    """Return `{"error": sentence}`."""
    return as_json(status, {"error": sentence}, retry_after=retry_after)
