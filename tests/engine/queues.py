"""Queues in memory that do what a test says, workers that start and finish jobs, ticks that publish to them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID, uuid4

from cronless_dagster.rabbitmq.confirms import Delivery
from cronless_dagster.rabbitmq.publisher import Published
from cronless_dagster.rabbitmq.topology import DEAD, QueueDepth
from cronless_dagster.scheduling.models import Outcome, RetryPolicy
from cronless_dagster.scheduling.planner import plan_next
from cronless_dagster.store import executions
from cronless_dagster.store.database import transaction
from cronless_dagster.store.executions import Start, Started
from cronless_dagster.store.results import Result
from tests.engine.support import NOON, nothing, sql, types_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobTypes
    from cronless_dagster.rabbitmq.messages import JobMessage
    from cronless_dagster.store.rows import ClaimedJob


_SUCCESS = Outcome("success")


class FakeBroker:
    """Stands for a broker, the connection to it and its queues.

    Attributes:
        queues: The messages of each queue, the oldest first.
        sent: All that were ever stored, in their order.
        declared: The job types of each declaration.
        verdict: Says what becomes of a message; called before it is stored.
        loses: The job whose messages are confirmed and lost, if any.
        away: What connecting raises, if anything.
    """

    def __init__(self) -> None:
        self.queues: dict[str, list[JobMessage]] = defaultdict(list)
        self.sent: list[JobMessage] = []
        self.declared: list[list[str]] = []
        self.verdict: Callable[[JobMessage], Delivery] = lambda _: Delivery.STORED
        self.loses: UUID | None = None
        self.away: BaseException | None = None

    def __call__(self) -> Self:
        """Be the connection too."""
        return self

    def __enter__(self) -> Self:
        if self.away is not None:
            raise self.away
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def declare(self, job_types: Sequence[str]) -> None:
        """Note what is declared."""
        self.declared.append(list(job_types))

    def depths(self, job_types: Sequence[str]) -> dict[str, QueueDepth]:
        """Count the messages."""
        return {name: QueueDepth(len(self.queues[name]), 0) for name in [*job_types, DEAD]}

    def publish(self, job_type: str, messages: Sequence[JobMessage]) -> list[Published]:
        """Let the verdict decide on each message."""
        published = []
        for message in messages:
            delivery = self.verdict(message)
            if delivery is Delivery.STORED:
                if message.job_id != self.loses:
                    self.queues[job_type].append(message)
                self.sent.append(message)
            published.append(
                Published(message, delivery, None if delivery is Delivery.STORED else "so it is")
            )
        return published

    def take(self, job_type: str = "work", count: int | None = None) -> list[JobMessage]:
        """Take messages out of a queue, all unless told how many."""
        queue = self.queues[job_type]
        taken = queue[:count]
        del queue[: len(taken)]
        return taken

    @property
    def sent_ids(self) -> list[UUID]:
        """The jobs of all that were ever stored."""
        return [message.job_id for message in self.sent]


def queue_types(*names: str, **options: Any) -> JobTypes:
    """Declare job types of the queue route, "work" unless named."""
    return types_of(nothing, *names, route="queue", **options)


def start(engine: Engine, messages: Sequence[JobMessage], at: datetime, lease_seconds: int = 600) -> Started:
    """Pass the start fence with messages, as a worker does."""
    asked = [Start(one.job_id, one.token, uuid4()) for one in messages]
    with transaction(engine) as connection:
        return executions.start_jobs(connection, asked, lease_seconds, at, RetryPolicy())


def finish(
    engine: Engine, jobs: Sequence[ClaimedJob], at: datetime, outcome: Outcome = _SUCCESS
) -> set[UUID]:
    """Write the same outcome for each job; returns the accepted ones."""
    results = [Result(job, plan_next(job.plan, outcome, at), outcome.error, at) for job in jobs]
    with transaction(engine) as connection:
        return executions.finish_started(connection, results, at)[0]


def work_off(engine: Engine, broker: FakeBroker, at: datetime, job_type: str = "work") -> set[UUID]:
    """Take all messages of a queue, start their jobs and finish them well; returns those that were accepted."""
    return finish(engine, start(engine, broker.take(job_type), at).jobs, at)


def make_due(
    engine: Engine,
    count: int,
    due: datetime = NOON,
    *,
    job_type: str = "work",
    schedule: str = "0 0 * * *",
    grace_seconds: int = 86_400,
) -> list[UUID]:
    """Insert so many jobs that are due at an instant; returns their ids, sorted."""
    rows = sql(
        engine,
        "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule, next_run_at, scheduled_for,"
        " misfire_grace_seconds) SELECT 't', :job_type, gen_random_uuid()::text, :schedule, :due, :due, :grace"
        " FROM generate_series(1, :count) RETURNING id",
        job_type=job_type,
        schedule=schedule,
        due=due,
        count=count,
        grace=grace_seconds,
    )
    return sorted(row.id for row in rows)


def counters(engine: Engine) -> set[tuple[int, int, int]]:
    """Return which (attempt, crashes, consecutive failures) any job has."""
    rows = sql(engine, "SELECT DISTINCT attempt, crashes, consecutive_failures FROM cronless.scheduled_job")
    return {tuple(row) for row in rows}
