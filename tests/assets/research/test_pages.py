"""A page is one item that changes when its text does."""

from __future__ import annotations

from pathlib import Path

import pytest

from cronless_dagster.assets.research.found import Found, SourceError
from cronless_dagster.assets.research.pages import read_page

PAGE = (Path(__file__).parent / "feeds" / "page.html").read_text()
URL = "http://industries.example/home?key=secret"


def read(text: str | bytes, content_type: str = "text/html", charset: str | None = None) -> Found:
    """Read a page of some HTML."""
    body = text.encode() if isinstance(text, str) else text
    [item] = read_page(
        body, url=URL, key="http://watched.example/", content_type=content_type, charset=charset
    )
    return item


def test_title_and_description_are_the_pages_own() -> None:
    """The key is the watched address, the link where it really is."""
    item = read(PAGE)
    assert (item.key, item.url) == ("http://watched.example/", URL)
    assert (item.title, item.summary) == ("Made-up Industries: home", "We make things up.")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("var t = 1", "var t = 2"),
        ("<nav>Home | News | Jobs</nav>", "<nav>Home</nav>"),
        ("<footer>2026</footer>", "<footer>2027</footer>"),
        ("<h1>Welcome</h1>", '<h1 class="x">\n  Welcome </h1>'),
    ],
)
def test_other_markup_is_no_change(old: str, new: str) -> None:
    """Scripts, menus, footers, attributes and blanks are no news."""
    assert old in PAGE
    assert read(PAGE.replace(old, new)).content_hash == read(PAGE).content_hash


@pytest.mark.parametrize("old", ["invented", "Welcome", "home</title>", "We make"])
def test_other_text_is_a_change(old: str) -> None:
    """Text, title and description each count."""
    assert read(PAGE.replace(old, "new")).content_hash != read(PAGE).content_hash


def test_a_page_without_title_or_description_shows_its_text() -> None:
    """Words in bold are not torn apart, blocks are."""
    item = read("<p>H<sub>2</sub>O</p><p>is <b>wet</b>.</p>")
    assert item.title == item.summary == "H2O is wet."


def test_the_charset_of_the_header_or_of_the_page_counts() -> None:
    """And a wrong one costs letters, not the page."""
    assert read("<title>Größe</title>x".encode("iso-8859-1"), charset="iso-8859-1").title == "Größe"
    assert read('<meta charset="windows-1252"><title>€</title>x'.encode("windows-1252")).title == "€"
    assert read("<title>a</title>b", charset="no-such-charset").title == "a"


def test_what_is_no_html_is_refused() -> None:
    """A PDF has no text that we could read, and the message doesn't show the query."""
    with pytest.raises(SourceError, match="answers with application/pdf, not with HTML") as caught:
        read(b"%PDF", content_type="application/pdf")
    assert "secret" not in str(caught.value)


def test_a_page_that_needs_a_browser_is_refused() -> None:
    """An empty page would look like one that never changes."""
    with pytest.raises(SourceError, match="without text: it may need a browser"):
        read('<html><body><div id="app"></div><script>draw()</script></body></html>')


def test_deep_markup_is_read() -> None:
    """Ten thousand levels are no recursion here."""
    assert read("<div>" * 10_000 + "deep").summary == "deep"
