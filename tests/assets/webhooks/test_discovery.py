"""Finding topic and hub, with made-up feeds and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cronless_dagster.assets.fetching import Fetcher, FetchLimits
from cronless_dagster.assets.webhooks import SubscriptionError
from cronless_dagster.assets.webhooks.discovery import Discovered, discover, header_links
from tests.assets.web import Reply, WebServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ATOM = b"""<?xml version="1.0" encoding="utf-8"?><feed xmlns="http://www.w3.org/2005/Atom"><title>made up</title>
<link rel="hub" href="https://hub.example/"/><link rel="self" href="/atom.xml"/>
<entry><title>x</title><id>urn:x</id><link rel="hub" href="https://entry.example/"/></entry></feed>"""
RSS = b"""<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>made up</title>
<atom:link rel="self" href="https://feeds.example/rss.xml"/><atom:link rel="hub" href="https://hub.example/"/>
</channel></rss>"""
HTML = b"""<html><head><link rel="hub" href="https://hub.example/"><link rel="self" href="/page"></head>
<body><link rel="hub" href="https://forged.example/"></body></html>"""
FORGED = b'<html><head></head><body><link rel="hub" href="https://forged.example/"></body></html>'


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    """One that may reach the local server."""
    with Fetcher(FetchLimits(networks=("127.0.0.0/8",))) as made:
        yield made


def found(
    fetcher: Fetcher, body: bytes, content_type: str, link: str | None = None
) -> tuple[str, Discovered]:
    """Discover what a local server says at /x; returns the server's address too."""
    headers = {"Content-Type": content_type, **({"Link": link} if link else {})}
    with WebServer({"/x": lambda _: Reply(body=body, headers=headers)}) as server:
        return server.url(""), discover(fetcher, server.url("/x"))


def test_link_headers_come_first(fetcher: Fetcher) -> None:
    """Before what the page says; without a `self` the address itself is the topic."""
    server, seen = found(fetcher, HTML, "text/html", '</hub>; rel="hub"')
    assert seen == Discovered(f"{server}/x", f"{server}/hub")


def test_feeds_and_pages_say_it_themselves(fetcher: Fetcher) -> None:
    """Atom, RSS, and the head of a page; addresses may be relative."""
    hub = "https://hub.example/"
    server, seen = found(fetcher, ATOM, "application/atom+xml")
    assert seen == Discovered(f"{server}/atom.xml", hub)
    assert found(fetcher, RSS, "application/rss+xml")[1] == Discovered("https://feeds.example/rss.xml", hub)
    server, seen = found(fetcher, HTML, "text/html; charset=utf-8")
    assert seen == Discovered(f"{server}/page", hub)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (FORGED, "text/html"),
        (b"", "text/html"),
        (b"\xff\x00", "application/xml"),
        (b"{}", "application/json"),
    ],
)
def test_what_names_no_hub_is_told(fetcher: Fetcher, body: bytes, content_type: str) -> None:
    """A link in a page's body is none of its author's, perhaps."""
    with pytest.raises(SubscriptionError, match="names no hub"):
        found(fetcher, body, content_type)


@pytest.mark.parametrize(
    ("header", "links"),
    [
        ("", {}),
        ("garbage", {}),
        ("<https://a.example>", {}),
        ("<https://a.example/>; rel=hub", {"hub": "https://a.example/"}),
        ('<a>; title="x, y"; rel="HUB self", <b>; REL = "hub"', {"hub": "a", "self": "a"}),
        ('<a,b;c>;rel="hub";type="t",<d>;rel=self', {"hub": "a,b;c", "self": "d"}),
    ],
)
def test_link_headers_are_read_as_rfc_8288_has_them(header: str, links: dict[str, str]) -> None:
    """Several in one header, quoted or not, several relations in one."""
    assert header_links(header) == links


def test_a_long_header_is_read_in_no_time() -> None:
    """Whatever it holds."""
    for nasty in ("<a>" + ";" * 50_000, "<a>" + '; x="' * 10_000, "<" * 50_000, '<a>; rel="' + "x" * 50_000):
        assert header_links(nasty) == {}
