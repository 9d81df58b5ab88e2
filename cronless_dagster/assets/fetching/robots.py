"""robots.txt (RFC 9309), read once a day for each server."""

from __future__ import annotations

from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from protego import Protego

from cronless_dagster.assets.fetching.budgets import free_of_charge, left
from cronless_dagster.assets.fetching.client import Ask
from cronless_dagster.assets.fetching.errors import FetchFailed, FetchRefused
from cronless_dagster.assets.fetching.urls import origin_of, shown_url

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from cronless_dagster.assets.fetching.client import Client

REDIRECTS = (301, 302, 303, 307, 308)
_MOST_BYTES = 512_000
"""As much of it is read (section 2.5)."""
_MOST_WORK = 5_000_000
"""Names times lines: reading a file that repeats its rules for thousands of names would take minutes and gigabytes."""
_GOOD_SECONDS = 86_400.0
"""How long what was read counts (section 2.4)."""
_FAILED_SECONDS = 60.0
"""How long a server whose file can't be read is left alone."""
_MOST_SERVERS = 1_000
_EVERYTHING = Protego.parse("")


class _Server:
    """What is known of one server's file: rules, or why there are none."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.rules: Protego | None = None
        self.failure = ""
        self.until = float("-inf")


class Robots:
    """Says what may be fetched; the rules are kept for each scheme, host and port.

    A file that doesn't exist (4xx) forbids nothing; one that can't be reached (5xx, 429, no answer) forbids
    everything for now, unless an older copy is at hand (section 2.3.1). `Crawl-delay` is no part of the standard and
    isn't read.
    """

    def __init__(self, client: Client, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._agent = client.limits.user_agent.partition("/")[0].strip()
        self._clock = clock
        self._servers: dict[str, _Server] = {}
        self._lock = Lock()

    def check(self, url: httpx.URL) -> None:
        """Return if an address may be fetched.

        Raises:
            FetchRefused: The rules forbid it.
            FetchFailed: The rules can't be read.
        """
        server = self._server(origin_of(url))
        with free_of_charge():
            server.lock.acquire()
        try:
            if self._clock() >= server.until:
                self._read(server, url.copy_with(raw_path=b"/robots.txt"))
            rules, failure = server.rules, server.failure
        finally:
            server.lock.release()
        if rules is None:
            raise FetchFailed(failure)
        if not rules.can_fetch(str(url), self._agent):
            raise FetchRefused(
                f"The robots.txt of {origin_of(url)} forbids {shown_url(url)} to {self._agent}: leave it out."
            )

    def _server(self, origin: str) -> _Server:
        with self._lock:
            server = self._servers.setdefault(origin, _Server())
            if len(self._servers) > _MOST_SERVERS:
                del self._servers[next(iter(self._servers))]
            return server

    def _read(self, server: _Server, url: httpx.URL) -> None:
        had_time = left() >= self._client.limits.seconds / 2
        try:
            server.rules, server.until = self._fetched(url), self._clock() + _GOOD_SECONDS
        except FetchFailed as error:
            server.failure = f"Nothing is fetched from {origin_of(url)} for now, since {error}"
            # A fetch that spent its time on slow redirects to here is no reason to keep others away.
            if had_time:
                server.until = self._clock() + _FAILED_SECONDS

    def _fetched(self, url: httpx.URL) -> Protego:
        ask = Ask("GET", {"Accept": "text/plain, */*"}, REDIRECTS, _MOST_BYTES, cut=True)
        try:
            answer = self._client.follow(ask, url)
        except FetchRefused:
            # Nowhere, as after too many redirects (section 2.3.1.2); what is wrong with the host itself shows again
            # when the document is fetched.
            return _EVERYTHING
        if answer.status == 429 or answer.status >= 500:
            raise FetchFailed(f"{shown_url(url)} was answered with {answer.status}.")
        return parse(answer.body) if answer.status < 300 else _EVERYTHING


def parse(body: bytes) -> Protego:
    """Read a file, as far as it was fetched.

    Raises:
        FetchFailed: It would take too long.
    """
    if len(body) >= _MOST_BYTES:
        # A rule cut short, such as `Disallow: /` of `Disallow: /private`, would forbid more than was meant.
        body = body.rpartition(b"\n")[0]
    text = body.decode("utf-8-sig", errors="replace")
    if text.lower().count("agent") * (text.count("\n") + 1) > _MOST_WORK:
        raise FetchFailed("its robots.txt repeats its rules for too many names to be read.")
    return Protego.parse(text)
