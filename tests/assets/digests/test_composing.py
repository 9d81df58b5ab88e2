"""What a digest says, in both of its forms."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from bs4 import BeautifulSoup

from cronless_dagster.assets.digests.composing import TEXT_WIDTH, compose, shortened, web_link
from cronless_dagster.assets.digests.news import Item
from cronless_dagster.assets.digests.users import DigestUser
from cronless_dagster.scheduling.errors import TimezoneError

if TYPE_CHECKING:
    from pathlib import Path

    from cronless_dagster.assets.digests.composing import Digest

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
USER = DigestUser(UUID(int=1), "acme", "reader@example.org", "Reader", "Europe/Berlin", None)
UNSUBSCRIBE = "https://mail.example.org/unsubscribe/1"


def item(number: int, *, account: str = "Northwind", **values: Any) -> Item:
    """Return an item, an older one for each higher number."""
    row = {
        "id": number,
        "account": account,
        "title": f"Title {number}",
        "url": f"https://example.org/{number}",
        "summary": "",
        "at": NOON - timedelta(hours=number),
    }
    return Item(**{**row, **values})


def composed(
    *items: Item, user: DigestUser = USER, counts: dict[str, int] | None = None, **options: Any
) -> Digest:
    """Compose a digest; by default the counts are those of the items."""
    names = [one.account for one in items]
    shown = {name: names.count(name) for name in names}
    return compose(user, items, NOON, counts=counts or shown, unsubscribe_url=UNSUBSCRIBE, **options)


class TestOrder:
    """What comes where."""

    def test_by_account_the_newest_first(self) -> None:
        """An account stands where its newest item would."""
        digest = composed(item(1, account="B"), item(2, account="A"), item(3, account="B"))
        page = BeautifulSoup(digest.html, "html.parser")
        assert [one.text for one in page.find_all("h2")] == ["B", "A"]
        assert [one.text for one in page.find_all("a")][:3] == ["Title 1", "Title 3", "Title 2"]
        lines = [line for line in digest.text.splitlines() if line.startswith("* ")]
        assert lines == ["* Title 1", "* Title 3", "* Title 2"]

    def test_what_is_not_shown_is_counted(self) -> None:
        """In its account, and of accounts that aren't shown at all."""
        digest = composed(item(1), counts={"Northwind": 13, "Other": 3})
        for form in (digest.html, digest.text):
            assert "and 12 more" in form
            assert "And 3 more from other accounts" in form
        assert digest.subject == "16 new items from Northwind and 1 other"

    @pytest.mark.parametrize(
        ("counts", "subject"),
        [
            ({"Northwind": 1}, "1 new item from Northwind"),
            ({"Northwind": 1200}, "1,200 new items from Northwind"),
            ({"Northwind": 1, "B": 1, "C": 1}, "3 new items from Northwind and 2 others"),
        ],
    )
    def test_the_subject_says_how_many(self, counts: dict[str, int], subject: str) -> None:
        """And from whom first."""
        assert composed(item(1), counts=counts).subject == subject


class TestTimes:
    """Times are those of the user's clocks."""

    @pytest.mark.parametrize(
        ("timezone", "date", "time"),
        [
            ("Europe/Berlin", "Monday, 2 March 2026", "Mon 2 Mar, 12:00"),
            ("Pacific/Kiritimati", "Tuesday, 3 March 2026", "Tue 3 Mar, 01:00"),
            ("Pacific/Pago_Pago", "Monday, 2 March 2026", "Mon 2 Mar, 00:00"),
        ],
    )
    def test_in_the_users_zone(self, timezone: str, date: str, time: str) -> None:
        """Also where that is another day."""
        digest = composed(item(1), user=replace(USER, timezone=timezone))
        for form in (digest.html, digest.text):
            assert date in " ".join(form.split())
            assert time in form

    def test_around_a_change_of_the_clocks(self) -> None:
        """An hour apart, and two on the clock."""
        change = datetime(2026, 3, 29, 1, tzinfo=UTC)
        digest = composed(item(1, at=change), item(2, at=change - timedelta(hours=1)))
        assert ("Sun 29 Mar, 03:00" in digest.text, "Sun 29 Mar, 01:00" in digest.text) == (True, True)

    def test_an_unknown_zone(self) -> None:
        """It is said, with the value."""
        with pytest.raises(TimezoneError, match="Mars/Base"):
            composed(item(1), user=replace(USER, timezone="Mars/Base"))


class TestHostile:
    """What feeds say is text."""

    def test_markup_stays_text(self) -> None:
        """Whatever part it is in."""
        evil = '<img src=x onerror="alert(1)">'
        digest = composed(
            item(1, title=evil, summary=evil, account=evil), user=replace(USER, name=evil), counts={evil: 5}
        )
        page = BeautifulSoup(digest.html, "html.parser")
        assert not page.find_all(["img", "script"])
        assert page.find("h2").text == evil

    @pytest.mark.parametrize(
        "url",
        [
            "javascript:alert(1)",
            "JAVASCRIPT:alert(1)",
            "data:text/html,x",
            "java\nscript:alert(1)",
            " https://example.org",
            "https://exa mple.org",
            "//example.org/x",
            "https://",
            "https://[::1",
            "",
            None,
        ],
    )
    def test_only_web_addresses_are_links(self, url: str | None) -> None:
        """The title is shown all the same."""
        assert web_link(url) is None
        digest = composed(item(1, url=url))
        assert [one["href"] for one in BeautifulSoup(digest.html, "html.parser").find_all("a")] == [
            UNSUBSCRIBE
        ]
        assert "Title 1" in digest.html

    def test_line_breaks_never_reach_the_subject(self) -> None:
        """An account's name is somebody's text."""
        digest = composed(item(1, account="North\r\nBcc: x@example.org\u2028wind"))
        assert digest.subject == "1 new item from North Bcc: x@example.org wind"

    def test_an_empty_title_can_still_be_read(self) -> None:
        """Feeds have such items."""
        assert "(untitled)" in composed(item(1, title=" \n ")).text


class TestForm:
    """How it is laid out."""

    def test_text_is_wrapped_and_addresses_are_not(self) -> None:
        """A wrapped address is no link any more."""
        address = "https://example.org/" + "x" * 120
        digest = composed(item(1, title="word " * 40, summary="word " * 40, url=address))
        lines = digest.text.splitlines()
        assert f"  {address}" in lines
        assert all(len(line) <= TEXT_WIDTH for line in lines if "://" not in line)
        assert digest.text.endswith(f"{UNSUBSCRIBE}\n")
        assert "\n\n\n" not in digest.text

    def test_summaries_are_shortened_between_words(self) -> None:
        """A digest is no newspaper."""
        assert shortened("one two three", 9) == "one two…"
        assert shortened("x" * 20, 9) == "xxxxxxxx…"
        assert shortened("one\n two", 9) == "one two"

    def test_templates_of_ones_own(self, tmp_path: Path) -> None:
        """One of the two is enough."""
        (tmp_path / "digest.html.j2").write_text("<b>{{ accounts[0].name }}</b>")
        digest = composed(item(1, account="A & B"), templates=tmp_path)
        assert digest.html == "<b>A &amp; B</b>"
        assert "A & B" in digest.text
