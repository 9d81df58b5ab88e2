"""Fetching a document, or only the news that it didn't change; and sending a form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode

from cronless_dagster.assets.fetching.budgets import budget
from cronless_dagster.assets.fetching.client import Answer, Ask, Client
from cronless_dagster.assets.fetching.errors import FetchFailed, FetchLater, FetchRefused
from cronless_dagster.assets.fetching.limits import FetchLimits
from cronless_dagster.assets.fetching.network import Resolve, resolve
from cronless_dagster.assets.fetching.retry_after import retry_after
from cronless_dagster.assets.fetching.robots import REDIRECTS, Robots
from cronless_dagster.assets.fetching.urls import parsed, shown_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_FORM_REDIRECTS = (307, 308)
"""The redirects that keep a method and its body (RFC 9110, section 15.4)."""
_FORM_ANSWER = 65_536
_CHARSET = re.compile(r';[ \t]*charset="?([^\s";]+)', re.IGNORECASE)
_MAY_PASS = (408, 425, 429)
"""The answers of 4xx that say "not now", rather than "not so" (RFC 9110, 8470 and 6585)."""


@dataclass(frozen=True)
class Fetched:
    """A document.

    Attributes:
        url_final: Where it was, after redirects.
        status: 200, or another of 2xx.
        content_type: Such as ``text/html``: in lower case, without parameters; empty where none was given.
        charset: The parameter of that name, as given.
        body: Decompressed.
        etag: What the next fetch may send; None where the server gave none.
        last_modified: The same.
        headers: All of the answer, names in lower case, repeated ones joined by commas.
        fetched_in: Seconds from asking to the last byte, waiting for a turn included.
    """

    url_final: str
    status: int
    content_type: str
    charset: str | None
    body: bytes
    etag: str | None
    last_modified: str | None
    headers: Mapping[str, str]
    fetched_in: float


@dataclass(frozen=True)
class NotModified:
    """The document is still the one that `etag` and `last_modified` were given with (304)."""

    url_final: str
    etag: str | None
    last_modified: str | None
    fetched_in: float


@dataclass(frozen=True)
class Response:
    """The answer to a form, whatever its status; at most 64 KiB of its body."""

    url_final: str
    status: int
    headers: Mapping[str, str]
    body: bytes


class Fetcher:
    """Fetches within the limits, with connections and robots.txt files kept; for any number of threads.

    Args:
        limits: What a fetch may cost.
        resolve: How names become addresses; the system's way unless a test has another.
    """

    def __init__(self, limits: FetchLimits | None = None, *, resolve: Resolve = resolve) -> None:
        self.limits = limits or FetchLimits()
        self._client = Client(self.limits, resolve)
        self._before = Robots(self._client).check if self.limits.robots else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; what is being fetched fails."""
        self._client.close()

    def fetch(
        self,
        url: str,
        *,
        etag: str | None = None,
        last_modified: str | None = None,
        accept: str | None = None,
    ) -> Fetched | NotModified:
        """Fetch a document.

        Args:
            url: Where it is: http or https.
            etag: As the last fetch returned it, to be told only of a change.
            last_modified: The same.
            accept: The media types that are welcome, as the Accept header names them.

        Raises:
            FetchRefused: It won't work until something is changed: the address, 4xx, robots.txt, a private host, a
                body that is too large, redirects without an end.
            FetchLater: The server asks to be left alone for a while.
            FetchFailed: It may work next time: 5xx, a time-out, a broken connection.
        """
        began = monotonic()
        wishes = {"Accept": accept or "*/*", "If-None-Match": etag, "If-Modified-Since": last_modified}
        # What came out of a table may be anything; a header is one line.
        headers = {name: value for name, value in wishes.items() if value and value.isprintable()}
        ask = Ask("GET", headers, REDIRECTS, self.limits.bytes)
        with budget(self.limits.seconds):
            answer = self._client.follow(ask, parsed(url), self._before)
        took = monotonic() - began
        given_etag, given_last_modified = answer.headers.get("ETag"), answer.headers.get("Last-Modified")
        if answer.status == 304 and (etag or last_modified):
            return NotModified(
                str(answer.url), given_etag or etag, given_last_modified or last_modified, fetched_in=took
            )
        _refuse(answer)
        content_type, charset = _media(answer.headers.get("Content-Type", ""))
        return Fetched(
            url_final=str(answer.url),
            status=answer.status,
            content_type=content_type,
            charset=charset,
            body=answer.body,
            etag=given_etag,
            last_modified=given_last_modified,
            headers=dict(answer.headers),
            fetched_in=took,
        )

    def post_form(self, url: str, fields: Mapping[str, str]) -> Response:
        """Send a form (`application/x-www-form-urlencoded`) and return the answer, whatever its status.

        A redirect is followed if it is 307 or 308, which mean the same request once more (WebSub, section 5.1, names
        them for hubs), but not from https to http. robots.txt isn't asked: it is about reading.

        Raises:
            FetchRefused: An address that may not be reached, or redirects without an end.
            FetchFailed: No answer, or none that can be understood.
        """
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "*/*"}
        content = urlencode(fields).encode()
        with budget(self.limits.seconds):
            ask = Ask("POST", headers, _FORM_REDIRECTS, _FORM_ANSWER, content, cut=True)
            answer = self._client.follow(ask, parsed(url))
        return Response(str(answer.url), answer.status, dict(answer.headers), answer.body)


def _refuse(answer: Answer) -> None:
    """Raise what an answer other than 2xx means."""
    if 200 <= answer.status < 300:
        return
    message = f"{shown_url(answer.url)} was answered with {answer.status}."
    if answer.status in (429, 503):
        # A date in HTTP is one of the world's clock, so it is measured against that.
        after = retry_after(answer.headers.get("Retry-After", ""), datetime.now(UTC))
        if after is not None:
            raise FetchLater(f"{message[:-1]}, to be asked again in {after.total_seconds():,.0f} s.", after)
    if answer.status >= 500 or answer.status in _MAY_PASS:
        raise FetchFailed(message)
    raise FetchRefused(message)


def _media(header: str) -> tuple[str, str | None]:
    """Return a Content-Type's media type, empty for what is none, and its charset (RFC 9110, section 8.3)."""
    kind = header.partition(";")[0].strip().lower()
    charset = _CHARSET.search(header)
    return kind if "/" in kind else "", charset[1] if charset else None
