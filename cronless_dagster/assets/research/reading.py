"""Reading one source: asked whether it changed, fetched, taken apart. Nothing here touches the database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cronless_dagster.assets.fetching import FetchError, FetchLater, FetchRefused, NotModified
from cronless_dagster.assets.research.feeds import MAX_ITEMS, read_feed
from cronless_dagster.assets.research.files import read_table
from cronless_dagster.assets.research.found import SourceError, digest_of
from cronless_dagster.assets.research.pages import read_page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from cronless_dagster.assets.fetching import Fetched, Fetcher
    from cronless_dagster.assets.research.accounts import KnownSource
    from cronless_dagster.assets.research.files import Files
    from cronless_dagster.assets.research.found import Found

_ACCEPT = {
    "feed": "application/atom+xml, application/rss+xml, application/rdf+xml;q=0.9, application/xml;q=0.8, */*;q=0.5",
    "page": "text/html, application/xhtml+xml, */*;q=0.1",
}
MAX_ERROR = 500


@dataclass(frozen=True, slots=True)
class Read:
    """A source that could be read.

    Attributes:
        items: None: it is as it was, and nothing was taken apart.
        fetched_from: Where the content really came from, redirects followed.
        etag: What the next request asks with; to be stored with the items or not at all.
        content_hash: Of the bytes.
    """

    source: KnownSource
    items: Sequence[Found] | None
    fetched_from: str
    etag: str | None = None
    last_modified: str | None = None
    content_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """A source that could not be read.

    Attributes:
        error: One sentence.
        may_pass: Whether another try may find it better.
        after: How long its server asked to be left alone.
    """

    source: KnownSource
    error: str
    may_pass: bool
    after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """What sources are read with; any number of threads may use it at once.

    Attributes:
        most_items: Of a feed; what lies beyond is left out.
    """

    fetcher: Fetcher
    files: Files
    most_items: int = field(default=MAX_ITEMS)

    def read(self, source: KnownSource, now: datetime) -> Read | Unread:
        """Read a source; whatever goes wrong is its own failure and no neighbour's."""
        try:
            return self._file(source) if source.kind in ("csv", "parquet") else self._web(source, now)
        except FetchLater as error:
            return Unread(source, _cut(error), may_pass=True, after=error.after)
        except (FetchRefused, SourceError) as error:
            return Unread(source, _cut(error), may_pass=False)
        except FetchError as error:
            return Unread(source, _cut(error), may_pass=True)
        except Exception as error:  # noqa: BLE001 - what people publish makes parsers raise anything at all
            said = f"{_shown(source)} can't be taken apart ({type(error).__name__}: {error}): watch something else"
            return Unread(source, said[:MAX_ERROR], may_pass=False)

    def _web(self, source: KnownSource, now: datetime) -> Read:
        answer = self.fetcher.fetch(
            source.location,
            etag=source.etag,
            last_modified=source.last_modified,
            accept=_ACCEPT[source.kind],
        )
        if isinstance(answer, NotModified):
            return Read(source, None, source.location, source.etag, source.last_modified, source.content_hash)
        content_hash = digest_of(answer.body)
        items = None if content_hash == source.content_hash else self._items(source, answer, now)
        return Read(source, items, answer.url_final, answer.etag, answer.last_modified, content_hash)

    def _items(self, source: KnownSource, answer: Fetched, now: datetime) -> list[Found]:
        if source.kind == "page":
            return read_page(
                answer.body,
                url=answer.url_final,
                key=source.location,
                content_type=answer.content_type,
                charset=answer.charset,
            )
        return read_feed(
            answer.body,
            url=answer.url_final,
            content_type=answer.content_type,
            charset=answer.charset,
            now=now,
            most=self.most_items,
        )

    def _file(self, source: KnownSource) -> Read:
        content = self.files.read(source.location)
        content_hash = digest_of(content)
        items = None
        if content_hash != source.content_hash:
            items = read_table(
                content,
                kind="csv" if source.kind == "csv" else "parquet",
                location=source.location,
                largest=self.files.largest,
            )
        return Read(source, items, source.location, content_hash=content_hash)


def _shown(source: KnownSource) -> str:
    # A query may hold a key of its owner's.
    return source.location.partition("?")[0][:200]


def _cut(error: Exception) -> str:
    return str(error)[:MAX_ERROR]
