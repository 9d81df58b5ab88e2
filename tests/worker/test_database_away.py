"""A database that is away for a while: nothing is lost, and other workers aren't kept from anything."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from cronless_dagster.store.errors import DatabaseUnavailable
from cronless_dagster.worker import loop
from tests.worker.support import Site, queue_types, until, waiting_for, working

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest
    from sqlalchemy import URL


@contextmanager
def away(site: Site) -> Iterator[None]:
    """Close the database to everybody, ending all connections."""
    url: URL = site.engine.url.set(drivername="postgresql")
    admin = url.set(database="postgres").render_as_string(hide_password=False)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS false".encode())
        try:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (url.database,)
            )
            yield
        finally:
            connection.execute(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS true".encode())


def test_results_wait_and_messages_go_back(site: Site) -> None:
    """What ended meanwhile is written afterwards; messages are back in their queue until the database answers."""
    going = threading.Event()
    site.due(2)
    with working(site, queue_types(waiting_for(going)), concurrency=4) as running:
        until(lambda: running.counts.in_flight == 2, "running")
        later = site.claimed(5)
        with away(site):
            going.set()
            site.publish(later)
            until(lambda: not running.counts.database, "noticed")
            until(lambda: site.depth() == 5 and running.counts.held == 0, "messages are back")
            assert running.counts.paused
            assert (running.counts.done, running.counts.in_flight) == (0, 2)
        until(lambda: running.counts.done == 7, "all done")
        assert running.counts.database
        assert not running.counts.paused
    assert site.all_once(7)


def test_a_start_whose_answer_was_lost_is_found_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit came through and its answer didn't: the message that went back meanwhile still starts its job."""
    start_batch, calls = loop.start_batch, []

    def unlucky(*asked: Any) -> Any:
        calls.append(asked)
        if running.counts.returned:
            return start_batch(*asked)
        if len(calls) == 1:
            start_batch(*asked)
        raise DatabaseUnavailable("the connection broke in the middle of the commit")

    monkeypatch.setattr(loop, "start_batch", unlucky)
    messages = site.claimed(1)
    with working(site) as running:
        site.publish(messages)
        until(lambda: running.counts.done == 1, "done")
        assert (running.counts.returned, running.counts.doubled) == (1, 0)
    assert len(calls) > 2
    assert site.all_once(1)


def test_connections_that_break_in_the_middle(site: Site) -> None:
    """Killed again and again under load, no connection takes a job or a result along."""
    url = site.engine.url.set(drivername="postgresql")
    admin = url.set(database="postgres").render_as_string(hide_password=False)
    messages = site.claimed(1_500)
    with working(site) as running, psycopg.connect(admin, autocommit=True) as connection:
        for first in range(0, 1_500, 100):
            site.publish(messages[first : first + 100])
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (url.database,)
            )
        until(lambda: running.counts.done + running.counts.discarded == 1_500, "all ended")
        # A commit whose answer was lost is found out by asking with the same execution, and counts as discarded.
        until(lambda: site.all_once(1_500), "each once")
