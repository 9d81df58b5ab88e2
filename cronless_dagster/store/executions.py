"""Executions of single jobs, many at a time: the workers' start fence, leases, giving back, finish."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, text

from cronless_dagster.store.arrays import integer_array, uuid_array
from cronless_dagster.store.claims import delete_tombstones
from cronless_dagster.store.database import drive_by_array
from cronless_dagster.store.results import Result, finish_jobs, lock_finished
from cronless_dagster.store.rows import ClaimedJob, claimed_job, plain_rows
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from cronless_dagster.scheduling.models import RetryPolicy


class Start(NamedTuple):
    """What a message asks for: the job, the claim that it was published for, and the holder's fresh id."""

    job_id: UUID
    token: UUID
    execution_id: UUID


@dataclass(frozen=True, slots=True)
class Started:
    """What became of messages at the start fence, by job id.

    Attributes:
        jobs: Started, each RUNNING under its own execution id.
        held: The row is locked by somebody else right now: ask again.
        doubled: The token is the current one and somebody has started the job: a second copy of a message.
        stale: The token is no longer the row's: its job has ended, or was handed over anew.
    """

    jobs: list[ClaimedJob]
    held: set[UUID]
    doubled: set[UUID]
    stale: set[UUID]


_NOT_STARTED = text(
    "SELECT id, claim_id, status, execution_id, report IS NOT NULL AS reported"
    " FROM cronless.scheduled_job WHERE id = ANY (CAST(:ids AS uuid[]))"
)


def start_jobs(
    connection: Connection,
    messages: Sequence[Start],
    lease_seconds: int,
    now: datetime,
    retry: RetryPolicy,
) -> Started:
    """Pass the start fence with many messages, at most one a job.

    Args:
        connection: A transaction; the messages may be acknowledged once it has committed.
        messages: At most a few thousand. The same ones may be asked again after a lost answer.
        lease_seconds: How long the jobs are the caller's without a renewal.
        now: The start's instant.
        retry: The job type's policy, for what the rows leave open.
    """
    if not messages:
        return Started([], set(), set(), set())
    drive_by_array(connection)
    # In one order for all workers, so that two with copies of the same messages can't wait in a ring.
    messages = sorted(messages)
    rows = plain_rows(
        connection.execute(
            statement("start_jobs"),
            {
                "ids": uuid_array([one.job_id for one in messages]),
                "tokens": uuid_array([one.token for one in messages]),
                "executions": uuid_array([one.execution_id for one in messages]),
                "lease_seconds": lease_seconds,
                "now": now,
            },
        )
    )
    started = Started([claimed_job(row, retry, row.claim_id) for row in rows], set(), set(), set())
    if len(rows) < len(messages):
        _sort_out(connection, messages, started)
    return started


def _sort_out(connection: Connection, messages: Sequence[Start], started: Started) -> None:
    running = {job.id for job in started.jobs}
    left = {one.job_id: one for one in messages if one.job_id not in running}
    for row in connection.execute(_NOT_STARTED, {"ids": uuid_array(left)}):
        asked = left.pop(row.id)
        if row.claim_id != asked.token:
            started.stale.add(row.id)
        elif row.status == "QUEUED" or (row.execution_id == asked.execution_id and not row.reported):
            started.held.add(row.id)
        else:
            started.doubled.add(row.id)
    started.stale.update(left)


def renew_jobs(
    connection: Connection, jobs: Sequence[ClaimedJob], lease_seconds: int, now: datetime
) -> set[UUID]:
    """Renew the leases of started jobs; return the ids of those that are still the caller's.

    A row that somebody else has locked keeps its lease as it is until the next renewal.
    """
    if not jobs:
        return set()
    drive_by_array(connection)
    given = {**_held(jobs), "lease_seconds": lease_seconds, "now": now}
    return set(connection.execute(statement("renew_jobs"), given).scalars())


def give_back(connection: Connection, jobs: Sequence[ClaimedJob], now: datetime) -> set[UUID]:
    """Put started jobs whose handler was never called back to PENDING, as they were; return their ids.

    Rows that are no longer the caller's, or that somebody else has locked, are left: their lease runs out.
    """
    if not jobs:
        return set()
    drive_by_array(connection)
    rows = connection.execute(statement("give_back"), _held(jobs)).all()
    delete_tombstones(connection, [row.id for row in rows if row.removed])
    left = Counter(row.claim_id for row in rows)
    count_outcomes(connection, {claim_id: (0, 0, fewer) for claim_id, fewer in left.items()}, now)
    return {row.id for row in rows}


def finish_started(
    connection: Connection, results: Sequence[Result], now: datetime
) -> tuple[set[UUID], list[Result]]:
    """Write the outcomes and next plans of jobs that were started one by one, and count them on their claims.

    Returns:
        The ids whose result was accepted, and the results whose row somebody else has locked: ask again with
        those. What is in neither is discarded: its execution is no longer the current one.
    """
    free, held = lock_finished(connection, results)
    accepted = finish_jobs(connection, free, now)
    counts = counted(
        (result.job.claim_id, result.plan.recorded == "success")
        for result in free
        if result.job.id in accepted
    )
    count_outcomes(connection, counts, now)
    return accepted, held


def counted(ended: Iterable[tuple[UUID, bool]]) -> dict[UUID, tuple[int, int, int]]:
    """Return what `count_outcomes` takes, from the claim of each job that ended and whether it ended well."""
    counts: dict[UUID, tuple[int, int, int]] = {}
    for claim_id, well in ended:
        done, failed, fewer = counts.get(claim_id, (0, 0, 0))
        counts[claim_id] = (done + well, failed + (not well), fewer)
    return counts


def count_outcomes(connection: Connection, counts: dict[UUID, tuple[int, int, int]], now: datetime) -> None:
    """Add to claims' counts, and close those that hold no more rows.

    The last statement of a transaction: the claims stay locked until it commits.

    Args:
        connection: A transaction that `drive_by_array` was called in.
        counts: By claim: how many ended well, how many otherwise, how many left the claim without an outcome.
        now: When the claims are closed.
    """
    if not counts:
        return
    ids = sorted(counts)
    rows = connection.execute(
        statement("count_outcomes"),
        {
            "ids": uuid_array(ids),
            "done": integer_array([counts[one][0] for one in ids]),
            "failed": integer_array([counts[one][1] for one in ids]),
            "fewer": integer_array([counts[one][2] for one in ids]),
        },
    ).all()
    close_complete(connection, [row.id for row in rows if row.complete], now)


def close_complete(connection: Connection, claim_ids: Iterable[UUID], now: datetime) -> None:
    """Close those of the claims that hold no more rows."""
    ids = uuid_array(claim_ids)
    if ids != "{}":
        connection.execute(statement("close_complete"), {"ids": ids, "now": now})


def _held(jobs: Sequence[ClaimedJob]) -> dict[str, str]:
    jobs = sorted(jobs, key=lambda job: job.id)
    return {
        "ids": uuid_array([job.id for job in jobs]),
        "claim_ids": uuid_array([job.claim_id for job in jobs]),
        "execution_ids": uuid_array([job.execution_id for job in jobs]),
    }
