"""One exchange over HTTP, and a chain of redirected ones, within the limits.

Built on httpcore alone: it keeps no cookies, reads no proxies from the environment (a proxy would connect for us,
past the check of addresses), and follows and decompresses nothing by itself.
"""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpcore
import httpx

from cronless_dagster.assets.fetching.bodies import read
from cronless_dagster.assets.fetching.errors import FetchFailed, FetchRefused
from cronless_dagster.assets.fetching.network import CheckedNetwork, Resolve, resolve
from cronless_dagster.assets.fetching.turns import Turns
from cronless_dagster.assets.fetching.urls import host_of, parsed, shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from cronless_dagster.assets.fetching.limits import FetchLimits

_IDLE_CONNECTIONS = 64
_IDLE_SECONDS = 2.0
"""Connections kept for a next exchange, and for how long: some servers hang up after five seconds."""
_SMALL = 65_536
"""As much as is read of the body of an answer that brings no document."""
_SHOWN = 200


@dataclass(frozen=True)
class Ask:
    """What to send, and what to make of the answers.

    Attributes:
        headers: Beside those that every request has.
        content: The body; None for none.
        follow: The statuses whose Location is followed, the request being repeated as it is.
        most: The most bytes of a document.
        cut: Take the first `most` bytes of a larger document, instead of refusing it.
    """

    method: str
    headers: Mapping[str, str]
    follow: Collection[int]
    most: int
    content: bytes | None = None
    cut: bool = False


@dataclass(frozen=True)
class Answer:
    """The end of a chain: where it was, and what came."""

    url: httpx.URL
    status: int
    headers: httpx.Headers
    body: bytes


class Client:
    """Sends requests within the limits; for any number of threads. It knows nothing of robots.txt."""

    def __init__(self, limits: FetchLimits, resolve: Resolve = resolve) -> None:
        self.limits = limits
        self._turns = Turns(limits.per_host)
        self._network = CheckedNetwork(limits.networks, resolve)
        self._pool = httpcore.ConnectionPool(
            # The system's certificates, or those that SSL_CERT_FILE and SSL_CERT_DIR name.
            ssl_context=ssl.create_default_context(),
            # Turns limit the connections; a limit of the pool would let a slow host block all others.
            max_connections=None,
            max_keepalive_connections=_IDLE_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=self._network,
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()
        self._network.close()

    def follow(self, ask: Ask, url: httpx.URL, before: Callable[[httpx.URL], None] | None = None) -> Answer:
        """Send a request, and again to where the answers redirect it.

        Args:
            ask: What to send.
            url: Where to begin.
            before: Called with each address before it is asked; what it raises ends the chain.

        Raises:
            FetchRefused: An address that may not be fetched, an endless chain, or a document that is too large.
            FetchFailed: No answer, or none that can be understood.
        """
        seen = {url}
        for _ in range(self.limits.redirects + 1):
            if before:
                before(url)
            answer = self._exchange(ask, url)
            location = answer.headers.get("Location")
            if answer.status not in ask.follow or location is None:
                return answer
            url = _redirected(url, location, ask)
            if url in seen:
                raise FetchRefused(f"{shown_url(url)} redirects in a circle: its server has to be corrected.")
            seen.add(url)
        raise FetchRefused(
            f"{shown_url(url)} is one redirect more than the {self.limits.redirects} that are followed: give the"
            " address that they lead to."
        )

    def _exchange(self, ask: Ask, url: httpx.URL) -> Answer:
        document = ask.method == "GET"
        encoding = "gzip" if document else "identity"
        headers = {"User-Agent": self.limits.user_agent, "Accept-Encoding": encoding, **ask.headers}
        where = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        with (
            self._turns.at(host_of(url)),
            self._translated(url),
            self._pool.stream(
                ask.method,
                where,
                headers=[(name.encode(), value.encode()) for name, value in headers.items()],
                content=ask.content,
                extensions={"timeout": {"connect": self.limits.connect_seconds}},
            ) as response,
        ):
            answered = httpx.Headers(response.headers)
            good = 200 <= response.status < 300
            body = read(
                response.iter_stream(),
                answered.get("Content-Encoding", "") if document and good else "",
                ask.most if good else min(ask.most, _SMALL),
                cut=ask.cut or not good,
                name=shown_url(url),
            )
        return Answer(url, response.status, answered, body)

    @contextmanager
    def _translated(self, url: httpx.URL) -> Iterator[None]:
        name = shown_url(url)
        try:
            yield
        except httpcore.ConnectTimeout as error:
            raise FetchFailed(f"{name} couldn't be connected to in time.") from error
        except httpcore.TimeoutException as error:
            raise FetchFailed(f"{name} took longer than {self.limits.seconds:g} s.") from error
        except httpcore.ConnectError as error:
            raise FetchFailed(f"{name} couldn't be connected to: {_said(error)}.") from error
        except httpcore.NetworkError as error:
            raise FetchFailed(f"{name} broke the connection off: {_said(error)}.") from error
        except httpcore.ProtocolError as error:
            raise FetchFailed(f"{name} gave an answer that isn't HTTP: {_said(error)}.") from error


def _redirected(url: httpx.URL, location: str, ask: Ask) -> httpx.URL:
    try:
        target = parsed(str(url.join(location)))
    except FetchRefused as error:
        raise FetchRefused(f"{shown_url(url)} redirects to where nothing is fetched. {error}") from error
    except (httpx.InvalidURL, ValueError) as error:
        raise FetchRefused(f"{shown_url(url)} redirects to an address that can't be read.") from error
    if ask.content is not None and (url.scheme, target.scheme) == ("https", "http"):
        raise FetchRefused(
            f"{shown_url(url)} redirects to {shown_url(target)}, which would send in the clear what was sent"
            " encrypted: its server has to be corrected."
        )
    return target


def _said(error: Exception) -> str:
    """Return a library's words for a message: plain ASCII, on one line, at most 200 characters."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words.encode("ascii", "backslashreplace").decode()[:_SHOWN]
