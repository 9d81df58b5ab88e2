"""How things stand, by job type: what is due, claimed, stuck, late, unusable.

Every count walks an index of just what it counts and stops at a bound, so that asking costs the same however
large the table is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, text

from cronless_dagster.store.claims import Claim, open_claims
from cronless_dagster.store.declarations import declared_types, queue_types
from cronless_dagster.store.outbox import QueuedClaim, queued_claims
from cronless_dagster.store.progress import read_progress

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

COUNT_BOUND = 100_000
LATE_BOUND = 10_000
"""Whether a due row is past its grace is written in the row itself, so fewer are looked at."""
_TYPES_BOUND = 1_000

# With these off nothing is left but the index that each count was written for.
_BY_INDEX = text(
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)"
)

# A loose index scan: one probe for each job type that has such a row.
_LOOSE = """
WITH RECURSIVE found AS (
    (SELECT job.job_type, 1 AS probes FROM cronless.scheduled_job AS job
     WHERE {condition} ORDER BY job.job_type, {order} LIMIT 1)
    UNION ALL
    SELECT following.job_type, found.probes + 1 FROM found CROSS JOIN LATERAL (
        SELECT job.job_type FROM cronless.scheduled_job AS job
        WHERE {condition} AND job.job_type > found.job_type
        ORDER BY job.job_type, {order} LIMIT 1) AS following
    WHERE found.probes < :bound
) SELECT job_type FROM found
"""
_TYPES = tuple(
    text(_LOOSE.format(condition=condition, order=order))
    for condition, order in (
        ("job.status = 'PENDING' AND job.paused_at IS NULL", "job.next_run_at, job.id"),
        ("job.status = 'INVALID'", "job.id"),
        ("job.paused_at IS NOT NULL", "job.id"),
    )
)

_COUNTS = text(
    """
SELECT asked.name, due.number AS due, due.since AS oldest_due_at, late.number AS late, late.seen AS late_seen,
       unplanned.number AS unplanned, invalid.number AS invalid, paused.number AS paused
FROM unnest(CAST(:names AS text[])) AS asked (name)
CROSS JOIN LATERAL (SELECT count(*) AS number, min(next_run_at) AS since FROM (
    SELECT job.next_run_at FROM cronless.scheduled_job AS job
    WHERE job.status = 'PENDING' AND job.paused_at IS NULL
      AND job.job_type = asked.name AND job.next_run_at <= :now
    ORDER BY job.job_type, job.next_run_at, job.id LIMIT :bound) AS counted) AS due
CROSS JOIN LATERAL (SELECT count(*) AS seen, count(*) FILTER (
        WHERE next_run_at + make_interval(secs => misfire_grace_seconds) < :now) AS number FROM (
    SELECT job.next_run_at, job.misfire_grace_seconds FROM cronless.scheduled_job AS job
    WHERE job.status = 'PENDING' AND job.paused_at IS NULL
      AND job.job_type = asked.name AND job.next_run_at <= :now
    ORDER BY job.job_type, job.next_run_at, job.id LIMIT :late_bound) AS counted) AS late
CROSS JOIN LATERAL (SELECT count(*) AS number FROM (
    SELECT 1 FROM cronless.scheduled_job AS job
    WHERE job.status = 'PENDING' AND job.paused_at IS NULL
      AND job.job_type = asked.name AND job.next_run_at IS NULL LIMIT :bound) AS counted) AS unplanned
CROSS JOIN LATERAL (SELECT count(*) AS number FROM (
    SELECT 1 FROM cronless.scheduled_job AS job
    WHERE job.status = 'INVALID' AND job.job_type = asked.name LIMIT :bound) AS counted) AS invalid
CROSS JOIN LATERAL (SELECT count(*) AS number FROM (
    SELECT 1 FROM cronless.scheduled_job AS job
    WHERE job.paused_at IS NOT NULL AND job.job_type = asked.name LIMIT :bound) AS counted) AS paused
ORDER BY asked.name
"""
)


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """Numbers of jobs of one type.

    Attributes:
        declared: Some running code has declared the type lately.
        due: Waiting to be claimed, their instant reached; paused ones don't count.
        queued: Claimed by a claim that hasn't started; on the queue route, not started by a worker.
        running: Claimed by one that has, and not finished; on the queue route, started by a worker.
        stuck: Running in a claim whose lease has run out; on the queue route, running beyond their own.
        late: Due for longer than their misfire grace.
        unclaimable: Due, and of a type that no running code declares.
        invalid: Unusable as they are; each says why.
        paused: Paused, whatever else they are.
        unplanned: Waiting for the planner.
        oldest_due_at: When the longest due one became due (UTC).
        at_least: The numbers that stopped at their bound.
    """

    job_type: str
    declared: bool
    due: int
    queued: int
    running: int
    stuck: int
    late: int
    unclaimable: int
    invalid: int
    paused: int
    unplanned: int
    oldest_due_at: datetime | None
    at_least: tuple[str, ...] = ()


NUMBERS = ("due", "queued", "running", "stuck", "late", "unclaimable", "invalid", "paused", "unplanned")


@dataclass(frozen=True, slots=True)
class Status:
    """How things stand at `now`.

    Attributes:
        types: By name, those that have jobs and those that are declared.
        open_claims: How many there are, by state.
        queue_types: Names of the job types on the queue route.
        last_tick: What the latest tick noted (`at`, `claimed`, `handed_over`, `errors`, `left`); None: none yet.
    """

    now: datetime
    types: tuple[TypeStatus, ...]
    open_claims: Mapping[str, int]
    queue_types: tuple[str, ...] = ()
    last_tick: Mapping[str, Any] | None = field(default=None)

    @property
    def oldest_due_at(self) -> datetime | None:
        """When the longest due job of all types became due (UTC)."""
        return min((one.oldest_due_at for one in self.types if one.oldest_due_at is not None), default=None)


def read_status(
    connection: Connection,
    now: datetime,
    *,
    names: Collection[str] | None = None,
    count_bound: int = COUNT_BOUND,
    late_bound: int = LATE_BOUND,
) -> Status:
    """Count, in the caller's transaction, of which the rest then uses index scans only; of these types, or of all."""
    claims = open_claims(connection)
    declared = set(declared_types(connection, now))
    on_queue = queue_types(connection, now)
    held = queued_claims(connection, now) if any(claim.route == "queue" for claim in claims) else {}
    ticks = [value for key, value in read_progress(connection).items() if key.startswith("tick:")]
    connection.execute(_BY_INDEX)
    if names is None:
        found = declared | {claim.job_type for claim in claims}
        for statement in _TYPES:
            found.update(connection.execute(statement, {"bound": _TYPES_BOUND}).scalars())
        names = found
    rows = connection.execute(
        _COUNTS, {"names": sorted(names), "now": now, "bound": count_bound, "late_bound": late_bound}
    )
    types = []
    for row in rows:
        of_type = [claim for claim in claims if claim.job_type == row.name]
        types.append(_of_type(row, row.name in declared, of_type, held, now, (count_bound, late_bound)))
    states = ("CLAIMED", "SUBMITTED", "RUNNING")
    return Status(
        now=now,
        types=tuple(types),
        open_claims={state: sum(claim.state == state for claim in claims) for state in states},
        queue_types=tuple(on_queue),
        last_tick=max(ticks, key=lambda value: datetime.fromisoformat(value["at"]), default=None),
    )


def _of_type(
    row: Any,
    declared: bool,
    claims: list[Claim],
    held: dict[UUID, QueuedClaim],
    now: datetime,
    bounds: tuple[int, int],
) -> TypeStatus:
    count_bound, late_bound = bounds
    cut = [name for name in ("due", "unplanned", "invalid", "paused") if getattr(row, name) >= count_bound]
    if row.late_seen >= late_bound:
        cut.append("late")
    if not declared and "due" in cut:
        cut.append("unclaimable")
    on_queue = [held[claim.id] for claim in claims if claim.id in held]
    others = [claim for claim in claims if claim.id not in held]
    return TypeStatus(
        job_type=row.name,
        declared=declared,
        due=row.due,
        queued=sum(one.queued for one in on_queue)
        + sum(claim.in_flight for claim in others if claim.state != "RUNNING"),
        running=sum(one.running for one in on_queue)
        + sum(claim.in_flight for claim in others if claim.state == "RUNNING"),
        # One that waits in Dagster's run queue past its lease is late, not stuck.
        stuck=sum(one.lapsed for one in on_queue)
        + sum(
            claim.in_flight
            for claim in others
            if (claim.state == "RUNNING" or claim.route == "local") and claim.lease_expires_at < now
        ),
        late=row.late,
        unclaimable=0 if declared else row.due,
        invalid=row.invalid,
        paused=row.paused,
        unplanned=row.unplanned,
        oldest_due_at=row.oldest_due_at,
        at_least=tuple(name for name in NUMBERS if name in cut),
    )
