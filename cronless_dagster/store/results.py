"""The finish fence: a batch of outcomes with their next plans, accepted once each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from cronless_dagster.scheduling.zones import TZDATA_VERSION
from cronless_dagster.store.arrays import instant_array, integer_array, text_array, uuid_array
from cronless_dagster.store.claims import delete_tombstones
from cronless_dagster.store.database import drive_by_array
from cronless_dagster.store.history import Missed, record_missed
from cronless_dagster.store.statements import statement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from cronless_dagster.scheduling.models import Plan
    from cronless_dagster.store.rows import ClaimedJob

MAX_ERROR_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True)
class Result:
    """How one job of a claim ended, and what follows."""

    job: ClaimedJob
    plan: Plan
    error: str | None
    started_at: datetime | None


_CLAIMS_OF = text("SELECT id, claim_id FROM cronless.scheduled_job WHERE id = ANY (CAST(:ids AS uuid[]))")


def lock_finished(connection: Connection, results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Lock the rows of results without waiting; return those results, and those whose row is held.

    Results whose row has left their claim are in neither list.
    """
    drive_by_array(connection)
    ids = uuid_array([result.job.id for result in results])
    claim_ids = uuid_array([result.job.claim_id for result in results])
    locked = set(
        connection.execute(statement("lock_finished"), {"ids": ids, "claim_ids": claim_ids}).scalars()
    )
    if len(locked) == len(results):
        return list(results), []
    claims = {row.id: row.claim_id for row in connection.execute(_CLAIMS_OF, {"ids": ids})}
    return (
        [result for result in results if result.job.id in locked],
        [
            result
            for result in results
            if result.job.id not in locked and claims.get(result.job.id) == result.job.claim_id
        ],
    )


def finish_jobs(
    connection: Connection,
    results: Sequence[Result],
    now: datetime,
    *,
    run_id: str | None = None,
    holder: UUID | None = None,
) -> set[UUID]:
    """Write outcomes, next plans and history; return the ids whose result was accepted.

    A result whose claim or execution is no longer the current one is left out: its id is missing from the
    answer and the caller counts it as discarded.

    Args:
        connection: A transaction that on the run route has passed `hold_claim`.
        results: At most a few thousand.
        now: The finish's instant.
        run_id: The Dagster run that did the work.
        holder: The execution id of the claim's holder, for the history of jobs that have none of their own.
    """
    if not results:
        return set()
    drive_by_array(connection)
    jobs = [result.job for result in results]
    plans = [result.plan for result in results]
    rows = connection.execute(
        statement("finish_jobs"),
        {
            "now": now,
            "run_id": run_id,
            "holder": holder,
            "tzdata_version": TZDATA_VERSION,
            "ids": uuid_array([job.id for job in jobs]),
            "claim_ids": uuid_array([job.claim_id for job in jobs]),
            "execution_ids": uuid_array([job.execution_id for job in jobs]),
            "plan_versions": integer_array([job.plan_version for job in jobs]),
            "outcomes": text_array([plan.recorded or "success" for plan in plans]),
            "errors": text_array([_storable(result.error) for result in results]),
            "statuses": text_array([plan.status for plan in plans]),
            "next_run_ats": instant_array([plan.next_run_at for plan in plans]),
            "scheduled_fors": instant_array([plan.scheduled_for for plan in plans]),
            "attempts": integer_array([plan.attempt for plan in plans]),
            "failures": integer_array([plan.consecutive_failures for plan in plans]),
            "pause_reasons": text_array([_storable(plan.pause_reason) for plan in plans]),
            "reasons": text_array([_storable(plan.reason) for plan in plans]),
            "tries": integer_array([job.tries for job in jobs]),
            "started_ats": instant_array([result.started_at for result in results]),
        },
    ).all()
    accepted = {row.id for row in rows}
    delete_tombstones(connection, [row.id for row in rows if row.removed])
    record_missed(
        connection,
        [
            Missed(result.job.id, result.job.tenant_id, result.job.job_type, result.plan.missed)
            for result in results
            if result.plan.missed is not None and result.job.id in accepted
        ],
        now,
    )
    return accepted


def _storable(said: str | None) -> str | None:
    # PostgreSQL's text can't hold NUL or half a character, and what a handler said may; reasons quote it.
    if said is None:
        return None
    whole = said[:MAX_ERROR_CHARACTERS].encode(errors="backslashreplace").decode()
    return whole.replace("\x00", "\\x00")[:MAX_ERROR_CHARACTERS]
