"""The demo's feeds: made up, and saying so. What each holds at an instant depends on its name and the time alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from cronless_dagster.scheduling.hashing import stable_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

RECENT = 10
"""A feed has its newest items, as many as this, and some of the last two weeks."""
HUB_PATH = "/hub"
_ATOM = "http://www.w3.org/2005/Atom"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_NO_PATH = re.compile(r"[^A-Za-z0-9._-]+")
_SUBJECTS = ("a price list", "a release", "an opening", "a report", "a new office", "an interview")

ET.register_namespace("atom", _ATOM)


@dataclass(frozen=True, slots=True)
class News:
    """One made-up item; `number` counts from the feed's first one."""

    number: int
    title: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed of a tenant's account, at a web server's address such as `http://127.0.0.1:8000`."""

    server: str
    tenant: str
    account: str

    @property
    def path(self) -> str:
        """Tenant and account, in characters that mean nothing in an address."""
        return "/".join(
            _NO_PATH.sub("-", name).strip(".-") or "unnamed" for name in (self.tenant, self.account)
        )

    @property
    def address(self) -> str:
        """Where it is served, and the topic to subscribe to."""
        return f"{self.server}/feeds/{self.path}.xml"

    @property
    def title(self) -> str:
        """What readers show."""
        return f"Made-up news of {self.account} ({self.tenant})"

    def newest(self, now: datetime) -> int:
        """Return the number of the newest item. One comes every two to seven minutes, by the feed's name."""
        return (now - _EPOCH) // self._period

    def news(self, now: datetime) -> Iterator[News]:
        """Yield the items that the feed holds at an instant (aware UTC), the newest first."""
        newest = self.newest(now)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        days = 1 + stable_hash("days", self.path) % 3
        older = {self.newest(midnight - timedelta(days=ago)) for ago in range(days, 15, days)}
        for number in sorted(older | set(range(newest - RECENT + 1, newest + 1)), reverse=True):
            subject = _SUBJECTS[stable_hash(self.path, str(number)) % len(_SUBJECTS)]
            title = f"Made-up news {number:,} of {self.account}: {subject}"
            yield News(number, title, _EPOCH + number * self._period)

    def link(self, news: News) -> str:
        """Return where an item's page is."""
        return f"{self.server}/news/{self.path}/{news.number}"

    def xml(self, now: datetime) -> bytes:
        """Return the feed as RSS 2.0 or as Atom (RFC 4287), by its name."""
        root = self._atom(now) if stable_hash(self.path) % 2 else self._rss(now)
        written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
        return written

    @property
    def _period(self) -> timedelta:
        return timedelta(minutes=2 + stable_hash("period", self.path) % 6)

    def _rss(self, now: datetime) -> ET.Element:
        root = ET.Element("rss", version="2.0")
        channel = ET.SubElement(root, "channel")
        _add(channel, "title", self.title)
        _add(channel, "link", f"{self.server}/")
        _add(channel, "description", "Made up for a demo; nobody said any of it.")
        self._add_links(channel)
        for news in self.news(now):
            item = ET.SubElement(channel, "item")
            _add(item, "title", news.title)
            _add(item, "link", self.link(news))
            _add(item, "guid", self._id(news), isPermaLink="false")
            _add(item, "pubDate", format_datetime(news.at))
            _add(item, "description", _SUMMARY)
        return root

    def _atom(self, now: datetime) -> ET.Element:
        root = ET.Element(f"{{{_ATOM}}}feed")
        _add(root, f"{{{_ATOM}}}title", self.title)
        _add(root, f"{{{_ATOM}}}id", f"urn:made-up:{self.path}")
        _add(root, f"{{{_ATOM}}}updated", next(self.news(now)).at.isoformat())
        self._add_links(root)
        for news in self.news(now):
            entry = ET.SubElement(root, f"{{{_ATOM}}}entry")
            _add(entry, f"{{{_ATOM}}}title", news.title)
            _add(entry, f"{{{_ATOM}}}id", self._id(news))
            _add(entry, f"{{{_ATOM}}}updated", news.at.isoformat())
            _add(entry, f"{{{_ATOM}}}link", "", href=self.link(news))
            _add(entry, f"{{{_ATOM}}}summary", _SUMMARY)
            _add(ET.SubElement(entry, f"{{{_ATOM}}}author"), f"{{{_ATOM}}}name", "nobody")
        return root

    def _add_links(self, parent: ET.Element) -> None:
        """Name the feed's own address and its hub, as publishers do (WebSub, section 4)."""
        _add(parent, f"{{{_ATOM}}}link", "", rel="self", href=self.address)
        _add(parent, f"{{{_ATOM}}}link", "", rel="hub", href=f"{self.server}{HUB_PATH}")

    def _id(self, news: News) -> str:
        return f"urn:made-up:{self.path}:{news.number}"


_SUMMARY = "This item is made up by the demo's own web server, and so is its account."


def _add(parent: ET.Element, name: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, name, attributes).text = text or None
