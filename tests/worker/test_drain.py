"""The end of a worker: what runs may end, what waits goes back, and nothing is lost."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from cronless_dagster.rabbitmq.errors import BrokerRefused
from cronless_dagster.worker import threads
from tests.worker.support import GUARD_SECONDS, Site, lock_row, queue_types, until, waiting_for, working

if TYPE_CHECKING:
    import pytest

    from cronless_dagster.store.rows import ClaimedJob


def test_running_handlers_end_and_are_recorded(site: Site) -> None:
    """Told to stop, it starts nothing more; what ran is written, messages not started are back in their queue."""
    going, begun = threading.Event(), threading.Barrier(3)

    def handler(_job: ClaimedJob) -> None:
        begun.wait(GUARD_SECONDS)
        assert going.wait(GUARD_SECONDS)

    site.due(10)
    with working(site, queue_types(handler), concurrency=2) as running:
        begun.wait(GUARD_SECONDS)
        running.stopping.set()
        until(lambda: site.depth() == 8, "the others are back")
        going.set()
        running.stop()
        assert running.left == []
        assert (running.counts.done, running.counts.in_flight) == (2, 0)
        assert not running.consumer.connected
    assert site.statuses() == {"PENDING": 2, "QUEUED": 8}
    with working(site) as other:
        until(lambda: other.counts.done == 8, "another worker runs them")
    assert site.all_once(10)


def test_started_jobs_that_wait_go_back_to_the_table(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was started ahead and never run is PENDING again as it was, no try counted, and due at once."""
    monkeypatch.setattr(threads.HandlerThreads, "recent", lambda _self: 6.0)
    going = threading.Event()
    messages = site.due(8)
    with working(site, queue_types(waiting_for(going)), concurrency=2) as running:
        until(lambda: running.counts.in_flight == 8, "six are started ahead")
        running.stopping.set()
        until(lambda: running.counts.given_back == 6, "given back")
        going.set()
        running.stop()
        assert running.counts.done == 2
    rows = [row for row in map(site.row, messages) if row.last_outcome is None]
    assert len(rows) == 6
    assert {(row.status, row.attempt, row.next_run_at == row.due_at) for row in rows} == {
        ("PENDING", 0, True)
    }


def test_a_handler_that_does_not_end_is_named_and_given_back(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond its limit the worker goes; a line says what still ran, and that is due as it was, with no try used."""
    going = threading.Event()
    [message] = site.due(1)
    with working(site, queue_types(waiting_for(going)), drain_seconds=0.2) as running:
        until(lambda: running.counts.in_flight == 1, "running")
        with caplog.at_level(logging.WARNING):
            running.stop()
        assert [job.id for job in running.left] == [message.job_id]
    assert [record.getMessage() for record in caplog.records if str(message.job_id) in record.getMessage()]
    before = site.row(message)
    assert (before.status, before.attempt, before.crashes) == ("PENDING", 0, 0)
    going.set()
    # What it says now comes too late, and changes nothing.
    assert site.row(message) == before


def test_what_ran_is_recorded_also_when_the_broker_throws_it_out(site: Site) -> None:
    """An error that waiting doesn't mend ends the worker, after what was running has been written."""
    going = threading.Event()
    site.due(1)
    with working(site, queue_types(waiting_for(going)), fails=True) as running:
        until(lambda: running.counts.in_flight == 1, "running")
        refused = BrokerRefused("the broker refuses the user")
        running.consumer._deliveries.close(refused)
        until(lambda: running.consumer.fatal is not None, "refused")
        going.set()
        running.thread.join(GUARD_SECONDS)
        assert running.errors == [refused]
    assert site.all_once(1)


def test_results_wait_for_a_locked_row_as_long_as_the_limit(site: Site) -> None:
    """A result whose row somebody has locked is written once they let go, while its neighbours are long done."""
    going = threading.Event()
    first, *_ = site.due(3)
    with working(site, queue_types(waiting_for(going))) as running:
        until(lambda: running.counts.in_flight == 3, "running")
        let_go = lock_row(site.engine, first.job_id)
        going.set()
        until(lambda: running.counts.done == 2, "neighbours are written")
        running.stopping.set()
        let_go()
        running.stop()
        assert running.counts.done == 3
    assert site.all_once(3)
