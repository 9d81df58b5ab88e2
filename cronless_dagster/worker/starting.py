"""The start fence for messages: many in one transaction, each under an execution id of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from cronless_dagster.store.clock import current_time
from cronless_dagster.store.database import transaction
from cronless_dagster.store.executions import Start, Started, start_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Engine

    from cronless_dagster.engine.job_types import JobType
    from cronless_dagster.rabbitmq.consumer import Received
    from cronless_dagster.store.rows import ClaimedJob


@dataclass(slots=True, eq=False)
class Unstarted:
    """A message at hand.

    Attributes:
        execution_id: Stays the same however often the start is tried, so that a lost answer to its commit is found out.
        not_before: When to try (monotonic).
        locked: Somebody else had the row locked at the last try.
        asked: A start was tried and its end isn't known.
    """

    received: Received
    execution_id: UUID = field(default_factory=uuid4)
    not_before: float = 0.0
    locked: bool = False
    asked: bool = False

    @property
    def age(self) -> float:
        """Seconds since it came."""
        return time.monotonic() - self.received.received_at


@dataclass(slots=True)
class Batch:
    """What became of a batch of messages at the fence.

    Attributes:
        at: The instant of the start, aware UTC; the virtual one where the clock is virtual.
        jobs: Started, by the job type of their message.
        settled: Messages to acknowledge: started, stale and doubled ones.
        locked: Messages whose row somebody else has locked.
    """

    at: datetime
    jobs: dict[str, list[ClaimedJob]] = field(default_factory=dict)
    settled: list[Unstarted] = field(default_factory=list)
    locked: list[Unstarted] = field(default_factory=list)
    stale: int = 0
    doubled: int = 0


def start_batch(
    engine: Engine, types: Mapping[str, JobType], messages: Sequence[Unstarted], now: datetime | None
) -> Batch:
    """Start what the messages ask for, in one transaction.

    Args:
        engine: The store's engine.
        types: The job types of the messages.
        messages: At most one a job.
        now: An instant in place of the clock; only where the clock is virtual.
    """
    by_type: dict[str, list[Unstarted]] = {}
    for one in messages:
        by_type.setdefault(one.received.message.job_type, []).append(one)
    with transaction(engine) as connection:
        batch = Batch(current_time(connection, now))
        for name, group in by_type.items():
            asked = [
                Start(one.received.message.job_id, one.received.message.token, one.execution_id)
                for one in group
            ]
            job_type = types[name]
            answer = start_jobs(connection, asked, job_type.lease_seconds, batch.at, job_type.retry)
            _sort(batch, name, group, answer)
    return batch


def _sort(batch: Batch, name: str, group: Sequence[Unstarted], answer: Started) -> None:
    batch.jobs[name] = answer.jobs
    batch.stale += len(answer.stale)
    batch.doubled += len(answer.doubled)
    for one in group:
        locked = one.received.message.job_id in answer.held
        (batch.locked if locked else batch.settled).append(one)
