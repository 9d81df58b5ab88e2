"""A worker on a real database and a real broker: what runs, how often, and what comes of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from cronless_dagster.engine.errors import JobTypeError, UnknownJobType
from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.rabbitmq import DEAD
from cronless_dagster.rabbitmq.consumer import Consumer
from cronless_dagster.worker import intake, loop, threads
from cronless_dagster.worker.loop import Worker
from tests.conftest import VIRTUAL_NOW
from tests.engine.support import nothing, sql
from tests.rabbitmq.receiving import dead_letters, depth, send_raw
from tests.worker.support import Site, lock_row, queue_types, until, waiting_for, working

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.store.rows import ClaimedJob


class TestJobs:
    """What handlers are given, and what becomes of their answers."""

    def test_each_runs_once_and_is_planned_again(self, site: Site) -> None:
        """Results are recorded, next occurrences planned, claims closed; the queue is empty."""
        served: list[str] = []
        site.due(50)
        with working(site, queue_types(lambda job: served.append(job.name))) as running:
            until(lambda: running.counts.done == 50, "all done")
            assert running.counts.in_flight == 0
        assert len(set(served)) == len(served) == 50
        assert site.all_once(50)
        assert site.depth() == 0
        assert [row.state for row in sql(site.engine, "SELECT state FROM cronless.job_claim")] == ["CLOSED"]

    def test_a_failure_is_tried_again_and_told_without_its_payload(
        self, site: Site, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What a handler raises is on the row, with a retry to come; its log line holds the id and no payload."""

        def handler(job: ClaimedJob) -> None:
            if job.payload["number"] == 1:
                raise RuntimeError("the site is down")

        messages = site.due(2)
        with (
            caplog.at_level(logging.INFO, "cronless_dagster.worker"),
            working(site, queue_types(handler)) as running,
        ):
            until(lambda: running.counts.done + running.counts.failed == 2, "both ended")
            assert (running.counts.done, running.counts.failed) == (1, 1)
        [failed] = [row for row in map(site.row, messages) if row.last_outcome == "failure"]
        assert (failed.status, failed.attempt) == ("PENDING", 1)
        assert failed.last_error == "RuntimeError: the site is down"
        [line] = [record for record in caplog.records if record.name.endswith("completing")]
        assert str(failed.id) in line.getMessage()
        assert "number" not in line.getMessage()

    def test_coroutine_functions(self, site: Site) -> None:
        """Handlers that are coroutine functions run as many at once as there are threads, with their context."""
        together: list[str] = []

        async def handler(job: ClaimedJob, context: HandlerContext) -> None:
            assert context.run_id is None
            together.append(job.name)
            while len(together) < 4:
                await asyncio.sleep(0.001)

        site.due(4)
        with working(site, queue_types(handler), concurrency=4) as running:
            until(lambda: running.counts.done == 4, "all done")

    def test_an_edit_between_message_and_start_is_not_lost(self, site: Site) -> None:
        """The start fence reads the payload, which no message carries."""
        seen: list[Any] = []
        [message] = site.due(1)
        sql(site.engine, """UPDATE cronless.scheduled_job SET payload = '{"new": true}'""")
        with working(site, queue_types(lambda job: seen.append(job.payload))) as running:
            until(lambda: running.counts.done == 1, "done")
        assert seen == [{"new": True}]
        assert site.row(message).status == "PENDING"

    def test_several_types_in_one_worker(self, site: Site) -> None:
        """Each type has its own queue, handler and counts; the threads are common."""
        types = queue_types(nothing, "work", "play")
        site.due(5, "work")
        site.due(7, "play")
        with working(site, types) as running:
            until(lambda: running.counts.done == 12, "all done")
            assert {name: one.done for name, one in running.counts.types.items()} == {"work": 5, "play": 7}

    def test_a_handlers_own_database_connection(self, site: Site) -> None:
        """A handler may write through its context's engine while the worker goes on."""

        def handler(_job: ClaimedJob, context: HandlerContext) -> None:
            with context.engine.begin() as connection:
                connection.exec_driver_sql("INSERT INTO own VALUES (1)")

        sql(site.engine, "CREATE TABLE own (n integer)")
        site.due(20)
        with working(site, queue_types(handler)) as running:
            until(lambda: running.counts.done == 20, "all done")
        assert sql(site.engine, "SELECT count(*) FROM own")[0][0] == 20

    def test_a_virtual_clock_governs_all(self, virtual_engine: Engine, broker: Broker) -> None:
        """Where the clock is virtual, starts and results stand at its instant."""
        site = Site(virtual_engine, broker)
        [message] = site.due(1)
        with working(site, now=VIRTUAL_NOW) as running:
            until(lambda: running.counts.done == 1, "done")
        [line] = sql(site.engine, "SELECT started_at, recorded_at FROM cronless.job_execution")
        assert (line.started_at, line.recorded_at) == (VIRTUAL_NOW, VIRTUAL_NOW)
        assert site.row(message).next_run_at > VIRTUAL_NOW


class TestMessages:
    """Copies, old ones, and ones that are none."""

    def test_a_copy_of_a_running_job_is_doubled(self, site: Site) -> None:
        """A second message of the same token is dropped and counted; the job runs once."""
        going, served = threading.Event(), []

        def handler(job: ClaimedJob) -> None:
            served.append(job.id)
            going.wait(60)

        messages = site.due(1)
        with working(site, queue_types(handler)) as running:
            until(lambda: served, "started")
            site.publish(messages)
            until(lambda: running.counts.doubled == 1, "the copy was met")
            going.set()
            until(lambda: running.counts.done == 1, "done")
        assert len(served) == 1
        assert site.all_once(1)
        assert site.depth() == 0

    def test_two_copies_in_one_batch(self, site: Site) -> None:
        """Both are at hand before either is started: one starts, the other is doubled or stale."""
        messages = site.claimed(3)
        site.publish([*messages, *messages])
        with working(site, prefetch=6, concurrency=6) as running:
            until(lambda: running.counts.done == 3, "done")
            until(lambda: running.counts.doubled + running.counts.stale == 3, "copies dropped")
        assert site.all_once(3)

    def test_an_older_token_is_stale(self, site: Site) -> None:
        """A message of a claim that the row no longer belongs to starts nothing."""
        [message] = site.claimed(1)
        site.publish([replace(message, token=uuid4()), message, replace(message, job_id=uuid4())])
        with working(site) as running:
            until(lambda: running.counts.done == 1, "done")
            until(lambda: running.counts.stale == 2, "the others dropped")
        assert site.all_once(1)

    def test_the_same_token_to_two_workers_at_once(self, site: Site) -> None:
        """However copies are spread over two workers, each job runs once."""
        served: list[Any] = []
        messages = site.claimed(200)
        types = queue_types(lambda job: served.append(job.id))
        with working(site, types) as one, working(site, types) as other:
            site.publish([copy for message in messages for copy in (message, message)])
            until(lambda: one.counts.done + other.counts.done == 200, "all done")
            dropped = [
                one.counts.doubled + one.counts.stale,
                other.counts.doubled + other.counts.stale,
            ]
            until(
                lambda: (
                    sum(each.counts.doubled + each.counts.stale for each in (one, other)) == 200
                    and site.depth() == 0
                ),
                f"copies dropped, {dropped} at first",
            )
        assert len(served) == len(set(served)) == 200
        assert site.all_once(200)

    def test_poison_goes_to_the_dead_letters(self, site: Site) -> None:
        """What is no job's message is moved with its reason, and keeps no other from running."""
        site.due(1)
        send_raw(site.broker, f"{site.broker.prefix}.work", b"{}")
        site.due(1)
        with working(site) as running:
            until(lambda: running.counts.done == 2 and running.counts.poisoned == 1, "done and moved")
        assert depth(site.broker, DEAD).messages == 1
        assert dead_letters(site.broker, 1)[0][1] == b"{}"

    def test_a_locked_row_waits_and_its_neighbours_don_t(self, site: Site) -> None:
        """While somebody's transaction has a row, its start is tried again; the message isn't lost."""
        first, *_ = site.claimed(5)
        let_go = lock_row(site.engine, first.job_id)
        site.publish([first, *_])
        with working(site) as running:
            until(lambda: running.counts.done == 4, "its neighbours are done")
            assert running.counts.held == 1
            let_go()
            until(lambda: running.counts.done == 5, "done")
        assert site.all_once(5)


def noted(said: list[str], name: str, method: Callable[..., None]) -> Callable[..., None]:
    """Return a method that notes its name, and then does what it did."""

    def noting(*rest: Any) -> None:
        said.append(name)
        method(*rest)

    return noting


class TestHowMuch:
    """How many jobs are started, and what happens to messages for which there is no room."""

    def test_slow_handlers_start_next_to_nothing_that_does_not_run(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With both threads busy no third job is started, and no message is kept from other workers."""
        said: list[str] = []
        for name in ("pause", "acknowledge"):
            monkeypatch.setattr(Consumer, name, noted(said, name, getattr(Consumer, name)))
        going = threading.Event()
        site.due(20)
        with working(site, queue_types(waiting_for(going)), concurrency=2) as slow:
            until(lambda: slow.counts.in_flight == 2 and "pause" in said, "both threads are busy")
            until(lambda: slow.counts.held == 0, "it holds no more than these")
            assert site.statuses() == {"RUNNING": 2, "QUEUED": 18}
            assert site.depth() == 18
            # An acknowledgement before the pause would bring the next message.
            assert said[-2:] == ["pause", "acknowledge"]
            with working(site) as quick:
                until(lambda: quick.counts.done == 18, "another worker has them")
            going.set()
            until(lambda: slow.counts.done == 2, "done")
        assert site.all_once(20)

    def test_messages_for_which_there_is_no_room_go_back(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker that has asked for more than it can start by now gives them back after some seconds."""
        monkeypatch.setattr(intake, "_prefetch", lambda _room, _recent: 100)
        going = threading.Event()
        site.due(50)
        with working(site, queue_types(waiting_for(going)), concurrency=2) as running:
            until(lambda: running.counts.returned, "returned")
            until(lambda: running.counts.held == 0 and site.depth() == 48, "back in their queue")
            assert running.counts.paused
            assert site.statuses() == {"RUNNING": 2, "QUEUED": 48}
            going.set()
            until(lambda: running.counts.done == 50, "all done")
        assert site.all_once(50)

    def test_jobs_started_ahead_of_handlers_that_became_slow_go_back(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was started for threads that aren't becoming free is PENDING again, for any worker."""
        monkeypatch.setattr(loop, "AHEAD_SECONDS", 0.5)
        monkeypatch.setattr(threads.HandlerThreads, "recent", lambda _self: 6.0)
        going = threading.Event()
        site.due(8)
        with working(site, queue_types(waiting_for(going)), concurrency=2) as running:
            until(lambda: running.counts.given_back == 6, "given back")
            assert site.statuses() == {"RUNNING": 2, "PENDING": 6}
            going.set()
            until(lambda: running.counts.done == 2, "what ran is done")

    def test_it_goes_on_when_there_is_room_again(self, site: Site) -> None:
        """A worker that had paused takes the rest as its threads become free, without a word of anybody."""
        first = threading.Event()
        served: list[Any] = []

        def handler(job: ClaimedJob) -> None:
            served.append(job.id)
            first.wait(60)

        site.due(30)
        with working(site, queue_types(handler), concurrency=2) as running:
            until(lambda: running.counts.paused and running.counts.held == 0, "paused")
            first.set()
            until(lambda: running.counts.done == 30, "all done")
        assert len(served) == len(set(served)) == 30

    def test_quick_handlers_are_started_in_batches(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        """With handlers that take no time a start takes hundreds, and never more than five hundred."""
        sizes: list[int] = []
        start_batch = loop.start_batch

        def counted(engine: Any, types: Any, messages: Any, now: Any) -> Any:
            sizes.append(len(messages))
            return start_batch(engine, types, messages, now)

        monkeypatch.setattr(loop, "start_batch", counted)
        site.due(2_000)
        with working(site) as running:
            until(lambda: running.counts.done == 2_000, "all done")
        assert sum(sizes) >= 2_000
        assert 100 < max(sizes) <= 500
        assert site.all_once(2_000)


class TestRefusals:
    """What can't be served is refused before anything is touched."""

    @pytest.mark.parametrize(
        ("names", "error", "said"),
        [
            (["other"], UnknownJobType, "'other' is not declared"),
            (["plain"], JobTypeError, "takes the run route"),
            ([], JobTypeError, "no job type is named"),
        ],
    )
    def test_types(self, names: list[str], error: type[Exception], said: str) -> None:
        """Unknown types, types of the other route, none at all."""
        types = JobTypes((JobType(name="plain", handler=nothing),))
        with pytest.raises(error, match=said):
            Worker(None, types, names, None)  # type: ignore[arg-type]
