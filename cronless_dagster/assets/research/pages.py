"""A web page as one item, which changes when its text does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronless_dagster.assets.research.found import Found, SourceError, digest_of, found
from cronless_dagster.assets.research.markup import visible_text

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

_HTML = ("text/html", "application/xhtml+xml")


def read_page(body: bytes, *, url: str, key: str, content_type: str, charset: str | None) -> list[Found]:
    """Return the page as a list of one item: its title, and its description or the beginning of its text.

    The hash is taken of title, description and text, so that other markup, scripts or menus are no change.

    Args:
        body: As it came.
        url: Where it was found in the end, redirects followed.
        key: The address that is watched.
        content_type: Of the answer's header, without parameters; empty: it had none.
        charset: Of the answer's header; None: found by looking.

    Raises:
        SourceError: It is no HTML, or holds no text.
    """
    from bs4 import BeautifulSoup

    # A query may hold a key of its owner's.
    shown = url.partition("?")[0]
    if content_type and content_type not in _HTML:
        raise SourceError(
            f"{shown} answers with {content_type[:80]}, not with HTML: watch another page of it"
        )
    soup = BeautifulSoup(body, "html.parser", from_encoding=charset)
    title = _title(soup)
    description = _meta(soup, "description") or _meta(soup, "og:description")
    text = visible_text(soup.body or soup)
    if not title and not text:
        raise SourceError(
            f"{shown} answers with a page without text: it may need a browser, so watch its feed instead"
        )
    return [
        found(
            key,
            title or text[:100],
            url=url,
            summary=description or text,
            content_hash=digest_of(f"{title}\x1f{description}\x1f{text}".encode(errors="replace")),
        )
    ]


def _title(soup: BeautifulSoup) -> str:
    named = soup.title or soup.h1
    return " ".join(named.get_text(" ").split()) if named else _meta(soup, "og:title")


def _meta(soup: BeautifulSoup, name: str) -> str:
    for attribute in ("name", "property"):
        tag = soup.find("meta", attrs={attribute: name})
        if tag is not None and tag.get("content"):
            return " ".join(str(tag["content"]).split())
    return ""
