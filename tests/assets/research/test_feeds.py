"""Feeds as found in the wild: every dialect, wrong encodings, broken dates, and what is no feed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cronless_dagster.assets.research.feeds import read_feed
from cronless_dagster.assets.research.found import Found, SourceError

FEEDS = Path(__file__).parent / "feeds"
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
URL = "http://host.example/feed?key=secret"


def read(name: str, **options: object) -> list[Found]:
    """Read one of the made-up feeds."""
    return read_feed((FEEDS / name).read_bytes(), url=URL, now=NOW, **options)  # type: ignore[arg-type]


def channel(items: str) -> bytes:
    """Write an RSS 2.0 feed around some items."""
    return (
        f'<?xml version="1.0"?><rss version="2.0"><channel><title>x</title>{items}</channel></rss>'.encode()
    )


class TestDialects:
    """What each format calls title, address, author and instant comes to the same."""

    def test_rss_0_91(self) -> None:
        """Items have neither guid nor date: the link is the key. Entities of HTML are known."""
        first, second = read("rss_0_91.xml")
        assert (first.key, first.title, first.published_at) == (
            "http://works.example/press",
            "New press, no date",
            None,
        )
        assert second.title == "Café opens"

    def test_rss_0_92(self) -> None:
        """Items may have a description alone: its beginning is the title, and its hash the key."""
        first, second = read("rss_0_92.xml")
        assert first.title == first.summary == "It rained on the plant today; see the rain."
        assert len(first.key) == 64
        assert first.key != second.key
        assert second.title == "Über die Brücke."

    @pytest.mark.parametrize("number", ["xD800", "XdFfF", "55296", "x110000", "0", "9" * 30, "x" + "f" * 30])
    def test_a_number_that_is_no_character_is_no_reason_to_leave_a_feed(self, number: str) -> None:
        """A reference to it, in an item without an address of its own, costs that character alone."""
        first, second = read_feed(
            channel(f"<item><title>a&#{number};b</title></item><item><title>c&#233; &nbsp;</title></item>"),
            url=URL,
            now=NOW,
        )
        assert (first.title, second.title) == ("ab", "c\u00e9")

    def test_rss_1_0(self) -> None:
        """RDF, with Dublin Core for author and date."""
        [item] = read("rss_1_0.rdf")
        assert (item.key, item.author) == ("http://lab.example/1", "A. Nobody")
        assert item.published_at == datetime(2026, 2, 20, 7, 30, tzinfo=UTC)

    def test_rss_2_0(self) -> None:
        """HTML becomes text, relative links absolute, scripts nothing; a key that comes twice counts once."""
        first, second, third = read("rss_2_0.xml")
        assert first.title == "Profit & loss explained"
        assert first.summary == "First paragraph."
        assert first.url == "http://host.example/news/profit"
        assert first.key == "tag:industries.example,2026:1"
        assert first.published_at == datetime(2026, 2, 23, 7, 0, tzinfo=UTC)
        assert second.summary == "Long text"
        assert second.published_at == datetime(2026, 2, 22, 10, 0, tzinfo=UTC)
        assert (third.title, third.url) == ("Link of a bad kind", None)

    def test_atom_0_3(self) -> None:
        """Text that says that it is plain stays as it is."""
        [item] = read("atom_0_3.xml")
        assert (item.summary, item.author) == ("Plain <words> stay.", "C. Nobody")
        assert item.published_at == datetime(2026, 2, 1, 12, 0, tzinfo=UTC)

    def test_atom_1_0(self) -> None:
        """XHTML content, links by xml:base, fractions of seconds, and "updated" where nothing is published."""
        first, second = read("atom_1_0.xml")
        assert (first.title, first.summary) == ("1 < 2", "Deep thoughts — here.")
        assert first.url == "http://atom.example/blog/first.html"
        assert first.published_at == datetime(2026, 2, 27, 17, 0, tzinfo=UTC)
        assert second.published_at == datetime(2026, 2, 26, 23, 0, tzinfo=UTC)


class TestEncodings:
    """Bytes become the right letters, whoever is wrong about them."""

    @pytest.mark.parametrize(
        ("name", "title"),
        [
            ("windows_1252.xml", "“Smart” quotes and a €"),
            ("utf_16.xml", "日本の会社"),
            ("wrong_encoding.xml", "Größe"),
        ],
    )
    def test_the_declaration_or_a_look_at_the_bytes(self, name: str, title: str) -> None:
        """Declared right, marked by a byte order mark, or declared wrong."""
        assert read(name)[0].title == title

    def test_a_server_that_is_wrong_about_its_charset(self) -> None:
        """A feed that can't be read as the header says is read as it says itself."""
        assert read("utf_16.xml", content_type="text/html", charset="iso-8859-1")[0].title == "日本の会社"

    def test_a_server_that_knows_better(self) -> None:
        """Without a declaration the header's charset counts."""
        body = channel("<item><title>Größe</title><guid>1</guid></item>").decode().encode("iso-8859-1")
        items = read_feed(body, url=URL, now=NOW, content_type="application/rss+xml", charset="iso-8859-1")
        assert items[0].title == "Größe"


class TestDates:
    """A date that can't be read, or can't be true, is none; it never costs the item."""

    def test_every_kind(self) -> None:
        """Two-digit years, no zone, other languages, February's 31st, the far future, the epoch."""
        by_title = {item.title: item.published_at for item in read("dates.xml")}
        assert len(by_title) == 15
        told = {title: at for title, at in by_title.items() if at is not None}
        assert told == {
            "Mon, 5 Jan 26 09:00:00 GMT": datetime(2026, 1, 5, 9, 0, tzinfo=UTC),
            "2026-01-07 10:15:00": datetime(2026, 1, 7, 10, 15, tzinfo=UTC),
            "Wed, 28 Jan 2026 10:00:00 EST": datetime(2026, 1, 28, 15, 0, tzinfo=UTC),
            # The parser counts on beyond the month's end.
            "2026-02-30T10:00:00Z": datetime(2026, 3, 2, 10, 0, tzinfo=UTC),
            "20260128": datetime(2026, 1, 28, 0, 0, tzinfo=UTC),
        }


class TestKeys:
    """The same item must keep its key, or readers are told of old news."""

    def test_a_relative_guid_stays_when_the_feed_moves(self) -> None:
        """`<guid>1</guid>` is no address, whatever the format's default says."""
        body = channel("<item><title>a</title><guid>1</guid></item>")
        keys = {
            read_feed(body, url=url, now=NOW)[0].key for url in ("http://a.example/f", "https://b.example/g")
        }
        assert keys == {"1"}

    def test_a_long_key_becomes_its_hash(self) -> None:
        """An index entry has room for some 2,700 bytes."""
        item, other = read_feed(
            channel(f"<item><guid>{'x' * 5_000}</guid></item><item><guid>{'x' * 4_999}</guid></item>"),
            url=URL,
            now=NOW,
        )
        assert item.key.startswith("sha256:")
        assert item.key != other.key

    def test_a_change_of_any_part_is_seen(self) -> None:
        """The hash is of title, link, summary, author and date."""
        bodies = [
            "<title>a</title>",
            "<title>b</title>",
            "<title>a</title><link>http://x.example/</link>",
            "<title>a</title><description>d</description>",
            "<title>a</title><author>n@x.example (N)</author>",
            "<title>a</title><pubDate>Mon, 05 Jan 2026 09:00:00 GMT</pubDate>",
        ]
        items = [
            read_feed(channel(f"<item><guid>1</guid>{body}</item>"), url=URL, now=NOW)[0] for body in bodies
        ]
        assert len({item.content_hash for item in items}) == len(bodies)
        assert {item.key for item in items} == {"1"}


class TestBounds:
    """A feed costs a bounded place, and can't be used to read our files."""

    def test_items_beyond_the_limit_are_left_out(self) -> None:
        """The first ones are the newest, in nearly all feeds."""
        body = channel("".join(f"<item><title>t</title><guid>{number}</guid></item>" for number in range(50)))
        assert [item.key for item in read_feed(body, url=URL, now=NOW, most=3)] == ["0", "1", "2"]

    def test_long_texts_are_cut(self) -> None:
        """Title and summary are for reading."""
        [item] = read_feed(
            channel(f"<item><title>{'t ' * 5_000}</title><description>{'s' * 90_000}</description></item>"),
            url=URL,
            now=NOW,
        )
        assert len(item.title) <= 300
        assert len(item.summary) == 2_000
        assert item.summary.endswith("…")

    def test_what_a_database_cannot_store_is_left_out(self) -> None:
        """NUL, control characters, halves of characters."""
        [item] = read_feed(
            channel("<item><title>a\x00b\x01c&#0;d</title><guid>\x00k</guid></item>"), url=URL, now=NOW
        )
        assert (item.title, item.key) == ("abcd", "k")

    def test_entities_neither_explode_nor_read_files(self) -> None:
        """A text of a gigabyte in ten lines, and one out of our own machine."""
        laughs = "".join(f'<!ENTITY a{one} "{f"&a{one - 1};" * 10}">' for one in range(1, 10))
        for entity in (f'<!ENTITY a0 "ha">{laughs}', '<!ENTITY a9 SYSTEM "file:///etc/passwd">'):
            item_of_it = "<channel><item><title>a&a9;z</title></item></channel>"
            body = f'<!DOCTYPE x [{entity}]><rss version="2.0">{item_of_it}</rss>'
            [item] = read_feed(body.encode(), url=URL, now=NOW)
            assert len(item.title) <= 300
            assert "root:" not in item.title

    def test_a_text_that_looks_like_a_path_is_not_opened(self) -> None:
        """The parser would open what a text names."""
        with pytest.raises(SourceError):
            read_feed(str(FEEDS / "rss_2_0.xml").encode(), url=URL, now=NOW)


class TestNoFeed:
    """What isn't a feed is said to be none, without the query of its address."""

    def test_html(self) -> None:
        """The most common mistake has an answer of its own."""
        with pytest.raises(
            SourceError, match="an HTML page, not a feed: give the feed's own address"
        ) as caught:
            read("page.html")
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("body", [b"", b"  \n"])
    def test_nothing(self, body: bytes) -> None:
        """An empty answer."""
        with pytest.raises(SourceError, match="answers with nothing"):
            read_feed(body, url=URL, now=NOW)

    @pytest.mark.parametrize("body", [b'{"version": "1"}', bytes(range(256)) * 10, b"%PDF-1.7"])
    def test_something_else(self, body: bytes) -> None:
        """JSON, bytes, a document."""
        with pytest.raises(SourceError, match="neither RSS nor Atom"):
            read_feed(body, url=URL, now=NOW, content_type="application/pdf")

    def test_a_feed_without_items_is_one(self) -> None:
        """Nothing was published yet."""
        assert read_feed(channel(""), url=URL, now=NOW) == []

    def test_broken_markup_is_read_as_far_as_it_goes(self) -> None:
        """A bare ampersand is no reason to lose a feed."""
        assert [item.title for item in read("broken_markup.xml")] == ["Fish & chips", "Second"]
