"""A refresh: read outside of transactions, write what is new in one, and the same again changes nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from cronless_dagster.assets.research import AccountError, refresh
from cronless_dagster.assets.research.refreshing import NothingRead
from cronless_dagster.engine.errors import PermanentFailure, RetryLater
from cronless_dagster.store.clock import make_virtual
from tests.assets.research.support import Feed, add_account, items, reader, rows, rss
from tests.assets.web import Reply, Reset
from tests.conftest import VIRTUAL_NOW

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

    from cronless_dagster.assets.fetching import Fetcher
    from cronless_dagster.assets.research.reading import Reader
    from tests.assets.web import WebServer


def source(engine: Engine) -> Any:
    """Return the only source."""
    [row] = rows(engine, "SELECT * FROM cronless_assets.source")
    return row


def summary(engine: Engine) -> Any:
    """Return the only summary."""
    [row] = rows(engine, "SELECT * FROM cronless_assets.account_summary")
    return row


class TestWhatIsWritten:
    """Items with their provenance, the state of sources, and a summary."""

    def test_a_first_refresh(self, virtual_assets_engine: Engine, web: WebServer, web_reader: Reader) -> None:
        """Everything is new; where it came from and when it was seen is kept."""
        web.routes["/feed"] = Feed("a", "b")
        add_account(virtual_assets_engine, web.url("/feed"))
        told = refresh(virtual_assets_engine, web_reader, "acme", "globex")
        assert (told.new, told.changed, told.items, told.sources) == (2, 0, 2, 1)
        found = items(virtual_assets_engine)["a"]
        assert (found.fetched_from, found.first_seen_at, found.changed_at) == (
            web.url("/feed"),
            VIRTUAL_NOW,
            None,
        )
        known = source(virtual_assets_engine)
        assert (known.status, known.error, known.fetched_at) == ("new", None, VIRTUAL_NOW)
        assert known.etag is not None
        of_all = summary(virtual_assets_engine)
        assert (of_all.items, of_all.new_items, of_all.sources, of_all.failed_sources) == (2, 2, 1, 0)
        assert of_all.weekly == {"2026-02-23": 2}
        assert of_all.latest_published_at == datetime(2026, 2, 23, 8, 0, tzinfo=UTC)

    def test_what_changed_is_told_from_what_is_new(
        self, virtual_assets_engine: Engine, web: WebServer, web_reader: Reader
    ) -> None:
        """An item keeps the instant at which it was seen first; what a feed drops is kept."""
        engine = virtual_assets_engine
        web.routes["/feed"] = Feed("a", "b")
        add_account(engine, web.url("/feed"))
        refresh(engine, web_reader, "acme", "globex")
        later = VIRTUAL_NOW + timedelta(hours=6)
        make_virtual(engine, later)
        web.routes["/feed"] = Feed("b: corrected", "c")
        told = refresh(engine, web_reader, "acme", "globex")
        assert (told.new, told.changed, told.items) == (1, 1, 3)
        found = items(engine)
        assert (found["b"].title, found["b"].first_seen_at, found["b"].changed_at) == (
            "b: corrected",
            VIRTUAL_NOW,
            later,
        )
        assert (summary(engine).new_items, summary(engine).changed_items) == (1, 1)

    def test_the_same_again_changes_nothing(
        self, assets_engine: Engine, web: WebServer, fetcher: Fetcher
    ) -> None:
        """Neither by 304, nor by the same bytes, nor by the same items in other bytes."""
        feed = Feed("a", "b")
        web.routes["/feed"] = feed
        add_account(assets_engine, web.url("/feed"))
        of = reader(fetcher)
        refresh(assets_engine, of, "acme", "globex")
        before = items(assets_engine)
        told = refresh(assets_engine, of, "acme", "globex")
        assert (told.new, told.changed, told.unchanged_sources) == (0, 0, 1)
        assert feed.not_modified == 1
        assert source(assets_engine).status == "unchanged"
        web.routes["/feed"] = lambda _request: rss("a", "b")
        assert refresh(assets_engine, of, "acme", "globex").unchanged_sources == 1
        web.routes["/feed"] = lambda _request: rss("b", "a") + b"<!-- other bytes -->"
        told = refresh(assets_engine, of, "acme", "globex")
        assert (told.new, told.changed, told.unchanged_sources) == (0, 0, 0)
        assert items(assets_engine) == before
        assert (summary(assets_engine).new_items, summary(assets_engine).items) == (0, 2)

    def test_what_did_not_change_is_not_taken_apart(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Taking a feed apart is what costs."""
        web.routes["/feed"] = lambda _request: rss("a")
        add_account(assets_engine, web.url("/feed"))
        refresh(assets_engine, web_reader, "acme", "globex")
        monkeypatch.setattr("cronless_dagster.assets.research.reading.read_feed", None)
        assert refresh(assets_engine, web_reader, "acme", "globex").unchanged_sources == 1

    def test_pages_and_files_are_sources_too(
        self, assets_engine: Engine, web: WebServer, fetcher: Fetcher, tmp_path: Path
    ) -> None:
        """One account may have all kinds."""
        web.routes["/feed"] = Feed("a")
        web.routes["/page"] = lambda _request: Reply(
            200, b"<title>Page</title>text", {"Content-Type": "text/html"}
        )
        (tmp_path / "t.csv").write_text("key,title\nrow,Row\n")
        add_account(assets_engine, web.url("/feed"))
        add_account(assets_engine, web.url("/page"), kind="page")
        add_account(assets_engine, "t.csv", kind="csv")
        told = refresh(assets_engine, reader(fetcher, tmp_path), "acme", "globex")
        assert (told.new, told.failures) == (3, [])
        assert {"a", web.url("/page"), "row"} == set(items(assets_engine))
        assert refresh(assets_engine, reader(fetcher, tmp_path), "acme", "globex").unchanged_sources >= 2


class TestFailures:
    """One source fails alone; all of them fail the refresh."""

    def test_a_failed_source_keeps_no_other_from_its_refresh(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader
    ) -> None:
        """The refresh succeeds and says so."""
        web.routes["/feed"] = Feed("a")
        web.routes["/html"] = lambda _request: b"<html><title>x</title></html>"
        add_account(assets_engine, web.url("/feed"), web.url("/html"), web.url("/gone"))
        told = refresh(assets_engine, web_reader, "acme", "globex")
        told.raise_if_nothing_was_read()
        assert (told.new, len(told.failures)) == (1, 2)
        assert told.failures_text().startswith("2 of 3 sources failed: ")
        errors = {
            row.location: row.error
            for row in rows(assets_engine, "SELECT * FROM cronless_assets.source WHERE status = 'failed'")
        }
        assert set(errors) == {web.url("/html"), web.url("/gone")}
        assert "an HTML page, not a feed" in errors[web.url("/html")]
        assert summary(assets_engine).failed_sources == 2

    def test_what_stays_wrong_is_not_tried_again(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader
    ) -> None:
        """A feed that is HTML will be HTML in a minute."""
        web.routes["/feed"] = lambda _request: b"<html></html>"
        add_account(assets_engine, web.url("/feed"))
        told = refresh(assets_engine, web_reader, "acme", "globex")
        with pytest.raises(PermanentFailure, match=r"1 of 1 sources failed: .* an HTML page"):
            told.raise_if_nothing_was_read()

    def test_what_may_pass_is_tried_again(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader
    ) -> None:
        """By the retry policy, although the other source stays wrong."""
        web.routes["/feed"] = lambda _request: Reset()
        add_account(assets_engine, web.url("/feed"), web.url("/gone"))
        told = refresh(assets_engine, web_reader, "acme", "globex")
        with pytest.raises(NothingRead, match="2 of 2 sources failed"):
            told.raise_if_nothing_was_read()

    def test_a_server_that_asks_for_a_pause_gets_it(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader
    ) -> None:
        """The shortest of all pauses asked for."""
        for path, seconds in (("/a", "900"), ("/b", "120")):
            web.routes[path] = lambda _request, wait=seconds: Reply(429, b"", {"Retry-After": wait})
        add_account(assets_engine, web.url("/a"), web.url("/b"))
        told = refresh(assets_engine, web_reader, "acme", "globex")
        with pytest.raises(RetryLater) as caught:
            told.raise_if_nothing_was_read()
        assert caught.value.after == timedelta(seconds=120)

    def test_a_failed_refresh_leaves_what_was_found(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader
    ) -> None:
        """Its ETag included: the next 304 is about the items that are there."""
        feed = Feed("a")
        web.routes["/feed"] = feed
        add_account(assets_engine, web.url("/feed"))
        refresh(assets_engine, web_reader, "acme", "globex")
        before = summary(assets_engine)
        web.routes["/feed"] = lambda _request: Reply(200, b"<html></html>", {"ETag": '"of-html"'})
        refresh(assets_engine, web_reader, "acme", "globex")
        assert source(assets_engine).status == "failed"
        assert source(assets_engine).etag != '"of-html"'
        after = summary(assets_engine)
        assert (after.items, after.refreshed_at, after.failed_sources) == (1, before.refreshed_at, 1)
        web.routes["/feed"] = feed
        assert refresh(assets_engine, web_reader, "acme", "globex").unchanged_sources == 1
        assert (source(assets_engine).status, summary(assets_engine).failed_sources) == ("unchanged", 0)

    def test_what_makes_a_parser_raise_is_that_sources_failure(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever it raises, and without the address's query."""

        def broken(*_arguments: object, **_options: object) -> None:
            raise RecursionError("too\x00deep")

        monkeypatch.setattr("cronless_dagster.assets.research.reading.read_feed", broken)
        web.routes["/feed"] = lambda _request: rss("a")
        add_account(assets_engine, web.url("/feed?key=secret"))
        [failure] = refresh(assets_engine, web_reader, "acme", "globex").failures
        assert "RecursionError" in failure.error
        assert "secret" not in failure.error
        assert source(assets_engine).error

    def test_an_unknown_account_and_one_without_sources(
        self, assets_engine: Engine, web_reader: Reader
    ) -> None:
        """Both are said in a sentence."""
        with pytest.raises(AccountError, match="tenant 'acme' has no account 'globex'"):
            refresh(assets_engine, web_reader, "acme", "globex")
        add_account(assets_engine)
        with pytest.raises(AccountError, match="account 'globex' of tenant 'acme' has no source"):
            refresh(assets_engine, web_reader, "acme", "globex")


class TestTogether:
    """A claimed job and a person's backfill may meet."""

    def test_two_at_once_count_each_item_once(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader
    ) -> None:
        """Both read the same; neither waits for ever, and the sum is what there is."""
        together = threading.Barrier(4, timeout=30)

        def serve(_request: object) -> bytes:
            together.wait()
            return rss(*(f"item {number}" for number in range(50)))

        web.routes["/a"] = web.routes["/b"] = serve
        add_account(assets_engine, web.url("/a"))
        add_account(assets_engine, web.url("/b"), name="initech")

        def one(name: str) -> int:
            return refresh(assets_engine, web_reader, "acme", name).new

        with ThreadPoolExecutor(4) as pool:
            counted = list(pool.map(one, ["globex", "initech", "globex", "initech"]))
        assert sorted(counted) == [0, 0, 50, 50]

    def test_the_older_answer_does_not_overwrite_the_newer(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader
    ) -> None:
        """A slow refresh that read before another one wrote leaves what it finds."""
        slow, written = threading.Event(), threading.Event()
        answers = iter([rss("a: old"), rss("a: new")])

        def serve(_request: object) -> bytes:
            body = next(answers)
            if b"old" in body:
                slow.set()
                written.wait(30)
            return body

        web.routes["/feed"] = serve
        add_account(assets_engine, web.url("/feed"))
        with ThreadPoolExecutor(1) as pool:
            behind = pool.submit(refresh, assets_engine, web_reader, "acme", "globex")
            assert slow.wait(30)
            assert refresh(assets_engine, web_reader, "acme", "globex").new == 1
            written.set()
            assert (behind.result(30).new, behind.result(30).changed) == (0, 0)
        assert items(assets_engine)["a"].title == "a: new"

    def test_nor_while_the_newer_is_being_written(
        self,
        assets_engine: Engine,
        web: WebServer,
        web_reader: Reader,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Whoever comes second waits for the account's row, and finds that its source was read by another."""
        both_read = threading.Barrier(2, timeout=30)
        bodies = iter([rss("a: old"), rss("a: new")])
        entered, go_on = threading.Event(), threading.Event()

        def serve(_request: object) -> bytes:
            body = next(bodies)
            both_read.wait()
            if b"old" in body:
                assert entered.wait(30)
            return body

        def weeks(_instants: object) -> dict[str, int]:
            # Before the commit of the newer one; the older one has time to come up behind.
            if not entered.is_set():
                entered.set()
                go_on.wait(1)
            return {}

        monkeypatch.setattr("cronless_dagster.assets.research.storing.by_week", weeks)
        web.routes["/feed"] = serve
        add_account(assets_engine, web.url("/feed"))
        with ThreadPoolExecutor(2) as pool:
            told = [pool.submit(refresh, assets_engine, web_reader, "acme", "globex") for _ in range(2)]
            assert sorted((one.result(60).new, one.result(60).changed) for one in told) == [(0, 0), (1, 0)]
        assert items(assets_engine)["a"].title == "a: new"

    def test_a_source_that_became_another_kind_meanwhile_is_read_again(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader
    ) -> None:
        """Its first refresh took it for a page; the next one must not find it unchanged."""

        def serve(_request: object) -> Reply:
            add_account(assets_engine, web.url("/feed"))
            return Reply(200, rss("a"), {"ETag": '"1"', "Content-Type": "text/html"})

        web.routes["/feed"] = serve
        add_account(assets_engine, web.url("/feed"), kind="page")
        assert refresh(assets_engine, web_reader, "acme", "globex").new == 0
        web.routes["/feed"] = Feed("a")
        assert refresh(assets_engine, web_reader, "acme", "globex").new == 1
        assert list(items(assets_engine)) == ["a"]

    def test_an_account_or_a_source_that_is_removed_meanwhile(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader
    ) -> None:
        """Its refresh fails by itself, or writes what is left."""

        def forget(what: str) -> Any:
            def serve(_request: object) -> bytes:
                with assets_engine.begin() as connection:
                    connection.execute(text(f"DELETE FROM cronless_assets.{what}"))
                return rss("a")

            return serve

        web.routes["/feed"] = forget("source")
        add_account(assets_engine, web.url("/feed"))
        assert refresh(assets_engine, web_reader, "acme", "globex").new == 0
        add_account(assets_engine, web.url("/feed"))
        web.routes["/feed"] = forget("account")
        with pytest.raises(AccountError, match="was removed during its refresh"):
            refresh(assets_engine, web_reader, "acme", "globex")

    def test_a_crash_before_the_commit_loses_nothing(
        self, assets_engine: Engine, web: WebServer, web_reader: Reader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No ETag is kept without its items, so that the next refresh finds them."""
        web.routes["/feed"] = Feed("a")
        add_account(assets_engine, web.url("/feed"))
        with monkeypatch.context() as patched:

            def die(_instants: object) -> None:
                raise RuntimeError("killed")

            patched.setattr("cronless_dagster.assets.research.storing.by_week", die)
            with pytest.raises(RuntimeError):
                refresh(assets_engine, web_reader, "acme", "globex")
        assert source(assets_engine).etag is None
        assert refresh(assets_engine, web_reader, "acme", "globex").new == 1
