"""The queue route beside the sum of its parts: `python -m benchmarks.queue`.

Parts are measured alone, in this process, on the same kind of rows: claiming as the tick claims, publishing with
confirms, consuming with acknowledgements, the start fence, planning and finishing. The whole is what a product has: a
tick that claims and publishes, and a worker process that runs a handler that does nothing.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from sqlalchemy import text

from benchmarks.queue_handlers import BATCH, NAME, job_types
from benchmarks.queue_worker import worker_process
from benchmarks.support import Ratio, database, fill, print_table, seconds, server, tidy
from cronless_dagster.engine.claiming import claim_one
from cronless_dagster.engine.tick import tick
from cronless_dagster.rabbitmq.address import Broker
from cronless_dagster.rabbitmq.confirms import Delivery
from cronless_dagster.rabbitmq.consumer import Consumer
from cronless_dagster.rabbitmq.messages import JobMessage
from cronless_dagster.rabbitmq.private import PrivateBroker
from cronless_dagster.rabbitmq.publisher import Publisher
from cronless_dagster.scheduling.models import Outcome, RetryPolicy
from cronless_dagster.scheduling.planner import plan_next
from cronless_dagster.scheduling.shards import FULL
from cronless_dagster.store.database import create_store_engine, transaction
from cronless_dagster.store.executions import Start, finish_started, start_jobs
from cronless_dagster.store.fairness import Waiting
from cronless_dagster.store.outbox import outgoing
from cronless_dagster.store.results import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from cronless_dagster.store.embedded import EmbeddedPostgres
    from cronless_dagster.store.rows import ClaimedJob

PAGE = 2_000
STARTED_AT_ONCE = 500
LEASE_SECONDS = 600
MOST_MEGABYTES = 150
_DUE_AGAIN = text(
    "UPDATE cronless.scheduled_job SET status = 'PENDING', claim_id = NULL, execution_id = NULL,"
    " lease_expires_at = NULL, attempt = 0, last_finished_at = NULL,"
    " scheduled_for = date_trunc('minute', now() - interval '2 minutes'),"
    " next_run_at = date_trunc('minute', now() - interval '2 minutes'), plan_count = plan_count + 1"
)
_DONE = text("SELECT count(*) FROM cronless.scheduled_job WHERE last_finished_at IS NOT NULL")


def measure(running: EmbeddedPostgres, *, quick: bool = False) -> list[Ratio]:
    """Return the ratios of publishing, of the whole way, and a worker's memory beside its limit."""
    rows, rounds = (4_000, 1) if quick else (50_000, 3)
    with private_broker() as url, database(running, "queue") as engine:
        fill(engine, rows, due=True, types=(NAME,))
        found = [_to_confirmed(engine, url, rows, rounds)]
        found += _whole_way(engine, running.url("queue"), url, rows, rounds)
        few, many = (rows // 10, rows) if quick else (10_000, 100_000)
        found.append(_tick_memory(running, url, few, many))
    return found


@contextmanager
def private_broker() -> Iterator[str]:
    """Start a broker of the benchmarks' own, gone afterwards; gives its address."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory,
        PrivateBroker(Path(directory) / "broker") as running,
    ):
        yield running.url


def fresh(url: str) -> Broker:
    """Return the broker under a new prefix, so that nothing of another measure is in the way."""
    return Broker(url, prefix=f"bench-{uuid4().hex[:8]}", publish_seconds=60.0)


def _to_confirmed(engine: Engine, url: str, rows: int, rounds: int) -> Ratio:
    times: dict[str, list[float]] = {"tick": [], "parts": []}
    for number in range(rounds):
        for side in ("tick", "parts") if number % 2 else ("parts", "tick"):
            make_due(engine)
            broker = fresh(url)
            spent = (
                _tick(engine, broker, rows)
                if side == "tick"
                else _claim(engine, rows) + _publish(engine, broker)
            )
            times[side].append(spent)
    what = f"{rows:,} due to all confirmed beside claim and publish"
    return Ratio(what, median(times["tick"]), median(times["parts"]), "s", 1.4, "at most")


def _whole_way(engine: Engine, database_url: str, url: str, rows: int, rounds: int) -> list[Ratio]:
    times: dict[str, list[float]] = {"whole": [], "parts": []}
    megabytes = 0.0
    for number in range(rounds):
        for side in ("whole", "parts") if number % 2 else ("parts", "whole"):
            make_due(engine)
            broker = fresh(url)
            if side == "parts":
                times[side].append(_parts(engine, broker, rows))
                continue
            with worker_process(database_url, broker) as process:
                times[side].append(_due_to_planned(engine, broker, rows))
                megabytes = max(megabytes, process.memory_info().rss / 2**20)
    rates = {side: rows / median(spent) for side, spent in times.items()}
    what = f"{rows:,} due to done and planned, beside its parts alone"
    return [
        Ratio(what, rates["whole"], rates["parts"], "jobs/s", 0.6, "at least"),
        Ratio("memory of that worker beside its limit", megabytes, MOST_MEGABYTES, "MB", 1.0, "at most"),
    ]


def _tick_memory(running: EmbeddedPostgres, url: str, few: int, many: int) -> Ratio:
    megabytes = {}
    for rows in (few, many):
        name = f"queue_{rows}"
        with database(running, name) as engine:
            fill(engine, rows, due=True, types=(NAME,))
        broker = fresh(url)
        command = [sys.executable, "-m", "benchmarks.queue", running.url(name), url, broker.prefix, str(rows)]
        done = subprocess.run(command, capture_output=True, check=True, timeout=600, text=True)
        megabytes[rows] = float(done.stdout)
    what = f"a publishing tick's memory with {many:,} due beside {few:,}"
    return Ratio(what, megabytes[many], megabytes[few], "MB", 1.1, "at most")


def _tick_once(database_url: str, url: str, prefix: str, rows: str) -> None:
    """Tick once and print this process's peak of memory, in megabytes."""
    engine = create_store_engine(database_url)
    _tick(engine, Broker(url, prefix=prefix, publish_seconds=60.0), int(rows))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)


def make_due(engine: Engine) -> None:
    """Make all rows due as they were at first, and tidy up."""
    with engine.begin() as connection:
        connection.execute(_DUE_AGAIN)
        connection.execute(text("TRUNCATE cronless.job_claim, cronless.job_execution"))
    tidy(engine)


def _tick(engine: Engine, broker: Broker, rows: int) -> float:
    def evaluate() -> None:
        report = tick(engine, job_types, queue=partial(Publisher, broker), budget_seconds=600)
        # With a worker beside, some are due again before the tick ends.
        assert report.published[NAME] >= rows, report

    return seconds(evaluate)


def _due_to_planned(engine: Engine, broker: Broker, rows: int) -> float:
    started = perf_counter()
    _tick(engine, broker, rows)
    while True:
        with engine.begin() as connection:
            if connection.execute(_DONE).scalar_one() == rows:
                return perf_counter() - started
        threading.Event().wait(0.05)


def _parts(engine: Engine, broker: Broker, rows: int) -> float:
    claim, publish = _claim(engine, rows), _publish(engine, broker)
    consume, messages = _consume(broker, rows)
    start, jobs = _start(engine, messages)
    return claim + publish + consume + start + _finish(engine, jobs)


def _claim(engine: Engine, rows: int) -> float:
    job_type = job_types[NAME]
    with engine.begin() as connection:
        waiting = Waiting(connection.execute(text("SELECT now()")).scalar_one(), None, True)

    def claim() -> None:
        taken = 0
        while taken < rows:
            taken += claim_one(engine, job_type, waiting, route="queue", ids=FULL, now=None).rows

    return seconds(claim)


def _publish(engine: Engine, broker: Broker) -> float:
    messages = []
    with engine.begin() as connection:
        for claim_id in connection.execute(text("SELECT id FROM cronless.job_claim")).scalars().all():
            messages += [
                JobMessage(one.job_id, claim_id, NAME, one.tenant_id, one.scheduled_for)
                for one in outgoing(connection, claim_id, UUID(int=0), BATCH)
            ]

    def publish() -> None:
        with Publisher(broker) as publisher:
            publisher.declare([NAME])
            for low in range(0, len(messages), PAGE):
                answers = publisher.publish(NAME, messages[low : low + PAGE])
                assert all(one.delivery is Delivery.STORED for one in answers)

    return seconds(publish)


def _consume(broker: Broker, rows: int) -> tuple[float, list[JobMessage]]:
    messages: list[JobMessage] = []
    consumer = Consumer(broker, [NAME], prefetch=2 * STARTED_AT_ONCE)

    def consume() -> None:
        consumer.start()
        while len(messages) < rows:
            received = consumer.take(STARTED_AT_ONCE, 5.0)
            consumer.acknowledge(received)
            messages.extend(one.message for one in received)

    spent = seconds(consume)
    consumer.stop(5.0)
    return spent, messages


def _start(engine: Engine, messages: list[JobMessage]) -> tuple[float, list[ClaimedJob]]:
    asked = [Start(one.job_id, one.token, uuid4()) for one in messages]
    jobs: list[ClaimedJob] = []

    def start() -> None:
        for low in range(0, len(asked), STARTED_AT_ONCE):
            with transaction(engine) as connection:
                now = connection.execute(text("SELECT now()")).scalar_one()
                batch = asked[low : low + STARTED_AT_ONCE]
                jobs.extend(start_jobs(connection, batch, LEASE_SECONDS, now, RetryPolicy()).jobs)

    spent = seconds(start)
    assert len(jobs) == len(messages)
    return spent, jobs


def _finish(engine: Engine, jobs: list[ClaimedJob]) -> float:
    outcome = Outcome("success")

    def finish() -> None:
        for low in range(0, len(jobs), BATCH):
            with transaction(engine) as connection:
                now = connection.execute(text("SELECT now()")).scalar_one()
                batch = jobs[low : low + BATCH]
                results = [Result(job, plan_next(job.plan, outcome, now), None, now) for job in batch]
                accepted, _ = finish_started(connection, results, now)
                assert len(accepted) == len(batch)

    return seconds(finish)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _tick_once(*sys.argv[1:])
    else:
        with server() as made:
            print_table(measure(made), "the queue route")
