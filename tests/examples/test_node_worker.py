"""A worker in another language: it starts and finishes jobs by the SQL functions, and the next tick plans them."""

from __future__ import annotations

import re
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import pika
import psycopg
import pytest

from cronless_dagster.engine.tick import tick as engine_tick
from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.publisher import Publisher
from cronless_dagster.rabbitmq.topology import DEAD
from tests.examples.support import HANG_SECONDS, JOB_TYPE, wait_until
from tests.store.rows import (
    HOUR,
    MINUTE,
    NOW,
    at,
    claim,
    claim_row,
    due_row,
    history,
    job_types,
    outcomes,
    row,
    set_clock,
    sql,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]

SCRIPTED_WORK = """
import { setTimeout as sleep } from 'node:timers/promises';
export async function work(job) {
  console.log(`begin ${job.name}`);
  await sleep(300);
  console.log(`end ${job.name}`);
}
"""


def tick(workers, now=NOW):
    """Tick as a dispatcher of the queue route does."""
    types = job_types(JOB_TYPE, route="queue")
    report = engine_tick(workers.engine, types, now=now, queue=lambda: Publisher(workers.broker))
    assert report.errors == []
    return report


def queued(workers, **columns):
    """Add a due job and claim it for the queue route."""
    job = due_row(workers.engine, **columns)
    claim(workers.engine, route="queue")
    return job


def depth(workers, key):
    """Return how many messages wait in the queue of a job type or among the dead letters."""
    with Publisher(workers.broker) as publisher:
        return publisher.depths([JOB_TYPE])[key].messages


class TestDoesItsJob:
    def test_next_tick_plans_what_it_has_done(self, workers):
        """What a tick publishes is started, done and reported, and the next tick plans it."""
        job = due_row(workers.engine, payload='{"to": "ann"}', name="weekly")
        assert tick(workers).claimed == {JOB_TYPE: 1}
        token = row(workers.engine, job).claim_id
        worker = workers.start()
        workers.wait_for_reports(job)
        execution = row(workers.engine, job).execution_id
        assert tick(workers).finished == 1
        after = row(workers.engine, job)
        assert (after.status, after.next_run_at, after.attempt) == ("PENDING", at("13:00"), 0)
        [done] = history(workers.engine, job)
        assert (done.outcome, done.claim_id, done.execution_id) == ("success", token, execution)
        assert claim_row(workers.engine, token).state == "CLOSED"
        worker.wait_for("weekly: success accepted")
        assert f"acme weekly (try 1, key {job}:2026-03-02T12:00:00+00:00): payload has to" in worker.said
        assert depth(workers, JOB_TYPE) == 0

    def test_same_key_as_in_python(self, workers):
        """The idempotency key of an occurrence is the text that Python's handlers get."""
        instant = NOW - MINUTE + timedelta(microseconds=120)
        job = queued(workers, due=instant, name="odd")
        workers.publish(job)
        expected = f"{job}:{instant.isoformat()}"
        workers.start().wait_for(re.escape(expected))

    def test_failure_is_tried_again(self, workers):
        """A job that throws has failed with its message, and waits for its retry."""
        job = queued(workers, payload='{"fail": "no answer"}')
        workers.publish(job)
        workers.start()
        workers.wait_for_reports(job)
        tick(workers)
        after = row(workers.engine, job)
        assert (after.status, after.attempt, after.last_error) == ("PENDING", 1, "no answer")
        assert NOW + MINUTE <= after.next_run_at <= NOW + 1.1 * MINUTE

    def test_names_the_next_instant(self, workers):
        """What the work returns as the next instant of an @handler job is where it is planned."""
        next_at = NOW + 7 * HOUR
        job = queued(
            workers, schedule="@handler fallback=24h", payload=f'{{"next_at": "{next_at.isoformat()}"}}'
        )
        workers.publish(job)
        workers.start()
        workers.wait_for_reports(job)
        tick(workers)
        assert row(workers.engine, job).next_run_at == next_at

    def test_instant_that_no_database_holds(self, workers):
        """A next instant that can't be stored is the job's failure, with the database's reason."""
        job = queued(workers, payload='{"next_at": "+020000-01-01T00:00Z"}')
        workers.publish(job)
        workers.start()
        workers.wait_for_reports(job)
        tick(workers)
        assert row(workers.engine, job).last_outcome == "failure"
        assert "020000" in row(workers.engine, job).last_error

    def test_more_jobs_than_places(self, workers):
        """With places for two, twenty jobs are each done once."""
        jobs = [due_row(workers.engine) for _ in range(20)]
        claim(workers.engine, route="queue")
        workers.publish(*jobs)
        workers.start(WORKER_CONCURRENCY="2")
        workers.wait_for_reports(*jobs)
        tick(workers)
        assert [outcomes(workers.engine, job) for job in jobs] == [["success"]] * 20


class TestFence:
    def test_doubled_message_is_dropped(self, workers):
        """Of two messages of one token the first starts the job; the other one goes, and changes nothing."""
        job = queued(workers, payload='{"seconds": 0.5}')
        workers.publish(job, job)
        worker = workers.start()
        worker.wait_for(f"job {job}: dropped")
        workers.wait_for_reports(job)
        tick(workers)
        assert outcomes(workers.engine, job) == ["success"]
        assert depth(workers, JOB_TYPE) == 0

    def test_message_of_an_older_token_is_dropped(self, workers):
        """A message whose claim the row has left starts nothing."""
        job = queued(workers)
        workers.publish(job, token=uuid4())
        workers.start().wait_for(f"job {job}: dropped")
        assert row(workers.engine, job).status == "QUEUED"

    def test_long_job_keeps_its_lease(self, workers):
        """The lease of a job that takes longer than it is renewed while the job runs."""
        job = queued(workers, payload='{"seconds": 60}')
        workers.publish(job)
        workers.start(WORKER_LEASE_SECONDS="2")
        workers.wait_for_start(job)
        set_clock(workers.engine, NOW + HOUR)
        wait_until(lambda: row(workers.engine, job).lease_expires_at > NOW + HOUR, "the lease was renewed")

    def test_stops_work_whose_claim_was_lost(self, workers):
        """A job that was given to others is stopped, and its result is discarded."""
        job = queued(workers, payload='{"seconds": 600}', name="slow")
        workers.publish(job)
        worker = workers.start(WORKER_LEASE_SECONDS="2")
        workers.wait_for_start(job)
        sql(
            workers.engine,
            "UPDATE cronless.scheduled_job SET execution_id = gen_random_uuid(), plan_count = plan_count + 1",
        )
        worker.wait_for("slow: failure claim lost")
        assert row(workers.engine, job).report is None

    def test_runs_a_suspect_alone(self, workers):
        """A job that is suspected of killing its worker has the process to itself."""
        jobs = [due_row(workers.engine, name=f"j{number}") for number in range(5)]
        claim(workers.engine, route="queue")
        for number, job in enumerate(jobs):
            workers.publish(job, alone=number == 2)
        script = workers.installed / f"scripted-{uuid4().hex}"
        script.mkdir()
        for name in ("worker.mjs", "fence.mjs"):
            shutil.copy(workers.installed / name, script)
        (script / "work.mjs").write_text(SCRIPTED_WORK, encoding="utf-8")
        worker = workers.start(script / "worker.mjs")
        workers.wait_for_reports(*jobs)
        lines = [line for line in worker.said.splitlines() if line.startswith(("begin", "end"))]
        start = lines.index("begin j2")
        assert lines[start + 1] == "end j2"
        assert sorted(lines[:start]) == ["begin j0", "begin j1", "end j0", "end j1"]


class TestLosesNothing:
    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (b"not json", "JSON"),
            (b'{"version": 2}', "version 1"),
            (b'{"version": 1, "type": "other"}', "other"),
            (b'{"version": 1, "type": "digest", "id": "7", "token": "8"}', "UUID"),
            (b"null", "version 1"),
        ],
    )
    def test_keeps_what_it_cannot_read(self, workers, body, reason):
        """A message that isn't a job of this version is kept among the dead letters, with the reason."""
        job = queued(workers)
        workers.publish(job)
        with pika.BlockingConnection(workers.broker.parameters()) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            properties = pika.BasicProperties(message_id="odd", type="cronless.job.v1")
            channel.basic_publish("", f"{workers.broker.prefix}.{JOB_TYPE}", body, properties)
            workers.start().wait_for("message odd: put aside")
            workers.wait_for_reports(job)
            _, kept, content = channel.basic_get(f"{workers.broker.prefix}.dead", auto_ack=True)
        assert (content, kept.message_id) == (body, "odd")
        assert reason in kept.headers["x-cronless-error"]
        assert depth(workers, JOB_TYPE) == 0

    def test_ends_with_what_runs(self, workers):
        """Asked to end, it finishes what runs, leaves the rest in the queue and exits with 0."""
        running = [due_row(workers.engine, payload='{"seconds": 1}') for _ in range(2)]
        claim(workers.engine, route="queue")
        waiting = queued(workers)
        workers.publish(*running)
        worker = workers.start(WORKER_CONCURRENCY="2")
        workers.wait_for_start(*running)
        workers.publish(waiting)
        assert worker.terminate() == 0
        assert all(row(workers.engine, job).report["outcome"] == "success" for job in running)
        assert row(workers.engine, waiting).status == "QUEUED"
        assert depth(workers, JOB_TYPE) == 1

    def test_ends_though_something_runs_on(self, workers):
        """What still runs when the time to end is up is named, and left to its lease."""
        job = queued(workers, payload='{"seconds": 600}')
        workers.publish(job)
        worker = workers.start(WORKER_DRAIN_SECONDS="1")
        workers.wait_for_start(job)
        assert worker.terminate() == 0
        assert "1 jobs still run" in worker.said

    def test_database_cuts_its_connections(self, workers):
        """A database that ends all sessions costs the worker no job and no result."""
        first, second = queued(workers, payload='{"seconds": 0.5}'), queued(workers)
        workers.publish(first)
        workers.start()
        workers.wait_for_start(first)
        sql(
            workers.engine,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = :user",
            user=workers.user,
        )
        workers.publish(second)
        workers.wait_for_reports(first, second)

    def test_waits_for_its_queue(self, workers):
        """A worker that comes before the first message's queue takes it up once it is there."""
        worker = workers.start()
        worker.wait_for("NOT_FOUND")
        job = queued(workers)
        workers.publish(job)
        workers.wait_for_reports(job)


class TestOwnBroker:
    def test_comes_back_after_the_broker(self, workers, own_broker):
        """A worker outlives its broker: when that is started again, it serves on."""
        workers.broker = Broker(own_broker.url)
        first, second = queued(workers), queued(workers)
        workers.publish(first)
        worker = workers.start()
        workers.wait_for_reports(first)
        own_broker.stop()
        worker.wait_for("connection lost")
        own_broker.start()
        workers.publish(second)
        workers.wait_for_reports(second)

    def test_needs_few_rights(self, workers, own_broker):
        """A user of the broker that may read its queue and write dead letters has all that a worker needs."""
        workers.broker = Broker(own_broker.url)
        job = queued(workers)
        workers.publish(job)
        own_broker.control("add_user", "reader", "s3cret")
        rights = ("^$", r"^cronless\.dlx$", r"^cronless\.digest$")
        own_broker.control("set_permissions", "reader", *rights)
        worker = workers.start(CRONLESS_BROKER_URL=own_broker.url.replace("guest:guest@", "reader:s3cret@"))
        workers.wait_for_reports(job)
        with pika.BlockingConnection(workers.broker.parameters()) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "cronless.digest", b"not json")
        worker.wait_for("put aside")
        wait_until(lambda: depth(workers, DEAD) == 1, "the message is among the dead letters")


class TestRefuses:
    def test_wrong_password(self, workers):
        """A broker that refuses its login ends the worker with a line that holds no password."""
        host = urlsplit(workers.broker.url).netloc.rpartition("@")[2]
        worker = workers.start(CRONLESS_BROKER_URL=f"amqp://guest:s3cret@{host}/%2F")
        assert worker.process.wait(timeout=HANG_SECONDS) == 1
        assert "ACCESS_REFUSED" in worker.said.replace("-", "_")
        assert "s3cret" not in worker.said

    def test_user_without_the_role(self, workers):
        """A user of the database without the worker's role ends the worker with the reason; the message stays."""
        sql(workers.engine, f"REVOKE cronless_worker FROM {workers.user}")
        job = queued(workers)
        workers.publish(job)
        worker = workers.start()
        assert worker.process.wait(timeout=HANG_SECONDS) == 1
        assert "permission denied" in worker.said
        assert depth(workers, JOB_TYPE) == 1

    def test_without_addresses(self, workers):
        """Without its settings the worker says how it is started."""
        worker = workers.start(CRONLESS_DATABASE_URL="")
        assert worker.process.wait(timeout=HANG_SECONDS) == 2
        assert worker.said.startswith("usage: ")

    @pytest.mark.parametrize(
        "statement",
        [
            "SELECT 1 FROM cronless.scheduled_job",
            "UPDATE cronless.scheduled_job SET status = 'DONE'",
            "DELETE FROM cronless.scheduled_job",
            "INSERT INTO cronless.scheduled_job (tenant_id, job_type, schedule) VALUES ('a', 'b', '@daily')",
            "SELECT 1 FROM cronless.job_claim",
            "SELECT 1 FROM cronless.job_execution",
            "SELECT cronless.ensure_history_partition('2030-01-01')",
            "SET ROLE cronless_dispatcher",
        ],
    )
    def test_its_user_may_do_nothing_else(self, workers, statement):
        """The user that the workers log in as reads and writes no table."""
        with psycopg.connect(workers.database_url) as connection, pytest.raises(psycopg.Error) as caught:
            connection.execute(statement)
        assert caught.value.sqlstate == "42501"


def test_lock_names_no_registry(node_worker: Path):
    """The lock file holds a checksum for each package and no address of the registry it came from."""
    text = (node_worker / "package-lock.json").read_text(encoding="utf-8")
    assert text.count('"integrity"') == text.count('"version"') - 2
    assert "://" not in text
