"""What a source holds, whatever its kind: a list of items, each with a key, and texts that can be stored."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

# A key is part of an index entry, which PostgreSQL limits to some 2,700 bytes.
MAX_KEY_BYTES = 500
MAX_TITLE = 300
MAX_SUMMARY = 2_000
MAX_URL = 2_000
MAX_AUTHOR = 200
_BLANKS = re.compile(r"\s+")
_UNSTORABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


class SourceError(CronlessError):
    """A source that was read and can't be used as it is: another try finds the same."""


@dataclass(frozen=True, slots=True)
class Found:
    """One item of a source.

    Attributes:
        key: What the source calls it; the same key later is the same item.
        content_hash: Of what is told by it; another hash is a changed item.
    """

    key: str
    title: str
    url: str | None
    summary: str
    author: str | None
    published_at: datetime | None
    content_hash: str


def found(
    key: str,
    title: str,
    *,
    url: str | None = None,
    summary: str = "",
    author: str | None = None,
    published_at: datetime | None = None,
    content_hash: str | None = None,
) -> Found:
    """Return an item with texts that are cut and can be stored; its hash is taken of all of them."""
    title, summary = plain(title, MAX_TITLE), plain(summary, MAX_SUMMARY)
    url, author = web_address(url), plain(author or "", MAX_AUTHOR) or None
    if content_hash is None:
        when = published_at.isoformat() if published_at else ""
        content_hash = digest_of("\x1f".join((title, url or "", summary, author or "", when)).encode())
    return Found(_short_key(key), title or "(untitled)", url, summary, author, published_at, content_hash)


def unique(items: Iterable[Found], most: int) -> list[Found]:
    """Return the first `most` items, the first one of each key: sources repeat themselves."""
    by_key: dict[str, Found] = {}
    for item in items:
        if len(by_key) == most:
            break
        by_key.setdefault(item.key, item)
    return list(by_key.values())


def plain(text: str, longest: int) -> str:
    """Return a text on one line, without characters that a database or a mail can't carry, cut with an ellipsis."""
    # Cut first: a text of megabytes isn't searched to its end for a line of it.
    line = _BLANKS.sub(" ", _UNSTORABLE.sub("", text[: longest * 20])).strip()
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def web_address(text: str | None) -> str | None:
    """Return an address that a reader may be given to click on, or None: `javascript:` and the like are none."""
    address = _UNSTORABLE.sub("", (text or "").strip())
    return (
        address if address.lower().startswith(("http://", "https://")) and len(address) <= MAX_URL else None
    )


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of some bytes, as hexadecimal text."""
    return hashlib.sha256(content).hexdigest()


def _short_key(key: str) -> str:
    key = _UNSTORABLE.sub("", key).strip()
    raw = key.encode()
    return key if len(raw) <= MAX_KEY_BYTES else f"sha256:{digest_of(raw)}"
