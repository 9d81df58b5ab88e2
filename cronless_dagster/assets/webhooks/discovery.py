"""Finding a topic's own address and its hub (WebSub 4): in Link headers first, else in the feed or page itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urljoin

from cronless_dagster.assets.fetching import Fetched
from cronless_dagster.assets.webhooks.subscriptions import SubscriptionError

if TYPE_CHECKING:
    from cronless_dagster.assets.fetching import Fetcher

# A target in angle brackets and its parameters, whose quoted values may hold commas (RFC 8288, 3).
_LINK = re.compile(r'<(?P<target>[^<>]*)>(?P<parameters>(?:\s*;[^;,"]*(?:"[^"]*"[^;,"]*)*)*)')
_RELATIONS = re.compile(r';\s*rel\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s;,"]+))', re.IGNORECASE)
_ACCEPT = "application/atom+xml, application/rss+xml, text/html;q=0.9, */*;q=0.8"

Links: TypeAlias = "dict[str, str]"


@dataclass(frozen=True, slots=True)
class Discovered:
    """What `subscribe` wants to know."""

    topic: str
    hub: str


def discover(fetcher: Fetcher, url: str) -> Discovered:
    """Fetch a feed or page and return what it says of itself. Where it names several hubs, the first.

    Raises:
        SubscriptionError: It names no hub.
        FetchError: It can't be fetched.
    """
    fetched = fetcher.fetch(url, accept=_ACCEPT)
    if not isinstance(fetched, Fetched):
        raise SubscriptionError(
            "the answer was 304 to a request without conditions: ask the feed's publisher"
        )
    links = header_links(fetched.headers.get("link", ""))
    if "hub" not in links:
        links = embedded_links(fetched.body, fetched.content_type)
    if "hub" not in links:
        raise SubscriptionError("the page or feed names no hub: it can only be fetched again and again")
    return Discovered(
        # Without a word of its own it is known by where it was found.
        urljoin(fetched.url_final, links.get("self", "")),
        urljoin(fetched.url_final, links["hub"]),
    )


def header_links(header: str) -> Links:
    """Return the first target of each relation in a Link header (RFC 8288); relations in lower case."""
    found: Links = {}
    for link in _LINK.finditer(header):
        relation = _RELATIONS.search(link["parameters"])
        for name in ((relation["quoted"] or relation["plain"] or "") if relation else "").lower().split():
            found.setdefault(name, link["target"].strip())
    return found


def embedded_links(body: bytes, content_type: str) -> Links:
    """Return the first target of each relation in a feed's channel or a page's head.

    Not in a page's body: where users may write, a link of theirs must not choose the hub (WebSub 8.1).
    """
    found: Links = {}
    if content_type in ("text/html", "application/xhtml+xml"):
        from bs4 import BeautifulSoup

        head = BeautifulSoup(body, "html.parser").head
        for tag in head.find_all("link", href=True) if head is not None else ():
            for name in tag.get_attribute_list("rel"):
                found.setdefault(str(name).lower(), str(tag["href"]))
        return found
    import feedparser

    for link in feedparser.parse(body).feed.get("links", ()):
        found.setdefault(str(link.get("rel", "")).lower(), str(link.get("href", "")))
    return found
