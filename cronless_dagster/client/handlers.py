"""The client as a function that a cloud's scheduler starts each minute.

`lambda_handler` has AWS Lambda's signature, `http_handler` that of Google's functions framework and of Flask's views,
`wsgi_app` that of any WSGI server. Each makes one minute's calls and fails by its platform's own means where a group
was answered nowhere, so that the platform's alarms see it.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .errors import ClientError
from .running import Client, now
from .windows import minute_of, read_minute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .outcomes import Summary

CONFIG_VARIABLE = "CRONLESS_CLIENT_CONFIG"
"""The path of the configuration; unset: `checks.toml` beside this folder, which is where a function's code lies."""

logger = logging.getLogger(__name__)

_KEPT_BACK = 1.0
# A platform that delivers events late, or again, may name a minute long past.
_OLDEST = timedelta(hours=6)
# Google Cloud Scheduler's.
_SCHEDULED_FOR = "X-CloudScheduler-ScheduleTime"


class CallsFailed(ClientError):
    """Groups were answered by no target; the message is a line of JSON that says which calls failed, and why."""


class LambdaContext(Protocol):
    """What is used of the context that AWS Lambda gives."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the function may still run."""


class Request(Protocol):
    """What is used of an HTTP request: Flask's has it, and so have others."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers; their case doesn't matter."""


def lambda_handler(event: object, context: LambdaContext | None) -> dict[str, Any]:
    """Make the calls of the minute that an event was planned for, and return what became of them.

    Args:
        event: With `time` (ISO 8601) as Amazon EventBridge sends it; without, the clock's minute is meant.
        context: Says how much time is left; a second of it is kept for the answer.

    Raises:
        ClientError: The configuration, a secret or the event's time can't be used.
        CallsFailed: A group was answered by no target: Lambda counts the error, and an alarm can watch it.
    """
    left = None if context is None else max(0.0, context.get_remaining_time_in_millis() / 1_000 - _KEPT_BACK)
    planned = event.get("time") if isinstance(event, dict) else None
    summary = _call(planned, left)
    if summary.lost:
        raise CallsFailed(json.dumps(summary.as_dict()))
    return summary.as_dict()


def http_handler(request: Request) -> tuple[str, int, dict[str, str]]:
    """Make the calls of the minute that a request was planned for; return a body, a status and headers.

    200: each group was answered; 502: one was answered by no target; 500: the configuration or a secret can't be
    used. Who may make the request is the platform's to say; a stranger's does no more than a call too many does.
    """
    try:
        summary = _call(request.headers.get(_SCHEDULED_FOR), None)
    except ClientError as error:
        logger.error("%s", error)  # noqa: TRY400 - the sentence says it all
        return _body({"error": str(error)}), 500, _JSON
    return _body(summary.as_dict()), 502 if summary.lost else 200, _JSON


def wsgi_app(
    environ: Mapping[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    """Answer as `http_handler` does, for a WSGI server (PEP 3333)."""
    body, status, headers = http_handler(_WsgiRequest(environ))
    start_response(f"{status} {_WORDS[status]}", list(headers.items()))
    return [body.encode()]


class _WsgiRequest:
    def __init__(self, environ: Mapping[str, Any]) -> None:
        name = f"HTTP_{_SCHEDULED_FOR.upper().replace('-', '_')}"
        self.headers = {_SCHEDULED_FOR: environ[name]} if name in environ else {}


_WORDS = {200: "OK", 500: "Internal Server Error", 502: "Bad Gateway"}
_JSON = {"Content-Type": "application/json"}


def _call(planned: object, seconds: float | None) -> Summary:
    beside = Path(__file__).resolve().parent.parent / "checks.toml"
    client = Client.from_file(os.environ.get(CONFIG_VARIABLE, "").strip() or str(beside), os.environ)
    summary = client.call(_minute(planned), seconds=seconds)
    level = logging.WARNING if summary.failed else logging.INFO
    logger.log(level, "%s", json.dumps({"event": "client.called", **summary.as_dict()}))
    return summary


def _minute(planned: object) -> datetime:
    clock = minute_of(now())
    if planned is None:
        return clock
    minute = read_minute(str(planned))
    if not clock - _OLDEST <= minute <= clock + _OLDEST:
        raise ClientError(
            f"the event's time {minute:%Y-%m-%dT%H:%MZ} is far from the clock's {clock:%Y-%m-%dT%H:%MZ}: send the"
            " planned time of this call, or none"
        )
    return minute


def _body(content: Mapping[str, Any]) -> str:
    return json.dumps(content) + "\n"
