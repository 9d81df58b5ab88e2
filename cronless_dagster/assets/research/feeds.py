"""RSS 0.9x to 2.0 and Atom 0.3 and 1.0, as found in the wild."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from cronless_dagster.assets.research.found import Found, SourceError, digest_of, found, unique
from cronless_dagster.assets.research.markup import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_ITEMS = 200
# Before the first feeds, or further ahead than a wrong zone explains, a date is a mistake.
_EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
_AHEAD = timedelta(days=1)
_REFERENCE = re.compile(rb"&#(?:[xX]0*([0-9a-fA-F]+)|0*([0-9]+));?")


def read_feed(
    body: bytes,
    *,
    url: str,
    now: datetime,
    content_type: str = "",
    charset: str | None = None,
    most: int = MAX_ITEMS,
) -> list[Found]:
    """Return the items of a feed, in the feed's order, at most `most`.

    An item's key is its guid (RSS) or id (Atom), else its link, else a hash of its texts. A date that can't be read,
    or can't be true, is None.

    Args:
        body: As it came; its encoding is found by the rules of RFC 7303 and by looking.
        url: Where it came from, against which its links are resolved.
        now: Aware UTC.
        content_type: Of the answer's header, without parameters; empty: it had none.
        charset: Of the same header.
        most: How many items are looked at.

    Raises:
        SourceError: It is no feed.
    """
    header = f"{content_type}; charset={charset}" if content_type and charset else content_type
    # Servers are wrong about their charsets more often than feeds are about themselves.
    body = _REFERENCE.sub(_if_character, body)
    feed = _parsed(body, header) or (_parsed(body, "") if header else None)
    if feed is None:
        raise SourceError(_no_feed(body, url.partition("?")[0], content_type))
    return unique(_items(feed.entries[: 2 * most], url, now), most)


def _if_character(reference: re.Match[bytes]) -> bytes:
    # feedparser's parser for what is no XML raises on a number beyond Unicode and on half of a surrogate pair.
    sixteens, tens = reference.groups()
    digits = sixteens or tens
    number = int(digits, 16 if sixteens else 10) if len(digits) <= 7 else -1
    return reference[0] if 0 < number < 0xD800 or 0xDFFF < number < 0x110000 else b""


def _parsed(body: bytes, header: str) -> Any:
    import feedparser

    # As a stream, for a text that looks like an address or a path would be opened. The HTML is never shown, only its
    # text, so that cleaning it would be for nothing. And without an address: relative guids would be made absolute,
    # and all items be new when a feed moves.
    feed = feedparser.parse(
        BytesIO(body),
        response_headers={"content-type": header} if header else {},
        sanitize_html=False,
        resolve_relative_uris=False,
    )
    return feed if feed.get("version") or feed.entries else None


def _items(entries: list[Any], base: str, now: datetime) -> Iterator[Found]:
    for entry in entries:
        title = _text(entry.get("title_detail"))
        summary = _text(entry.get("summary_detail")) or next(map(_text, entry.get("content") or []), "")
        link = entry.get("link")
        key = entry.get("id") or link or digest_of(f"{title}\x1f{summary}".encode(errors="replace"))
        yield found(
            key,
            title or summary[:100],
            url=_joined(base, link),
            summary=summary,
            author=entry.get("author"),
            published_at=_instant(entry, now),
        )


def _joined(base: str, link: str | None) -> str | None:
    try:
        return urljoin(base, link) if link else None
    except ValueError:
        return None


def _text(detail: Mapping[str, Any] | None) -> str:
    if not detail or not detail.get("value"):
        return ""
    value = str(detail["value"])
    return value if detail.get("type") == "text/plain" else text_of(value)


def _instant(entry: dict[str, Any], now: datetime) -> datetime | None:
    for name in ("published_parsed", "updated_parsed", "created_parsed"):
        # The plain dict's: feedparser's own answers with another date, and warns, where this one is missing.
        parsed = dict.get(entry, name)
        if parsed is None:
            continue
        try:
            at = datetime.fromtimestamp(calendar.timegm(parsed), UTC)
        except (ValueError, OverflowError, OSError):
            continue
        if _EARLIEST <= at <= now + _AHEAD:
            return at
    return None


def _no_feed(body: bytes, url: str, content_type: str) -> str:
    start = body[:1_000].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")) or b"<html" in start:
        return (
            f"{url} answers with an HTML page, not a feed: give the feed's own address, or watch it as a page"
        )
    if not start:
        return f"{url} answers with nothing: give the address of a feed"
    return f"{url} answers with {content_type or 'something'} that is neither RSS nor Atom: give the address of a feed"
