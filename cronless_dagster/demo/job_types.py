"""The demo's three job types. Their handlers write rows that people can query; nothing leaves the machine.

Two of them take the queue route where there is a broker, and else the run route as the third does.
Every write is keyed by the job's idempotency key, so that a second try of the same occurrence adds nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.scheduling.models import RetryPolicy
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from uuid import UUID

    import pandas as pd

    from cronless_dagster.engine.handlers import HandlerContext
    from cronless_dagster.store.rows import ClaimedJob

LEASE = timedelta(hours=24)
job_types = JobTypes()

_REFRESH = text(
    "INSERT INTO cronless_demo.refresh (idempotency_key, tenant_id, name, scheduled_for, jobs, due_next)"
    " SELECT :key, :tenant, :name, :scheduled_for, count(*), min(next_run_at)"
    " FROM cronless.scheduled_job WHERE tenant_id = :tenant AND removed_at IS NULL"
    " ON CONFLICT (idempotency_key) DO NOTHING"
)
_JOBS_OF = text(
    "SELECT tenant_id, name, schedule, last_outcome, next_run_at FROM cronless.scheduled_job"
    " WHERE tenant_id = ANY (CAST(:tenants AS text[])) AND removed_at IS NULL"
)
_DIGEST = text(
    "INSERT INTO cronless_demo.digest (idempotency_key, tenant_id, name, scheduled_for, body)"
    " VALUES (:key, :tenant, :name, :scheduled_for, :body) ON CONFLICT (idempotency_key) DO NOTHING"
)
_RENEW = text(
    "INSERT INTO cronless_demo.webhook_lease AS lease"
    " (tenant_id, name, renewals, last_key, renewed_for, expires_at)"
    " VALUES (:tenant, :name, 1, :key, :scheduled_for, :expires_at)"
    " ON CONFLICT (tenant_id, name) DO UPDATE SET renewals = lease.renewals + 1, last_key = excluded.last_key,"
    " renewed_for = excluded.renewed_for, expires_at = excluded.expires_at"
    " WHERE lease.last_key <> excluded.last_key"
)


@job_types.job(
    "research_refresh",
    route="queue",
    batch_size=500,
    retry=RetryPolicy(max_attempts=3, delay=timedelta(minutes=1)),
)
def research_refresh(job: ClaimedJob, context: HandlerContext) -> None:
    """Write what the schedule says of the tenant: how many jobs it has and which comes next."""
    with transaction(context.engine) as connection:
        connection.execute(
            _REFRESH,
            {
                "key": job.idempotency_key,
                "tenant": job.tenant_id,
                "name": job.name,
                "scheduled_for": job.scheduled_for,
            },
        )


@job_types.batch("email_digest", batch_size=500)
def email_digest(jobs: pd.DataFrame, context: HandlerContext) -> dict[UUID, None]:
    """Compose a digest of each tenant's jobs and how they last ended, as a mail would have it; none is sent."""
    with transaction(context.engine) as connection:
        rows = connection.execute(_JOBS_OF, {"tenants": sorted(set(jobs["tenant_id"]))}).all()
        lines: dict[str, list[str]] = {}
        for row in rows:
            lines.setdefault(row.tenant_id, []).append(
                f"{row.name}: {row.schedule}, {row.last_outcome or 'has not run yet'}"
            )
        connection.execute(
            _DIGEST,
            [
                {
                    "key": job["idempotency_key"],
                    "tenant": job["tenant_id"],
                    "name": job["name"],
                    "scheduled_for": job["scheduled_for"].to_pydatetime(),
                    "body": "\n".join(sorted(lines.get(job["tenant_id"], []))),
                }
                for job in jobs.to_dict("records")
            ],
        )
    return dict.fromkeys(jobs["job_id"])


@job_types.job(
    "webhook_renewal",
    route="queue",
    batch_size=500,
    retry=RetryPolicy(max_attempts=4, delay=timedelta(seconds=30)),
)
def webhook_renewal(job: ClaimedJob, context: HandlerContext) -> None:
    """Renew a made-up lease. Jobs marked `fails_first` fail their first try, so that a failure can be seen."""
    if job.payload.get("fails_first") and job.tries == 1:
        raise ConnectionError(
            "the made-up hub answered 503 (this demo job fails the first try of each occurrence)"
        )
    with transaction(context.engine) as connection:
        connection.execute(
            _RENEW,
            {
                "tenant": job.tenant_id,
                "name": job.name,
                "key": job.idempotency_key,
                "scheduled_for": job.scheduled_for,
                "expires_at": job.scheduled_for + LEASE,
            },
        )
