"""Leases that are renewed, jobs that were taken away, results that nobody can write."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy.exc import DataError

from cronless_dagster.worker import completing, threads
from tests.engine.support import sql
from tests.worker.support import GUARD_SECONDS, Site, queue_types, until, waiting_for, working

if TYPE_CHECKING:
    import pytest

    from cronless_dagster.store.rows import ClaimedJob

SHORT = timedelta(seconds=5)


def test_a_long_job_keeps_its_lease(site: Site) -> None:
    """The lease moves on while the handler runs, and the result is accepted."""
    going = threading.Event()
    [message] = site.due(1)
    with working(site, queue_types(waiting_for(going), lease=SHORT)) as running:
        until(lambda: running.counts.in_flight == 1, "running")
        first = site.row(message).lease_expires_at
        until(lambda: site.row(message).lease_expires_at > first + SHORT / 4, "renewed")
        going.set()
        until(lambda: running.counts.done == 1, "done")
    assert site.all_once(1)


def test_a_job_taken_away_is_not_begun_and_its_result_not_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two jobs that others own by now, the one that waits is dropped and the one that runs discarded."""
    monkeypatch.setattr(threads.HandlerThreads, "recent", lambda _self: 1.0)
    going, served = threading.Event(), []

    def handler(job: ClaimedJob) -> None:
        served.append(job.id)
        assert going.wait(GUARD_SECONDS)

    site.due(2)
    with working(site, queue_types(handler, lease=SHORT), concurrency=1) as running:
        until(lambda: running.counts.in_flight == 2 and served, "one runs, one waits")
        sql(
            site.engine,
            "UPDATE cronless.scheduled_job SET execution_id = :other, plan_count = plan_count + 1",
            other=uuid4(),
        )
        until(lambda: running.counts.in_flight == 0, "the renewal found out")
        going.set()
        until(lambda: (running.counts.lost, running.counts.discarded) == (1, 1), "both dropped")
        assert running.counts.done == 0
    assert len(served) == 1
    assert site.statuses() == {"RUNNING": 2}
    assert site.outcomes() == []


def test_the_finish_fence_refuses_what_was_taken_before_a_renewal(site: Site) -> None:
    """A result that meets another execution on its row is discarded and counted."""
    going = threading.Event()
    site.due(2)
    with working(site, queue_types(waiting_for(going))) as running:
        until(lambda: running.counts.in_flight == 2, "running")
        sql(
            site.engine,
            "UPDATE cronless.scheduled_job SET execution_id = :other, plan_count = plan_count + 1"
            " WHERE id = (SELECT min(id::text)::uuid FROM cronless.scheduled_job)",
            other=uuid4(),
        )
        going.set()
        until(lambda: (running.counts.done, running.counts.discarded) == (1, 1), "one each")
        assert running.counts.in_flight == 0
    assert site.statuses() == {"PENDING": 1, "RUNNING": 1}


def test_a_job_lost_and_started_here_again_is_written_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its older self in the same process is no longer current, though the job's id is the same."""
    first, later = threading.Event(), threading.Event()
    served: list[Any] = []

    def handler(job: ClaimedJob) -> None:
        served.append(job.execution_id)
        assert (first if len(served) == 1 else later).wait(GUARD_SECONDS)

    messages = site.due(1)
    with working(site, queue_types(handler)) as running:
        until(lambda: served, "running")
        sql(
            site.engine,
            "UPDATE cronless.scheduled_job SET status = 'QUEUED', execution_id = NULL, plan_count = plan_count + 1",
        )
        site.publish(messages)
        until(lambda: len(served) == 2, "started again")
        first.set()
        until(lambda: running.counts.discarded == 1, "the older one is discarded")
        later.set()
        until(lambda: running.counts.done == 1, "done")
    assert len(set(served)) == 2
    assert site.all_once(1)


def test_one_odd_result_takes_no_other_along(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch that can't be written is halved until the odd one is alone; the worker goes on afterwards."""
    finish_started = completing.finish_started
    messages = site.claimed(50)
    odd = messages[17].job_id

    def refusing(connection: Any, results: Any, now: Any) -> Any:
        if odd in {one.job.id for one in results}:
            raise DataError("UPDATE", {}, ValueError("a value that no column takes"))
        return finish_started(connection, results, now)

    monkeypatch.setattr(completing, "finish_started", refusing)
    site.publish(messages)
    with caplog.at_level(logging.ERROR), working(site) as running:
        until(lambda: (running.counts.done, running.counts.unwritten) == (49, 1), "all others written")
        assert running.counts.in_flight == 0
        site.due(5)
        until(lambda: running.counts.done == 54, "it goes on")
    assert site.statuses() == {"PENDING": 54, "RUNNING": 1}
    assert [one for one in caplog.records if str(odd) in one.getMessage()]
