"""What the tests of research share: feeds to serve, accounts to watch, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from cronless_dagster.assets.fetching import Fetcher, FetchLimits
from cronless_dagster.assets.research import Source, watch
from cronless_dagster.assets.research.files import Files
from cronless_dagster.assets.research.reading import Reader
from tests.assets.web import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from uuid import UUID

    from sqlalchemy import Engine

LOOPBACK = FetchLimits(networks=("127.0.0.0/8",), seconds=10)


def reader(fetcher: Fetcher, home: Path | None = None) -> Reader:
    """Return what reads sources in tests."""
    return Reader(fetcher, Files(home, 1_000_000))


def rss(*titles: str, published: str = "Mon, 23 Feb 2026 08:00:00 GMT") -> bytes:
    """Write a feed of such items; a title is its own guid up to a colon, so that `a: b` changes `a`."""
    items = "".join(
        f"<item><title>{title}</title><guid>{title.partition(':')[0]}</guid><pubDate>{published}</pubDate></item>"
        for title in titles
    )
    return f'<rss version="2.0"><channel><title>Made up</title>{items}</channel></rss>'.encode()


class Feed:
    """A route that answers with a feed, and by its ETag with 304."""

    def __init__(self, *titles: str) -> None:
        self.titles, self.not_modified = titles, 0

    def __call__(self, request: Request) -> Reply:
        """Answer."""
        etag = f'"{abs(hash(self.titles))}"'
        if request.headers.get("if-none-match") == etag:
            self.not_modified += 1
            return Reply(304, headers={"ETag": etag})
        return Reply(200, rss(*self.titles), {"ETag": etag, "Content-Type": "application/rss+xml"})


def add_account(
    engine: Engine, *locations: str, tenant: str = "acme", name: str = "globex", kind: Any = "feed"
) -> UUID:
    """Watch some addresses."""
    with engine.begin() as connection:
        return watch(
            connection,
            tenant_id=tenant,
            name=name,
            sources=[Source(kind, location) for location in locations],
        )


def rows(engine: Engine, statement: str, **values: Any) -> Sequence[Any]:
    """Return what a query finds."""
    with engine.connect() as connection:
        return connection.execute(text(statement), values).all()


def items(engine: Engine) -> dict[str, Any]:
    """Return all items by key."""
    return {row.key: row for row in rows(engine, "SELECT * FROM cronless_assets.item")}
