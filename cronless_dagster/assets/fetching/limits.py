"""What one fetch may cost, and how far it may go."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from ipaddress import ip_network

from cronless_dagster.assets.fetching.errors import FetchError

_NAME = f"cronless_dagster/{version('cronless-dagster')}"


@dataclass(frozen=True)
class FetchLimits:
    """Limits of a `Fetcher`; the values stand for a polite client of small documents.

    Attributes:
        per_host: Exchanges with one server at once, that is with one host and port as the address names them.
        seconds: How long one fetch may take in all, with every redirect, its robots.txt where it must be read, and a
            body that comes byte by byte. Waiting for one of the `per_host` turns doesn't count: the server isn't
            to blame for it.
        connect_seconds: How long one address of a host may take to accept a connection, TLS included.
        bytes: The largest body, after decompression.
        redirects: How many are followed.
        networks: Networks in CIDR notation that are reached although they aren't public, such as ``10.0.0.0/8``.
        user_agent: What the client calls itself; its part before ``/`` is the name that robots.txt may address.
        robots: Whether robots.txt (RFC 9309) is asked first. Readers that fetch a feed because one of their users
            subscribed to it are often taken not to be robots; whoever sees it so sets False.
    """

    per_host: int = 4
    seconds: float = 20.0
    connect_seconds: float = 5.0
    bytes: int = 5_000_000
    redirects: int = 5
    networks: tuple[str, ...] = ()
    user_agent: str = _NAME
    robots: bool = True

    def __post_init__(self) -> None:
        """Refuse what could never work.

        Raises:
            FetchError: A limit that lets nothing through, or a network or name that can't be read.
        """
        for name in ("per_host", "seconds", "connect_seconds", "bytes"):
            if not getattr(self, name) > 0:
                raise FetchError(f"The limit {name} is {getattr(self, name)!r}: give a number above 0.")
        if self.redirects < 0:
            raise FetchError(f"The limit redirects is {self.redirects!r}: give 0 or more.")
        for network in self.networks:
            try:
                ip_network(network)
            except ValueError as error:
                raise FetchError(
                    f"{network!r} is no network ({error}): give one in CIDR notation, such as 10.0.0.0/8."
                ) from None
        if not (self.user_agent.isascii() and self.user_agent.isprintable() and self.user_agent.strip()):
            raise FetchError(
                f"The user agent {self.user_agent!r} can't be sent: give one line of plain ASCII."
            )
