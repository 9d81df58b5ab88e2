"""The demo's stand-in for the web: what readers and subscribers find there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
import pytest

from cronless_dagster.assets.research.feeds import read_feed
from cronless_dagster.demo import hub
from cronless_dagster.demo.feeds import RECENT, Feed
from cronless_dagster.demo.hub import Asked
from cronless_dagster.demo.web import app
from tests.assets.webhooks.hub import served
from tests.worker.support import until

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 12, 7, 9, 0, tzinfo=UTC)
SERVER = "http://127.0.0.1:8000"
NAMES = [f"account-{number}" for number in range(20)]


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """A client of the demo's web server."""
    with served(app()) as address, httpx.Client(base_url=address) as made:
        yield made


class TestFeeds:
    def test_both_kinds_are_feeds_that_say_they_are_made_up(self) -> None:
        """Each has its newest items and some older ones, dated and with links; some are RSS, some Atom."""
        kinds = set()
        for name in NAMES:
            feed = Feed(SERVER, "tenant-001", name)
            xml = feed.xml(NOW)
            kinds |= {kind for kind in (b"<rss", b":feed") if kind in xml}
            items = read_feed(xml, url=feed.address, now=NOW)
            assert [item.title for item in items] == [news.title for news in feed.news(NOW)]
            assert [item.published_at for item in items] == [news.at for news in feed.news(NOW)]
            assert len({item.key for item in items}) == len(items) > RECENT
            assert all(item.title.startswith("Made-up news") and item.url for item in items)
        assert kinds == {b"<rss", b":feed"}

    def test_something_new_comes_within_minutes_and_the_rest_stays(self) -> None:
        """The same instant gives the same bytes; seven minutes later there is at least one more item."""
        for name in NAMES:
            feed = Feed(SERVER, "tenant-001", name)
            assert feed.xml(NOW) == Feed(SERVER, "tenant-001", name).xml(NOW)
            before, after = (
                {news.number for news in feed.news(at)} for at in (NOW, NOW + timedelta(minutes=7))
            )
            assert after - before
            assert before & after
            assert max(news.at for news in feed.news(NOW)) <= NOW

    def test_a_name_with_anything_in_it_becomes_a_plain_address(self, client: httpx.Client) -> None:
        """The address that rows name is the one that is served."""
        feed = Feed(str(client.base_url), "tenant-001", "Run-the-/home/x?y#z <b>.sh")
        assert client.get(feed.address).status_code == 200
        assert client.get(feed.link(next(feed.news(NOW)))).status_code == 200

    def test_a_reader_that_has_it_all_gets_304(self, client: httpx.Client) -> None:
        """By its ETag."""
        address = Feed(str(client.base_url), "tenant-001", "acme").address
        tag = client.get(address).headers["etag"]
        answers = [
            client.get(address, headers={"If-None-Match": one}).status_code for one in (tag, '"other"')
        ]
        # A new item may have come in between.
        assert answers in ([304, 200], [200, 200])


FORM = {
    "hub.mode": "subscribe",
    "hub.topic": Feed(SERVER, "tenant-001", "acme").address,
    "hub.callback": "http://127.0.0.1:1/websub/x",
}


class TestHub:
    @pytest.fixture(autouse=True)
    def verified(self, monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
        """Collect what would be verified; the whole round is shown with the job types."""
        asked: list[Asked] = []

        async def note(one: Asked) -> None:
            asked.append(one)

        monkeypatch.setattr(hub, "verify", note)
        return asked

    def test_a_request_is_taken_and_verified(self, client: httpx.Client, verified: list[Asked]) -> None:
        """202, whose verification comes after the answer."""
        assert client.post("/hub", data=FORM).status_code == 202
        until(lambda: verified, "it is verified")
        assert [one.topic for one in verified] == [FORM["hub.topic"]]

    @pytest.mark.parametrize(
        "wrong",
        [{"hub.callback": "http://192.0.2.1/websub/x"}, {"hub.callback": ""}, {"hub.mode": "publish"}],
    )
    def test_it_calls_nobody_outside_of_this_machine(
        self, client: httpx.Client, verified: list[Asked], wrong: dict[str, str]
    ) -> None:
        """Another callback, or another request, is refused."""
        assert client.post("/hub", data={**FORM, **wrong}).status_code == 400
        assert verified == []

    def test_some_topics_are_put_off_at_the_first_try(
        self, client: httpx.Client, verified: list[Asked]
    ) -> None:
        """One in ten or so: 503 with Retry-After, then 202."""
        topics = [Feed(SERVER, "tenant-001", f"account-{number}").address for number in range(100)]
        put_off = [
            topic for topic in topics if Asked("subscribe", topic, FORM["hub.callback"]).is_put_off_first
        ]
        assert 2 <= len(put_off) <= 30
        first = client.post("/hub", data={**FORM, "hub.topic": put_off[0]})
        assert (first.status_code, first.headers["retry-after"]) == (503, "20")
        assert client.post("/hub", data={**FORM, "hub.topic": put_off[0]}).status_code == 202
        until(lambda: verified, "it is verified")
        assert [one.topic for one in verified] == [put_off[0]]
