"""Short ways to have messages published, workers that run, and a look at what they did."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import text

from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.rabbitmq import topology
from cronless_dagster.rabbitmq.consumer import Consumer
from cronless_dagster.rabbitmq.messages import JobMessage
from cronless_dagster.rabbitmq.publisher import Delivery, Publisher
from cronless_dagster.scheduling.shards import FULL
from cronless_dagster.store import outbox
from cronless_dagster.store.claims import claim_due
from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.worker.loop import Worker
from tests.engine.support import far_away, nothing, sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker
    from cronless_dagster.worker.counts import Counts

GUARD_SECONDS = 90.0
_DUE = (
    "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, payload, next_run_at, scheduled_for,"
    " max_attempts)"
    " SELECT 't', :job_type, 'job ' || n || ' ' || gen_random_uuid(), :schedule, jsonb_build_object('number', n),"
    " cronless.clock_now(), cronless.clock_now(), :max_attempts FROM generate_series(1, :count) AS n RETURNING id"
)


def queue_types(handler: Callable[..., Any] = nothing, *names: str, **options: Any) -> JobTypes:
    """Declare job types (one named "work" unless named) on the queue route that share a handler."""
    return JobTypes(
        tuple(JobType(name=name, handler=handler, route="queue", **options) for name in names or ("work",))
    )


def waiting_for(event: threading.Event) -> Callable[[Any], None]:
    """Return a handler that ends, well, once the event is set."""

    def handler(_job: Any) -> None:
        assert event.wait(GUARD_SECONDS)

    return handler


def until(true: Callable[[], Any], what: str, seconds: float = GUARD_SECONDS) -> None:
    """Wait until something is true; the limit is a guard against a hang, not a measure."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.02)


@dataclass
class Site:
    """A database and a broker with the queues of a test's own."""

    engine: Engine
    broker: Broker

    def claimed(
        self,
        count: int = 1,
        job_type: str = "work",
        *,
        alone: bool = False,
        lease_seconds: int = 600,
        **values: Any,
    ) -> list[JobMessage]:
        """Add jobs that are due, claim them and return their messages, unpublished."""
        given = {"schedule": far_away(datetime.now(UTC)), "max_attempts": None, **values}
        sql(self.engine, _DUE, job_type=job_type, count=count, **given)
        with transaction(self.engine) as connection:
            at = current_time(connection)
            taken = claim_due(
                connection,
                job_type=job_type,
                route="queue",
                batch_size=100_000,
                lease_seconds=lease_seconds,
                now=at,
                ids=FULL,
            )
            assert taken is not None
            rows = outbox.outgoing(connection, taken.claim_id, UUID(int=0), 100_000)
        return [
            JobMessage(row.job_id, taken.claim_id, job_type, row.tenant_id, row.scheduled_for, alone)
            for row in rows
        ]

    def publish(self, messages: Sequence[JobMessage]) -> None:
        """Publish messages in their order, each confirmed."""
        with Publisher(self.broker) as publisher:
            publisher.declare(sorted({one.job_type for one in messages}))
            for one in messages if len({one.job_type for one in messages}) > 1 else ():
                assert publisher.publish(one.job_type, [one])[0].delivery == Delivery.STORED
            if len({one.job_type for one in messages}) == 1:
                published = publisher.publish(messages[0].job_type, messages)
                assert {one.delivery for one in published} == {Delivery.STORED}

    def due(self, count: int = 1, job_type: str = "work", **options: Any) -> list[JobMessage]:
        """Add due jobs, claim them and publish their messages."""
        messages = self.claimed(count, job_type, **options)
        self.publish(messages)
        return messages

    def depth(self, job_type: str = "work") -> int:
        """Return how many messages wait in a queue."""
        import pika

        connection = pika.BlockingConnection(self.broker.parameters())
        try:
            return topology.depths(connection, self.broker.prefix, [job_type])[job_type].messages
        finally:
            connection.close()

    def statuses(self) -> dict[str, int]:
        """Count the rows by status."""
        rows = sql(self.engine, "SELECT status, count(*) FROM cronless.scheduled_job GROUP BY status")
        return {row.status: row.count for row in rows}

    def row(self, message: JobMessage) -> Any:
        """Return a message's row."""
        return sql(self.engine, "SELECT * FROM cronless.scheduled_job WHERE id = :id", id=message.job_id)[0]

    def outcomes(self) -> list[str]:
        """Return the history's outcomes."""
        rows = sql(self.engine, "SELECT outcome FROM cronless.job_execution ORDER BY recorded_at")
        return [row.outcome for row in rows]

    def all_once(self, count: int) -> bool:
        """Tell whether so many jobs are planned again, each with one recorded success."""
        recorded = sql(
            self.engine,
            "SELECT count(*) AS rows, count(DISTINCT job_id) AS jobs FROM cronless.job_execution"
            " WHERE outcome = 'success'",
        )[0]
        return self.statuses() == {"PENDING": count} and (recorded.rows, recorded.jobs) == (count, count)


@dataclass
class Running:
    """A worker that runs in a thread of this process."""

    worker: Worker
    consumer: Consumer
    stopping: threading.Event = field(default_factory=threading.Event)
    left: list[Any] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start."""
        self.thread = threading.Thread(target=self._run, name="worker")
        self.thread.start()

    @property
    def counts(self) -> Counts:
        """What it did so far."""
        return self.worker.counts

    def stop(self) -> None:
        """Tell it to stop and wait for its end."""
        self.stopping.set()
        self.thread.join(GUARD_SECONDS)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        try:
            self.left += self.worker.run(self.stopping)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.errors.append(error)


@contextmanager
def working(
    site: Site,
    types: JobTypes | None = None,
    *,
    prefetch: int | None = None,
    fails: bool = False,
    **options: Any,
) -> Iterator[Running]:
    """Run a worker for the block's length."""
    types = types or queue_types()
    options = {"concurrency": 4, "drain_seconds": 20.0, **options}
    names = [one.name for one in types]
    broker = replace(site.broker, connection_name="worker")
    consumer = Consumer(broker, names, prefetch=prefetch or options["concurrency"])
    running = Running(Worker(site.engine, types, names, consumer, **options), consumer)
    try:
        yield running
    finally:
        running.stop()
    if not fails:
        assert running.errors == []


def lock_row(engine: Engine, job_id: UUID) -> Any:
    """Lock a row as somebody's open transaction does; call the answer to let go."""
    connection = engine.connect()
    connection.execute(text("SELECT 1 FROM cronless.scheduled_job WHERE id = :id FOR UPDATE"), {"id": job_id})

    def let_go() -> None:
        connection.rollback()
        connection.close()

    return let_go
