"""Asking a hub for a subscription, or to end it, and reading its answer (WebSub 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cronless_dagster.assets.fetching import FetchRefused, retry_after
from cronless_dagster.assets.webhooks.verification import plain_words
from cronless_dagster.engine.errors import PermanentFailure, RetryLater
from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from cronless_dagster.assets.fetching import Fetcher
    from cronless_dagster.assets.webhooks.records import Subscription

Mode = Literal["subscribe", "unsubscribe"]
# Request Timeout, Too Early, Too Many Requests: the same request may succeed later.
_PASSING = (408, 425, 429)


class HubError(CronlessError):
    """A hub refused for now, or doesn't do what it accepted."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a hub is asked: the form of WebSub 5.1. Hubs may grant another lease than the one wished for."""

    mode: Mode
    topic: str
    callback: str
    lease: timedelta
    secret: str

    def fields(self) -> dict[str, str]:
        """Return the form's fields."""
        fields = {"hub.mode": self.mode, "hub.topic": self.topic, "hub.callback": self.callback}
        if self.mode == "unsubscribe":
            return fields
        return {
            **fields,
            "hub.lease_seconds": str(int(self.lease.total_seconds())),
            "hub.secret": self.secret,
        }


def ask(fetcher: Fetcher, subscription: Subscription, request: Request, now: datetime) -> None:
    """Send a request; returns once the hub has accepted it, which says nothing of its verdict.

    Raises:
        RetryLater: The hub asks for patience (429 or 503 with Retry-After, RFC 9110, 10.2.3).
        PermanentFailure: The hub refuses this very request, or lies where nothing may be sent to.
        HubError: It refuses for now.
        FetchError: It can't be reached, or takes too long.
    """
    try:
        response = fetcher.post_form(subscription.hub, request.fields())
    except FetchRefused as error:
        raise PermanentFailure(str(error)) from error
    if 200 <= response.status < 300:
        return
    words = plain_words(response.body) or "no reason given"
    message = f"the hub answered {response.status} to {request.mode} ({words})"
    wait = retry_after(response.headers.get("retry-after", ""), now)
    if response.status in (429, 503) and wait is not None:
        raise RetryLater(f"{message}: asked again when it says", wait)
    if 400 <= response.status < 500 and response.status not in _PASSING:
        raise PermanentFailure(f"{message}: correct the topic or the hub, or unsubscribe")
    raise HubError(message)
