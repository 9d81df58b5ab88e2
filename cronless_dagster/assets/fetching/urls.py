"""Addresses of the web: which may be fetched, and how they are shown."""

from __future__ import annotations

import httpx

from cronless_dagster.assets.fetching.errors import FetchRefused
from cronless_dagster.scheduling.errors import shown

_LONGEST = 2_000
_HIGHEST_PORT = 65_535
_SHOWN = 200


def parsed(text: str) -> httpx.URL:
    """Read an address, in the form in which it goes over the wire and without its fragment.

    Raises:
        FetchRefused: It can't be read, isn't http or https, or holds a login: sources belong to a tenant's rows,
            which are no place for passwords.
    """
    # Until it is read nobody knows which part may be a password, or a key in the query.
    harmless = shown(text.partition("?")[0]) if "@" not in text else "with a login in it"
    if len(text) > _LONGEST:
        raise FetchRefused(
            f"The address {harmless} has {len(text):,} characters: give one of at most {_LONGEST:,}."
        )
    try:
        url = httpx.URL(text.strip()).copy_with(fragment=None)
    except (httpx.InvalidURL, ValueError) as error:
        raise FetchRefused(f"The address {harmless} can't be read: correct it.") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise FetchRefused(
            f"The address {harmless} is none of the web: give one that begins with http:// or https:// and a host."
        )
    if url.port is not None and not 0 < url.port <= _HIGHEST_PORT:
        raise FetchRefused(
            f"The address {harmless} names the port {url.port}: give one from 1 to {_HIGHEST_PORT}."
        )
    if url.userinfo:
        raise FetchRefused(f"The address {shown_url(url)} was given with a login in it: take it out.")
    return url


def shown_url(url: httpx.URL) -> str:
    """Return an address for messages: plain ASCII without login and query, at most 200 characters."""
    path = url.raw_path.partition(b"?")[0].decode("ascii")
    return f"{url.scheme}://{url.netloc.decode('ascii')}{path}"[:_SHOWN]


def origin_of(url: httpx.URL) -> str:
    """Return scheme, host and port: what a robots.txt speaks for."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def host_of(url: httpx.URL) -> str:
    """Return host and port, the default port included: who is spared by a limit per host."""
    port = url.port or (443 if url.scheme == "https" else 80)
    return f"{url.raw_host.decode('ascii').lower()}:{port}"
