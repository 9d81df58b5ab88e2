"""The demo's WebSub hub: it takes requests, verifies them a moment later, and delivers nothing.

Its leases last minutes, where real ones last days, so that renewals can be watched.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import httpx
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, Response

from cronless_dagster.scheduling.hashing import stable_hash

if TYPE_CHECKING:
    from starlette.requests import Request

# A demo without a failure would show nothing of retries: every other request for one topic in ten is put off.
_PUTTING_OFF = 10
_RETRY_AFTER = timedelta(seconds=20)
_SECONDS = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as WebSub 5.1 has it."""

    mode: str
    topic: str
    callback: str

    @property
    def is_usable(self) -> bool:
        """Whether it is one that this hub takes; it calls nobody outside of this machine."""
        return self.mode in ("subscribe", "unsubscribe") and urlsplit(self.callback).hostname == "127.0.0.1"

    @property
    def lease(self) -> timedelta:
        """What is granted: eight to thirty minutes, by the topic. A tick a minute renews shorter ones too late."""
        return timedelta(minutes=8 + stable_hash("lease", self._path) % 23)

    @property
    def is_put_off_first(self) -> bool:
        """Whether the first request, the third and so on are answered by 503."""
        return stable_hash("put off", self._path) % _PUTTING_OFF == 0

    @property
    def _path(self) -> str:
        return urlsplit(self.topic).path


class Hub:
    """Remembers only how often it was asked for a topic."""

    def __init__(self) -> None:
        """Start without any memory."""
        self._asked: Counter[str] = Counter()

    async def take(self, request: Request) -> Response:
        """Answer a request: 202 and a verification later, 503 with Retry-After, or 400."""
        form = dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
        asked = Asked(*(form.get(f"hub.{name}", "") for name in ("mode", "topic", "callback")))
        if not asked.is_usable:
            return PlainTextResponse("hub.mode or hub.callback can't be used", 400)
        self._asked[asked.topic] += 1
        if asked.is_put_off_first and self._asked[asked.topic] % 2:
            seconds = int(_RETRY_AFTER.total_seconds())
            return PlainTextResponse(
                "made-up overload, so that a retry is seen", 503, {"Retry-After": str(seconds)}
            )
        return Response(status_code=202, background=BackgroundTask(verify, asked))


async def verify(asked: Asked) -> None:
    """Ask the callback whether the request was its own (WebSub 5.3), which grants the lease."""
    challenge = secrets.token_urlsafe()
    fields = {"hub.mode": asked.mode, "hub.topic": asked.topic, "hub.challenge": challenge}
    if asked.mode == "subscribe":
        fields["hub.lease_seconds"] = str(int(asked.lease.total_seconds()))
    try:
        async with httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as client:
            answer = await client.get(asked.callback, params=fields)
    except httpx.HTTPError as error:
        logger.warning("%s could not be verified: %s", asked.topic, type(error).__name__)
        return
    if not answer.is_success or answer.text != challenge:
        logger.warning("%s was not confirmed: status %s", asked.topic, answer.status_code)
